"""Blocks of rows: when they pay, and that what is computed stays the same."""

from dataclasses import replace

import pytest
from tests.native_kernel import STATED
from tests.unit.strategies.test_default import blocked, check, constant, conv_program, t

from tilewright import lang
from tilewright.analysis.contraction import Contraction, match_contraction
from tilewright.cost import Machine
from tilewright.plan import EXACT
from tilewright.plan.contraction import cache_blocking as blocking
from tilewright.plan.contraction.cache_blocking import RowBlock, choose_row_block, footprint
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule
from tilewright.strategies import default_schedule
from tilewright.target import MemoryLevel

KIB = 1024


def machine(second: int, third: int, requests: tuple[int, int] = (2, 4)):
    """A machine that computes as this one does, without tile registers, with caches of such sizes, in KiB.

    What tables say of single CPUs is the same wherever tests run.
    """
    levels = (
        MemoryLevel(name="l1", size=min(32, second) * KIB, line=64, latency=5, bandwidth=128),
        MemoryLevel(name="l2", size=second * KIB, line=64, latency=14, bandwidth=32),
        MemoryLevel(name="l3", size=third * KIB, line=64, latency=50, bandwidth=16, shared_by=2),
        MemoryLevel(name="memory", size=None, line=64, latency=300, bandwidth=4, shared_by=2),
    )
    return replace(
        STATED,
        memory=levels,
        tiles=0,
        far_requests=requests,
        fma_per_cycle=2.0,
        page_walk=7,
        stream_gain=1.0,
        past_share=1.0,
        shared_issue=None,
    )


def guest(third: int, whole: int):
    """Such a machine with 1 MiB of the second level, and others who use the third one, too."""
    own = machine(1024, third)
    levels = (replace(level, whole=whole * KIB) if level.name == "l3" else level for level in own.memory)
    return replace(own, memory=tuple(levels))


def roles(program) -> Contraction:
    """The contraction of a program's only reduction."""
    now = inline_stages(Schedule(program)).program
    assert now is not None
    (stage,) = [each for each in now.stages if each.is_reduction]
    found = match_contraction(now, stage)
    assert found is not None
    return found


def conv1x1(n, ic, oc, size):
    return constant(blocked(conv_program(n, ic, oc, (size, size), (1, 1), epilogue=False)), "W")


def test_footprints_count_each_element_once():
    c = roles(blocked(conv_program(1, 16, 16, (9, 13), (3, 3), epilogue=False, stride=2)))
    full = {it.name: it.extent.as_int() for it in c.stage.iters}
    assert footprint(c.a, full) == 4 * 16 * 9 * 13
    assert footprint(c.a, dict.fromkeys(full, 1)) == 4


@pytest.mark.parametrize(
    ("second", "third", "expected"),
    [
        # all fits; blocks of rows of one image; of images
        (4096, 65536, None),
        (256, 512, RowBlock("oh", 14)),
        (600, 4096, RowBlock("n", 1)),
    ],
)
def test_blocks_fit_the_second_level(second, third, expected):
    c = roles(conv1x1(8, 64, 256, 28))
    target = machine(second, third)
    found = choose_row_block(c, Machine(target, 2), {"ow": 14}, 32, "n")
    assert found == expected
    if found is not None:
        inside = {it.name: it.extent.as_int() for it in c.stage.iters} | {"n": 1} | {found.axis: found.size}
        assert footprint(c.a, inside) <= blocking.BLOCK_SHARE * second * KIB


def test_one_panel_or_one_operand_has_no_blocks():
    assert (
        choose_row_block(roles(conv1x1(8, 64, 32, 28)), Machine(machine(64, 128), 2), {"ow": 14}, 32, "n")
        is None
    )
    x = t(4, 512, 512, name="X")
    k = lang.reduce_axis(512, "k")
    total = lang.compute((4, 512), lambda i, j: lang.sum(x[i, k, j], axis=k), name="C")
    c = roles(lang.program([x], [total]))
    assert choose_row_block(c, Machine(machine(64, 128), 2), {}, 16, None) is None


def test_reading_the_other_operand_again_may_cost_more():
    # few rows and many weights: blocks of rows would stream the weights from memory time and again
    a, b = t(64, 4096, name="A"), t(4096, 4096, name="B")
    k = lang.reduce_axis(4096, "k")
    c = lang.compute((64, 4096), lambda i, j: lang.sum(a[i, k] * b[k, j], axis=k), name="C")
    found = roles(constant(lang.program([a, b], [c]), "B"))
    assert choose_row_block(found, Machine(machine(1024, 32768), 2), {"i": 8}, 32, None) is None


@pytest.mark.few(6)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((6, 32, 192, (10, 14), (1, 1)), {}),
        ((4, 32, 192, (11, 13), (3, 3)), {"pad": 1}),
        ((5, 48, 160, (15, 7), (3, 3)), {"pad": 1, "stride": 2}),
        ((1, 32, 192, (30, 29), (3, 3)), {"epilogue": False}),
        ((3, 64, 192, (1, 30), (1, 3)), {}),
    ],
)
def test_results_with_blocks(monkeypatch, args, options, threads):
    monkeypatch.setattr(blocking, "BLOCK_SHARE", 8e-3)
    monkeypatch.setattr(blocking, "MARGIN", 0.0)
    program = constant(blocked(conv_program(*args, **options)), "W")
    s = check(program, threads=threads, accuracy=EXACT, interpret=False)
    monkeypatch.undo()
    assert str(s) != str(default_schedule(program, Machine(STATED, threads), accuracy=EXACT))


@pytest.mark.parametrize("rows", [48, 96, 60])
def test_results_of_products_with_blocks(monkeypatch, rows):
    monkeypatch.setattr(blocking, "BLOCK_SHARE", 8e-3)
    monkeypatch.setattr(blocking, "MARGIN", 0.0)
    a, b = t(rows, 128, name="A"), t(128, 160, name="B")
    k = lang.reduce_axis(128, "k")
    c = lang.compute((rows, 160), lambda i, j: lang.sum(a[i, k] * b[k, j], axis=k), name="C")
    check(constant(lang.program([a, b], [c]), "B"), accuracy=EXACT, interpret=False)
