"""Short lines side by side in one register tile: which, where it pays, and that results stay the same."""

from dataclasses import replace

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.contraction.test_prefetch import blocked
from tests.unit.strategies import test_default
from tests.unit.strategies.test_default import check, conv_program

from tilewright.cost import Machine
from tilewright.cost.issue import reloaded_rows, shared_cycles
from tilewright.plan import EXACT
from tilewright.strategies import default_schedule
from tilewright.target import X86_AVX512

SHARED = replace(X86_AVX512, shared_issue=(2.4, 1.75))


def lines(given, threads=1, target=SHARED, **options) -> dict[str, int]:
    """The expanded loops of a convolution's sums but those along channels, and their extents."""
    program = blocked(conv_program(*given, epilogue=False, **options))
    s = default_schedule(program, Machine(target, threads), accuracy=EXACT)
    loops = [s.loop(name) for name in s.loops("Y")]
    return {
        f.var.split("_")[0]: f.extent.as_int()
        for f in loops
        if f.kind.name == "unroll" and f.var.split("_")[0] in ("n", "oh", "ow")
    }


@pytest.mark.parametrize(
    ("given", "threads", "options", "expected"),
    [
        # the nearest axis that divides evenly
        ((2, 64, 64, (8, 7), (1, 1)), 1, {}, {"oh": 2, "ow": 7}),
        ((4, 64, 64, (7, 7), (1, 1)), 1, {}, {"n": 2, "ow": 7}),
        ((4, 64, 64, (14, 14), (1, 1)), 2, {"stride": 2}, {"n": 2, "ow": 7}),
        # else lines are left over
        ((1, 64, 64, (7, 7), (1, 1)), 1, {}, {"oh": 2, "ow": 7}),
        ((1, 64, 64, (7, 7), (1, 1)), 2, {}, {"oh": 2, "ow": 7}),
        # but not where threads would share five panels and could not share the lines
        ((1, 64, 160, (7, 7), (1, 1)), 2, {}, {"ow": 7}),
        # 7x3 registers are as many as there may be
        ((2, 64, 96, (8, 7), (1, 1)), 1, {}, {"ow": 7}),
        # as many lines as fit; lines that are long enough
        ((1, 64, 32, (8, 3), (1, 1)), 1, {}, {"oh": 4, "ow": 3}),
        ((2, 64, 64, (8, 14), (1, 1)), 1, {}, {"ow": 14}),
        # lines that padding meets have code of their own, images do not
        ((2, 64, 64, (8, 7), (3, 3)), 1, {"pad": 1}, {"n": 2, "ow": 7}),
        ((1, 64, 64, (8, 7), (3, 3)), 1, {"pad": 1}, {"ow": 7}),
    ],
)
def test_lines_of_a_tile(given, threads, options, expected):
    assert lines(given, threads, **options) == expected


def test_cores_of_their_own_take_one_line():
    assert lines((4, 64, 64, (7, 7), (1, 1)), target=X86_AVX512) == {"ow": 7}


def test_cycles_of_a_step_by_what_lasts_longer():
    assert shared_cycles(X86_AVX512, 7, 2) is None
    assert reloaded_rows(SHARED, 7, 2) == 4
    assert shared_cycles(SHARED, 7, 2) == pytest.approx((14 + 7 + 2 + 0.75 - 4) / 2.4)
    # all rows reloaded: loads last longer
    assert shared_cycles(SHARED, 4, 1) == pytest.approx(5 / 1.75)


@pytest.mark.few(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("given", "options"),
    [
        ((4, 32, 32, (7, 7), (1, 1)), {}),
        ((1, 32, 32, (7, 7), (1, 1)), {}),
        ((3, 32, 48, (9, 10), (1, 1)), {"stride": 2}),
        ((2, 32, 32, (4, 5), (3, 3)), {"pad": 1}),
    ],
)
def test_results_stay_the_same(given, options, threads, monkeypatch):
    host = replace(STATED, shared_issue=(2.4, 1.75), page_walk=50)
    monkeypatch.setattr(test_default, "STATED", host)
    check(
        blocked(conv_program(*given, **options)),
        accuracy=EXACT,
        threads=threads,
        interpret=given[0] == 1,
    )
