"""Transposed convolutions, by phases and as they are: against the sum over inputs, written out."""

import itertools

import numpy as np
import pytest
from onnx import helper
from tests.native_kernel import HOST, Native

import onnx_models as tiny
import tilewright
from tilewright.cost import Machine
from tilewright.driver.graph_plan import choose_graph_plan
from tilewright.driver.units import UnitMaker, make_units
from tilewright.frontend import import_onnx
from tilewright.graph import fuse, simplify
from tilewright.ir import F32
from tilewright.plan import EXACT
from tilewright.plan.contraction import tile_loops as contraction
from tilewright.strategies import default_schedule


def expected(x, w, stride, before, dilation, groups, out):
    """Each input adds its part of the window to the results, in double precision."""
    n, into, *sizes = x.shape
    _, per_group, *window = w.shape
    full = [(s - 1) * st + (k - 1) * dilation + 1 for s, st, k in zip(sizes, stride, window, strict=True)]
    full = [max(f, lo + o) for f, lo, o in zip(full, before, out, strict=True)]
    y = np.zeros((n, per_group * groups, *full))
    depth = into // groups
    for g in range(groups):
        channels, results = slice(g * depth, (g + 1) * depth), slice(g * per_group, (g + 1) * per_group)
        for tap in itertools.product(*map(range, window)):
            part = np.einsum(
                "nc...,co->no...", x[:, channels].astype(np.float64), w[(channels, slice(None), *tap)]
            )
            spans = [
                slice(t * dilation, t * dilation + (s - 1) * st + 1, st)
                for t, s, st in zip(tap, sizes, stride, strict=True)
            ]
            y[(slice(None), results, *spans)] += part
    return y[(slice(None), slice(None), *(slice(lo, lo + o) for lo, o in zip(before, out, strict=True)))]


CASES = {
    "4x4/2": ((1, 8, 16), (5, 7), (4, 4), (2, 2), {"before": (1, 1)}),
    "even sizes": ((1, 16, 32), (8, 8), (2, 2), (2, 2), {}),
    "parts of rows": ((1, 32, 64), (28, 27), (2, 2), (2, 2), {}),
    "parts of padded rows": ((2, 16, 32), (14, 12), (4, 4), (2, 2), {"before": (1, 1)}),
    "taps that do not divide": ((2, 5, 9), (6, 3), (3, 5), (2, 3), {"before": (1, 2)}),
    "few channels": ((1, 12, 3), (9, 11), (4, 4), (2, 2), {"before": (1, 1)}),
    "five channels": ((1, 6, 5), (7, 33), (4, 4), (2, 2), {"before": (1, 1)}),
    "one channel, three phases": ((2, 9, 1), (5, 18), (5, 4), (3, 3), {"before": (2, 1)}),
    "padding beyond a stride": ((1, 6, 8), (6, 7), (7, 6), (2, 2), {"before": (3, 2)}),
    "one pixel": ((1, 3, 8), (1, 1), (3, 3), (2, 2), {}),
    "one pixel, padded": ((3, 5, 8), (1, 1), (4, 5), (2, 3), {"before": (1, 2), "extra": (1, 0)}),
    "one pixel in groups": ((1, 32, 4096), (1, 1), (2, 2), (2, 2), {"groups": 4}),
    "one pixel, one result": ((1, 8, 6), (1, 1), (3, 3), (2, 2), {"before": (1, 1)}),
    "one pixel, results behind": ((1, 8, 6), (1, 1), (2, 1), (3, 3), {"before": (1, 0), "extra": (2, 2)}),
    "one column": ((2, 8, 12), (33, 1), (3, 3), (2, 2), {"groups": 2, "before": (1, 0)}),
    "one row": ((2, 8, 6), (1, 7), (5, 3), (3, 2), {"before": (0, 1), "extra": (0, 1)}),
    "one column, dilated": ((1, 8, 6), (7, 1), (3, 3), (2, 3), {"dilation": 2}),
    "stride beyond the window": ((1, 4, 8), (3, 4), (2, 1), (3, 2), {}),
    "more rows after": ((1, 4, 8), (4, 4), (3, 3), (2, 2), {"before": (1, 1), "extra": (1, 1)}),
    "one stride": ((1, 4, 17), (6, 5), (3, 3), (1, 2), {"before": (1, 1)}),
    "1-D": ((2, 6, 10), (13,), (4,), (3,), {"before": (1,)}),
    "3-D": ((1, 4, 8), (2, 3, 4), (2, 3, 2), (2, 1, 2), {}),
    "groups": ((1, 8, 12), (5, 4), (3, 4), (2, 2), {"groups": 4}),
    "groups of few channels": ((1, 6, 6), (5, 4), (3, 4), (2, 2), {"groups": 6}),
    "groups of vectors": ((1, 6, 32), (5, 4), (3, 4), (2, 2), {"groups": 2}),
    "groups of no whole vectors": ((2, 6, 21), (4, 9), (5, 3), (3, 3), {"groups": 3, "before": (2, 0)}),
    "one channel a group": ((1, 24, 24), (7, 7), (4, 4), (2, 2), {"groups": 24, "before": (1, 1)}),
    "rows of two": ((2, 6, 3), (17, 2), (7, 1), (2, 2), {"before": (1, 0)}),
    "rows of two in groups": ((1, 16, 8), (9, 2), (3, 3), (1, 1), {"groups": 2, "before": (1, 1)}),
    "rows of two, groups of half vectors": (
        (2, 12, 24),
        (3, 2),
        (4, 4),
        (2, 2),
        {"groups": 3, "before": (1, 1)},
    ),
    "rows of two, groups of quarters": ((1, 8, 24), (2, 2), (3, 3), (2, 2), {"groups": 2, "before": (1, 1)}),
    "dilated": ((1, 4, 8), (5, 4), (3, 2), (2, 2), {"dilation": 2}),
    "dilated by less than the stride": ((2, 4, 8), (5, 4), (3, 2), (4, 6), {"dilation": 2, "before": (3, 1)}),
    "dilated by more than the stride": ((1, 4, 3), (5, 4), (3, 4), (2, 2), {"dilation": 4, "before": (1, 2)}),
    "dilated by what no stride shares": (
        (1, 4, 8),
        (5, 4),
        (4, 3),
        (2, 1),
        {"dilation": 3, "before": (2, 1), "extra": (1, 0)},
    ),
    "dilated, one axis shares": ((1, 3, 2), (5, 9), (3, 3), (2, 3), {"dilation": 2, "before": (1, 3)}),
    "dilated groups": ((1, 8, 8), (6, 7), (3, 3), (2, 2), {"dilation": 2, "groups": 2}),
    "no result receives any": (
        (1, 2, 3),
        (1, 1),
        (1, 1),
        (2, 2),
        {"dilation": 2, "before": (1, 0), "extra": (2, 0)},
    ),
}


