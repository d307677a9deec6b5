"""Convolutions and pooling of plain tensors along the rows of images: tiles of rows, borders, groups."""

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.graph.test_through_blocks import plain, through
from tests.unit.strategies.test_default import check, constant, conv_program, t

from tilewright import lang
from tilewright.ir import F32
from tilewright.lang import ops
from tilewright.plan import EXACT
from tilewright.plan.contraction import register_tiling as tiles
from tilewright.plan.contraction.register_tiling import (
    BAND,
    STREAMED_BAND,
    choose_tile,
    is_tileable,
    row_axis,
)
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule

LANES = STATED.lanes(F32)

CASES = {
    "depthwise": ((1, 3, (9, 2 * LANES + 5), (3, 3)), {"pad": 1, "groups": 3}),
    "depthwise, three tiles a row": ((2, 2, (15, 3 * LANES), (3, 3)), {"pad": 1, "groups": 2}),
    "depthwise, strided": ((1, 2, (15, 4 * LANES + 1), (3, 3)), {"pad": 1, "groups": 2, "stride": 2}),
    "depthwise 5x5": ((1, 2, (13, LANES + 3), (5, 5)), {"pad": 2, "groups": 2}),
    "depthwise 7x7": ((1, 2, (9, LANES + 3), (7, 7)), {"pad": 3, "groups": 2}),
    "depthwise, one row": ((1, 2, (1, LANES), (1, 3)), {"pad": (0, 1), "groups": 2}),
    "depthwise 1-D": ((2, 2, (2 * LANES,), (3,)), {"pad": 1, "groups": 2}),
    "depthwise 3-D": ((1, 2, (3, 5, LANES), (3, 3, 3)), {"pad": 1, "groups": 2}),
    "groups of 4": ((1, 8, (5, LANES + 1), (3, 3)), {"pad": 1, "groups": 2}),
    "groups of 8": ((2, 16, (4, 2 * LANES), (3, 3)), {"pad": 1, "groups": 2}),
    "groups of 6, strided": ((1, 12, (7, 2 * LANES), (3, 3)), {"pad": 1, "groups": 2, "stride": 2}),
    "groups of 3, dilated": ((1, 6, (7, LANES), (3, 3)), {"pad": 2, "groups": 2, "dilation": 2}),
}


def made(case, epilogue=True):
    (n, channels, spatial, window), options = CASES[case]
    p = conv_program(n, channels, channels, spatial, window, epilogue=epilogue, **options)
    return constant(p, "W", "B") if epilogue else p


@pytest.mark.few(14)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_results(case, threads):
    check(made(case), threads=threads, accuracy=EXACT, interpret=False)


@pytest.mark.few(4)
@pytest.mark.parametrize("case", ["depthwise", "depthwise 5x5", "groups of 4", "groups of 3, dilated"])
@pytest.mark.parametrize("epilogue", [True, False])
def test_on_the_interpreter(case, epilogue):
    check(made(case, epilogue), accuracy=EXACT)


def found(program):
    s = inline_stages(Schedule(program)).program
    stage = next(stage for stage in s.stages if stage.is_reduction)
    last = s.stages[-1] if s.stages[-1] is not stage else None
    return is_tileable(s, stage, STATED, last)


def test_rows_of_an_image_share_what_windows_read():
    c = found(made("depthwise"))
    assert (row_axis(c), c.a.buffer, choose_tile(c, STATED).vectors) == ("oh", "X", 1)
    assert 1 < choose_tile(c, STATED).rows <= BAND


def test_bands_from_memory_are_narrower(monkeypatch):
    monkeypatch.setattr(tiles, "last_cache", lambda target: 0)
    assert choose_tile(found(made("depthwise")), STATED).rows <= STREAMED_BAND


