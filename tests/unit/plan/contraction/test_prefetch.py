"""Asking ahead for rows: where the rule does, what is asked for, and that results stay the same."""

import re
from dataclasses import replace

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.contraction.test_cache_blocking import machine
from tests.unit.plan.contraction.test_gemm import product
from tests.unit.strategies.test_default import check, conv_program

from tilewright.cost import Machine
from tilewright.ir import GLOBAL, Index, IndexMap, blocks, var
from tilewright.plan import EXACT
from tilewright.strategies import default_schedule
from tilewright.target import X86_AVX512


def blocked(program):
    """The program with data and result in blocks of 16 channels."""

    def one(b):
        n, c, h, w = b.shape
        at = (var("n"), var("c") // 16, var("h"), var("w"), var("c") % 16)
        return b.with_(layout=IndexMap(("n", "c", "h", "w"), at, (n, c // 16, h, w, Index(16))))

    inputs = tuple(one(b) if b.name in ("X", "R") else b for b in program.inputs)
    return replace(program, inputs=inputs, outputs=tuple(map(one, program.outputs)))


def hints(program, target=STATED) -> set[tuple[str, str]]:
    """The loops that ask ahead, by the axes that they run along, and what for."""
    s = default_schedule(program, Machine(target, 1), accuracy=EXACT)
    loops = [loop for place in blocks(s.func.body) for loop in place.loops]
    asking = [(f.var, value) for f in loops for key, value in f.hints if key == "prefetch"]
    return {(re.sub(r"_\d+$", "", name), value) for name, value in asking}


@pytest.mark.parametrize(
    ("given", "stride", "expected"),
    [
        # over blocks of channels: the same block of the next row
        ((1, 32, 32, (8, 28), (1, 1)), 1, {("Y_ow", "Y"), ("Y0_ic", f"X+{28 * 16}")}),
        # a stride leaves lines out
        ((1, 32, 32, (8, 28), (1, 1)), 2, {("Y_ow", "Y"), ("Y0_ic", f"X+{2 * 28 * 16}:1")}),
        # rows of taps: the row of each tap
        ((1, 32, 32, (8, 28), (3, 3)), 1, {("Y_ow", "Y"), ("Y0_kh", f"X+{28 * 16}")}),
        # all channels lie together
        ((1, 16, 32, (8, 28), (1, 1)), 1, set()),
    ],
)
def test_each_block_of_channels_asks_for_its_part_of_the_next_row(given, stride, expected):
    target = replace(STATED, shared_issue=None, page_walk=7)
    assert hints(blocked(conv_program(*given, stride=stride)), target) == expected


def test_lines_with_gaps_between_go_into_the_second_level_of_a_shared_core():
    strided = blocked(conv_program(1, 32, 32, (8, 28), (1, 1), stride=2))
    target = replace(STATED, shared_issue=(2.4, 1.75), page_walk=7)
    assert ("Y0_ic", f"X+{2 * 28 * 16}:2") in hints(strided, target)


@pytest.mark.parametrize(
    ("given", "stride", "expected"),
    [
        ((1, 32, 32, (8, 28), (1, 1)), 1, {("Y_ow", "Y"), ("Y0_ic", f"X+{8 * 28 * 16}:1")}),
        ((1, 32, 32, (8, 28), (1, 1)), 2, {("Y_ow", "Y"), ("Y0_ic", f"X+{8 * 28 * 16}:1")}),
        # taps find most of their rows in the first level
        ((1, 32, 32, (8, 28), (3, 3)), 1, {("Y_ow", "Y"), ("Y0_kh", f"X+{28 * 16}")}),
        ((1, 16, 32, (8, 28), (1, 1)), 1, set()),
    ],
)
def test_or_each_block_asks_for_the_next_block(given, stride, expected):
    program = blocked(conv_program(*given, stride=stride))
    assert hints(program, replace(STATED, page_walk=50)) == expected


def test_plain_operands_are_followed_by_the_hardware():
    assert hints(conv_program(1, 32, 32, (8, 28), (1, 1))) == set()


def test_results_that_go_past_the_caches_are_not_asked_for():
    program = blocked(conv_program(1, 32, 32, (8, 28), (1, 1)))
    assert ("Y_ow", "Y") in hints(program, machine(1024, 4096))
    assert ("Y_ow", "Y") not in hints(program, machine(8, 16))


@pytest.mark.few(2)
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_results_stay_the_same(window, stride):
    program = blocked(conv_program(1, 32, 16, (3, 15), (window, window), stride=stride))
    check(program, accuracy=EXACT, interpret=window == 1)


@pytest.mark.parametrize(
    ("channels", "pixels", "expected"),
    [
        # the first of a few tiles would wait for each panel
        ((512, 256), (7, 7), True),
        # so many tiles use a panel that waiting for it is no matter
        ((64, 64), (112, 112), False),
        # two panels are more than the second cache level holds
        ((1 << 13, 64), (7, 7), False),
    ],
)
def test_the_next_panel_of_weights_is_asked_for_where_waiting_for_it_shows(channels, pixels, expected):
    program = blocked(conv_program(1, *channels, pixels, (1, 1), epilogue=False))
    assert asking(program) == ({"parallel"} if expected else set())


def test_weights_that_are_no_constants_are_not_asked_for():
    program = blocked(conv_program(1, 512, 256, (7, 7), (1, 1), epilogue=False))
    loose = tuple(b.with_(scope=GLOBAL) for b in program.inputs)
    assert asking(replace(program, inputs=loose)) == set()


@pytest.mark.parametrize(
    ("columns", "depth", "expected"),
    [
        (1500, 2048, True),
        # more than two thirds of the second level: 5 MB, of which it may keep two panels
        (1500, 4096, False),
        # may be in the last level
        (700, 2048, False),
    ],
)
def test_panels_of_a_matrix_larger_than_the_caches_are_asked_for(columns, depth, expected):
    program = product(35, columns, depth)
    assert asking(program, machine(1024, 8 * 1024), "B") == ({"parallel"} if expected else set())
    assert asking(program, machine(1024, 64 * 1024), "B") == set()


def asking(program, target=X86_AVX512, weights="W") -> set[str]:
    """The kinds of the loops that ask for the weights of their next iteration, with two threads."""
    s = default_schedule(program, Machine(target, 2), accuracy=EXACT)
    loops = [loop for place in blocks(s.func.body) for loop in place.loops]
    return {f.kind.name for f in loops if ("prefetch", f"{weights}@spread") in f.hints}