@pytest.mark.few(26)
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("case", CASES)
def test_transposed_convolutions(case, bias):
    (n, into, outputs), size, window, stride, options = CASES[case]
    groups, dilation = options.get("groups", 1), options.get("dilation", 1)
    before = options.get("before", (0,) * len(size))
    extra = options.get("extra", (0,) * len(size))
    out = tuple(
        (s - 1) * st + (k - 1) * dilation + 1 - 2 * lo + e
        for s, st, k, lo, e in zip(size, stride, window, before, extra, strict=True)
    )
    random = np.random.default_rng(len(case))
    x = random.standard_normal((n, into, *size), np.float32)
    weights = {"w": random.standard_normal((into, outputs // groups, *window), np.float32)}
    if bias:
        weights["b"] = random.standard_normal(outputs, np.float32)
    node = helper.make_node(
        "ConvTranspose",
        ["x", *weights],
        ["y"],
        strides=stride,
        pads=[*before, *before],
        output_padding=extra,
        dilations=[dilation] * len(size),
        group=groups,
    )
    model = tiny.model([node], [tiny.tensor("x", x.shape)], [tiny.tensor("y", (n, outputs, *out))], weights)
    wanted = expected(x, weights["w"], stride, before, dilation, groups, out)
    if bias:
        wanted += weights["b"].reshape(-1, *(1,) * len(size))
    # products of bf16 pieces err as much more as they may
    for mode, allowed in (("off", 2e-6), ("auto", 1e-5 if HOST.tiles else 2e-6)):
        for threads in (1, 2, 3):
            (y,) = tilewright.compile(model, threads=threads, winograd=mode)(x)
            np.testing.assert_allclose(y, wanted, rtol=0, atol=allowed * np.abs(wanted).max())


def test_phases_compute_no_zeros():
    """A stride of two in both axes: a quarter of the products of the window over the spread input."""
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])
    w = np.zeros((64, 32, 4, 4), np.float32)
    model = tiny.model(
        [node], [tiny.tensor("x", (1, 64, 15, 15))], [tiny.tensor("y", (1, 32, 30, 30))], {"w": w}
    )
    (kernel,) = tilewright.compile(model, threads=1).explain()
    assert kernel["algorithm"] == "direct" and kernel["register_tile"][1] % 4 == 0
    assert kernel["flops"] < 1.2 * 2 * 64 * 32 * 16 * 16 * 16


@pytest.mark.parametrize(("outputs", "groups"), [(64, 64), (32, 4), (112, 16), (64, 2)])
def test_phases_of_groups_have_register_tiles(outputs, groups):
    """Vectors do not cross groups: along rows where the channels of one are no whole vectors."""
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[1] * 4, group=groups)
    w = np.zeros((64, outputs // groups, 4, 4), np.float32)
    model = tiny.model(
        [node], [tiny.tensor("x", (1, 64, 14, 14))], [tiny.tensor("y", (1, outputs, 28, 28))], {"w": w}
    )
    (kernel,) = tilewright.compile(model, threads=1).explain()
    assert kernel["register_tile"] is not None


@pytest.mark.parametrize("channels", [4, 8, 12, 16])
def test_phases_of_groups_lie_along_channels_where_rows_are_short(channels):
    """Parts of vectors along channels of a group: rows of two would leave half of the smallest part empty."""
    groups = 4
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[1] * 4, group=groups)
    w = np.zeros((64, channels, 4, 4), np.float32)
    model = tiny.model(
        [node],
        [tiny.tensor("x", (1, 64, 2, 2))],
        [tiny.tensor("y", (1, groups * channels, 4, 4))],
        {"w": w},
    )
    (kernel,) = tilewright.compile(model, threads=1).explain()
    assert kernel["register_tile"] is not None
    assert channels % kernel["register_tile"][1] == 0


@pytest.mark.parametrize(("stride", "dilation", "share"), [(2, 2, 1), (4, 2, 1), (2, 4, 1), (3, 2, 2)])
def test_dilation_has_register_tiles(stride, dilation, share):
    """No more products than taps meet elements where strides and dilations share what they are."""
    strides, dilations, out = [stride] * 2, [dilation] * 2, 13 * stride + 2 * dilation + 1
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=strides, dilations=dilations)
    w = np.zeros((64, 32, 3, 3), np.float32)
    model = tiny.model(
        [node], [tiny.tensor("x", (1, 64, 14, 14))], [tiny.tensor("y", (1, 32, out, out))], {"w": w}
    )
    (kernel,) = tilewright.compile(model, threads=1).explain()
    assert kernel["register_tile"] is not None
    # borders of zeros are added up, too, and a result of a stride's phase has taps of its own number
    assert kernel["flops"] < 4 * share**2 * 2 * 64 * 32 * 9 * 14 * 14


