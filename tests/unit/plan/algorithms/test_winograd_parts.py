"""Winograd convolutions whose threads share the channels of the result: when, and that results are right."""

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.loops import along
from tests.unit.strategies.test_default import blocked, check, conv_program

from tilewright.cost import Machine
from tilewright.ir import F32
from tilewright.lang import match_winograd
from tilewright.plan import Accuracy
from tilewright.plan.algorithms import choice as algorithms
from tilewright.plan.algorithms.choice import choose_winograd
from tilewright.plan.algorithms.winograd import tile_blocks
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule
from tilewright.target import X86_AVX512


def matched(*args):
    """The inlined program of a padded convolution, its convolution stage, and the match of that."""
    taps = (3,) * len(args[3])
    program = inline_stages(Schedule(conv_program(*args, taps, pad=1, epilogue=False))).program
    assert program is not None
    (stage,) = [each for each in program.stages if each.is_reduction]
    match = match_winograd(program, stage)
    assert match is not None
    return program, stage, match


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        # weights of several MiB, few tiles
        ((1, 512, 512, (7, 7)), 2),
        ((1, 256, 256, (14, 14)), 2),
        # weights that stay in a core's cache, many tiles
        ((1, 64, 64, (56, 56)), 1),
        # each thread has images of its own
        ((2, 256, 256, (14, 14)), 1),
    ],
)
def test_threads_share_channels_where_weights_are_most_of_what_is_read(args, parts):
    program, stage, _ = matched(*args)
    choice = choose_winograd(program, stage, Machine(X86_AVX512, 2), Accuracy("f2"))
    assert choice is not None
    assert choice.blocks.parts == parts


@pytest.mark.parametrize(
    ("oc", "threads", "ways"), [(64, 2, 2), (96, 3, 2), (64, 3, 1), (64, 1, 1), (16, 2, 1)]
)
def test_parts_are_equal_whole_vectors(oc, threads, ways):
    program, _, match = matched(1, 32, oc, (9, 9))
    found = tile_blocks(program, match, 2, Machine(X86_AVX512, threads))
    assert len(found) == ways
    for way in found:
        assert way.tiles >= 25 and way.tiles % way.block == 0
        assert way.parts == 1 or oc % (way.parts * way.panel) == 0


@pytest.mark.few(3)
@pytest.mark.parametrize("mode", ["f2", "f4"])
@pytest.mark.parametrize(
    ("args", "threads"),
    [
        ((1, 32, 64, (7, 7), (3, 3)), 2),
        ((1, 16, 96, (9, 5), (3, 3)), 3),
        ((1, 48, 128, (13, 17), (3, 3)), 2),
        ((1, 16, 64, (3, 6, 5), (3, 3, 3)), 2),
    ],
)
def test_results_by_parts_of_the_channels(mode, args, threads, monkeypatch):
    found = algorithms.tile_blocks
    monkeypatch.setattr(algorithms, "tile_blocks", lambda *given: found(*given)[-1:])
    s = check(
        blocked(conv_program(*args, pad=1)),
        threads=threads,
        accuracy=Accuracy(mode),
        interpret=False,
        tolerance=5e-5,
    )
    assert len(along(s, s.blocks()[-1], 1)) >= 3


def test_results_by_parts_on_the_interpreter(monkeypatch):
    found = algorithms.tile_blocks
    monkeypatch.setattr(algorithms, "tile_blocks", lambda *given: found(*given)[-1:])
    program = blocked(conv_program(1, 16, STATED.lanes(F32) * 2, (4, 5), (3, 3), pad=1))
    check(program, accuracy=Accuracy("f2"), tolerance=5e-5)


def test_weights_are_counted_once_for_all_images():
    program, stage, _ = matched(16, 512, 512, (7, 7))
    choice = choose_winograd(program, stage, Machine(X86_AVX512, 1))
    assert choice is not None
    assert choice.m == 4


@pytest.mark.parametrize(("reads", "hidden"), [(10, True), (1000, False)])
def test_products_hide_the_weights_that_a_cache_gives_again(reads, hidden):
    products, weights = 1e6, 1e5
    once = algorithms.with_weights(products, 0.0, Machine(X86_AVX512, 2), weights, 1)
    many = algorithms.with_weights(products, 0.0, Machine(X86_AVX512, 2), weights, reads)
    assert (many == once) == hidden
    assert many >= once > products


def test_taps_of_the_depth_that_meet_padding_are_not_counted():
    """Each of two slices meets two of three taps."""
    _, _, match = matched(1, 64, 64, (2, 14, 14))
    assert algorithms._taps_met(match) == 4