@pytest.mark.parametrize(
    ("case", "size"), [("groups of 4", 4), ("groups of 8", 8), ("groups of 3, dilated", 3)]
)
def test_rows_of_a_group_are_channels(case, size):
    c = found(made(case))
    assert (row_axis(c), c.rows) == ("oc", size)
    assert size % choose_tile(c, STATED).rows == 0


def test_taps_at_the_border_alone_are_masked():
    """Of three tiles of a row the first and the last one meet the padding: copies of their own."""
    s = check(made("depthwise, three tiles a row"), interpret=False)
    loops = {loop for name in s.blocks() for loop in s.loops(name)}
    assert {"ow_0", "ow_0_p1", "ow_0_p2"} <= {loop.removeprefix("Y_") for loop in loops}


@pytest.mark.few(2)
@pytest.mark.parametrize("op", [ops.max_pool, ops.average_pool], ids=["max", "mean"])
@pytest.mark.parametrize("stride", [1, 2])
def test_pooling(op, stride):
    x = t(2, 3, 17, 3 * LANES + 1, name="X")
    check(lang.program([x], [op(x, (3, 3), stride, 1, name="Y")]))


def test_long_rows_of_results_are_computed_as_they_are_stored():
    long = plain(constant(conv_program(1, 16, 32, (8 * LANES,), (3,), pad=1), "W", "B"))
    short = plain(constant(conv_program(1, 16, 32, (LANES + 1,), (3,), pad=1), "W", "B"))
    square = plain(constant(conv_program(1, 16, 32, (4, 8 * LANES), (3, 3), pad=1), "W", "B"))
    assert through(long) == []
    assert through(short) == through(square) == ["Y_blocks"]
    check(long, interpret=False)


def test_steps_of_a_window_whose_rows_share_nothing_are_expanded():
    """Rows 0 and 1 of a tile read taps 0, 1 and 2, 3: no element twice."""
    x, w = t(1, 8, LANES + 1, name="X"), t(8, 2, 4, name="W")
    ic, k = lang.reduce_axis(8, "ic"), lang.reduce_axis(2, "k")
    y = lang.compute(
        (1, 3, 2, LANES),
        lambda n, oc, r, i: lang.sum(x[n, ic, i + k] * w[ic, oc % 2, r + 2 * k], axis=[ic, k]),
        name="Y",
    )
    s = check(constant(lang.program([x, w], [y]), "W"))
    hints = [h for name in s.blocks() for loop in s.loops(name) for h in s.loop(loop).hints]
    assert ("unroll", "2") in hints


def test_windows_that_mask_lanes_are_expanded():
    """Taps at the ends of a row read padding: which lanes they leave out is known when compiling."""
    x, w = t(1, 8, 2 * LANES, name="X"), t(3, 8, 3, name="W")
    ic, k = lang.reduce_axis(8, "ic"), lang.reduce_axis(3, "k")
    padded = lang.boundary(x, value=0)
    y = lang.compute(
        (1, 3, 2 * LANES),
        lambda n, oc, i: lang.sum(padded[n, ic, i + k - 1] * w[oc, ic, k], axis=[ic, k]),
        name="Y",
    )
    s = check(constant(lang.program([x, w], [y]), "W"))
    block = s.block("Y")
    (taps,) = (b.as_var() for it, b in zip(block.iters, block.bind, strict=True) if it.name == "k")
    assert s.loop(taps).kind.name == "unroll"


def test_single_rows_of_many_matrices_are_rows_of_one_tile():
    """Sequences before a batch of one, as in torch: a tile of one row reaches half of the peak."""
    x, w = t(40, 1, 48, name="X"), t(48, 3 * LANES, name="W")
    k = lang.reduce_axis(48, "k")
    y = lang.compute((40, 1, 3 * LANES), lambda b, i, j: lang.sum(x[b, i, k] * w[k, j], axis=k), name="Y")
    program = constant(lang.program([x, w], [y]), "W")
    c = found(program)
    assert row_axis(c) == c.axes("m")[0] and choose_tile(c, STATED).rows > 1
    check(program, threads=2)