def test_taps_of_one_pixel_are_a_product_of_matrices():
    """All weights once, whose taps are columns: by phases it took a hundred times as long."""
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    weights = {"w": np.ones((100, 64, 4, 4), np.float32)}
    model = tiny.model([node], [tiny.tensor("x", (1, 100, 1, 1))], [tiny.tensor("y", (1, 64, 4, 4))], weights)
    (kernel,) = tilewright.compile(model, threads=1).explain()
    assert kernel["flops"] == 2 * 100 * 64 * 16
    assert kernel["output_layouts"] == {"gemm": "plain"}


def test_weights_of_a_group_that_lie_together_are_no_panel():
    """Tiles of as many vectors as registers hold: a group of 1,024 channels was one tile, which none do."""
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], group=4)
    weights = {"w": np.ones((32, 1024, 1, 1), np.float32)}
    model = tiny.model(
        [node], [tiny.tensor("x", (1, 32, 1, 3))], [tiny.tensor("y", (1, 4096, 1, 3))], weights
    )
    (kernel,) = tilewright.compile(model, threads=1).explain()
    rows, columns = kernel["register_tile"]
    assert rows * columns <= HOST.vector_registers * HOST.lanes(F32)


def test_rows_of_two_have_register_tiles():
    """Half of the smallest part of a vector: sums made one by one took three times as long."""
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 0, 1, 0])
    w = np.zeros((24, 3, 7, 1), np.float32)
    model = tiny.model(
        [node], [tiny.tensor("x", (1, 24, 17, 2))], [tiny.tensor("y", (1, 3, 37, 3))], {"w": w}
    )
    (kernel,) = tilewright.compile(model, threads=1).explain()
    assert (kernel["register_tile"] is not None) == (HOST.lanes(F32) > 4)


def test_phases_are_put_in_order_without_gathers():
    """Results lie as they will, but for the channels: transposed in registers, part by part."""
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    w = np.zeros((64, 32, 2, 2), np.float32)
    model = tiny.model(
        [node], [tiny.tensor("x", (1, 64, 12, 12))], [tiny.tensor("y", (1, 32, 24, 24))], {"w": w}
    )
    (unit,) = default_units(model)
    s = default_schedule(unit.program, Machine(HOST, 1), accuracy=EXACT)
    assert "alloc convtranspose_phases_local: " in str(s)
    text = Native(s.func).text.text
    assert "shufflevector" in text and "gather" not in text


def test_phases_that_read_more_than_the_caches_hold_are_put_in_order_at_the_end(monkeypatch):
    monkeypatch.setattr(contraction, "BLOCK_SHARE", 0.0)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    random = np.random.default_rng(5)
    x, w = (random.standard_normal(shape, np.float32) for shape in ((1, 64, 12, 12), (64, 32, 2, 2)))
    model = tiny.model([node], [tiny.tensor("x", x.shape)], [tiny.tensor("y", (1, 32, 24, 24))], {"w": w})
    (unit,) = default_units(model)
    s = default_schedule(unit.program, Machine(HOST, 1), accuracy=EXACT)
    assert "convtranspose_phases_local" not in str(s)
    (y,) = tilewright.compile(model, threads=1, accuracy="exact")(x)
    wanted = expected(x, w, (2, 2), (0, 0), 1, 1, (24, 24))
    np.testing.assert_allclose(y, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def default_units(model):
    maker = UnitMaker(fuse(simplify(import_onnx(model))))
    return make_units(maker, choose_graph_plan(maker, HOST))
