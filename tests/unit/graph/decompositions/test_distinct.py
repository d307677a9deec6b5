"""Distinct elements of what only a run knows, and scans whose length only a run knows: beside numpy."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests import onnx_models

import tilewright
from tilewright.support import InputError, ModelError

node, info = helper.make_node, helper.make_tensor_value_info
INT, FLOAT = TensorProto.INT64, TensorProto.FLOAT


def distinct(x, axis, in_order):
    """What the standard says of numpy's function."""
    y, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not in_order:
        order = np.argsort(first)
        y, first, counts = np.take(y, order, axis=axis or 0), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return y, first, inverse, counts


@pytest.mark.few(2)
@pytest.mark.parametrize("in_order", [1, 0])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_distinct_elements_are_as_many_as_data_says(axis, in_order):
    names, dims = ["y", "first", "inverse", "counts"], (3, "n") if axis == -1 else ("n", 3)
    attributes = {} if axis is None else {"axis": axis}
    unique = node("Unique", ["x"], names, sorted=in_order, **attributes)
    outputs = [info(name, INT if at else FLOAT, None) for at, name in enumerate(names)]
    made = tilewright.compile(
        onnx_models.model([unique], [onnx_models.tensor("x", dims)], outputs, {}), dynamic={"n": (0, 300)}
    )
    rng = np.random.default_rng(seed := 17)
    for n in (1, 0, 5, 300):
        x = rng.integers(-2, 2, [n if d == "n" else d for d in dims]).astype(np.float32)
        if axis is None and n == 300:
            x[::7] = np.nan
        for got, want in zip(made(x), distinct(x, axis, in_order), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}, n {n}")
    assert made.compilations == 0


def test_slices_of_many_elements_are_compiled_for_what_they_hold():
    unique = node("Unique", ["x"], ["y"], axis=0)
    source = onnx_models.model([unique], [onnx_models.tensor("x", ("n", 65))], [info("y", FLOAT, None)], {})
    made = tilewright.compile(source, dynamic={"n": (1, 9)})
    np.testing.assert_array_equal(made(np.ones((3, 65), np.float32))[0], np.ones((1, 65)))
    assert made.compilations == 1


def scan(backwards, axis, out_axis, out_backwards):
    """Running sums of the rows, or columns, and what each added to them."""
    body = helper.make_graph(
        [node("Add", ["s", "v"], ["t"]), node("Mul", ["t", "v"], ["u"])],
        "body",
        [info("s", FLOAT, None), info("v", FLOAT, None)],
        [info("t", FLOAT, None), info("u", FLOAT, None)],
    )
    attributes = {
        "num_scan_inputs": 1, "scan_input_axes": [axis], "scan_input_directions": [backwards],
        "scan_output_axes": [out_axis], "scan_output_directions": [out_backwards],
    }  # fmt: skip
    nodes = [
        node("Scan", ["start", "x"], ["last", "all"], body=body, **attributes),
        node("Neg", ["all"], ["y"]),
    ]
    dims = ("n", "m") if axis == 0 else ("m", "n")
    inputs = [onnx_models.tensor("start", ("m",)), onnx_models.tensor("x", dims)]
    return onnx_models.model(nodes, inputs, [info("last", FLOAT, None), info("y", FLOAT, None)], {})


@pytest.mark.parametrize("ways", [(0, 0, 0, 0), (1, 1, 1, 0), (1, 0, -1, 1)])
def test_scans_of_any_length(ways, tmp_path):
    source = scan(*ways)
    made = tilewright.compile(source, threads=1, dynamic={"n": (0, 40), "m": (1, 9)})
    made.save(tmp_path / "it.tw")
    loaded = tilewright.load(tmp_path / "it.tw")
    rng = np.random.default_rng(5)
    for n, m in ((4, 3), (1, 9), (0, 5), (40, 1)):
        start = rng.standard_normal(m).astype(np.float32)
        x = rng.standard_normal((n, m) if ways[1] == 0 else (m, n)).astype(np.float32)
        rows = x if ways[1] == 0 else x.T
        sums = start + np.cumsum(rows[::-1] if ways[0] else rows, axis=0)
        made_of = sums * (rows[::-1] if ways[0] else rows)
        wanted = np.moveaxis(made_of[::-1] if ways[3] else made_of, 0, ways[2])
        last, y = made(start, x)
        assert y.shape == wanted.shape
        np.testing.assert_allclose(y, -wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(last, sums[-1] if n else start, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(loaded(start, x)[1], y)
    assert made.compilations == 0


def test_scans_of_unlike_lengths_are_refused():
    body = helper.make_graph(
        [node("Add", ["v", "w"], ["u"])],
        "body",
        [info("v", FLOAT, None), info("w", FLOAT, None)],
        [info("u", FLOAT, None)],
    )
    inputs = [onnx_models.tensor("x", ("n",)), onnx_models.tensor("y", (5,))]
    source = onnx_models.model(
        [node("Scan", ["x", "y"], ["z"], body=body, num_scan_inputs=2)], inputs, [info("z", FLOAT, None)], {}
    )
    with pytest.raises(ModelError, match=r"node 'z' .*what it scans has unlike lengths"):
        tilewright.compile(source, dynamic={"n": (1, 4)})
    with pytest.raises(ModelError, match="what it scans has unlike lengths"):
        tilewright.compile(source, shapes={"n": 6})
    made = tilewright.compile(source, dynamic={"n": (1, 9)})
    np.testing.assert_array_equal(made(np.ones(5, np.float32), np.ones(5, np.float32))[0], np.full(5, 2))
    with pytest.raises(InputError, match="the size 'n' is 4 and 5 is 5, which have to be equal"):
        made(np.ones(4, np.float32), np.ones(5, np.float32))
