"""Numbers that only a run knows, negative ones, too: beside the reference evaluator, by one plan."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tests import onnx_models

import tilewright
from tilewright.support import InputError

node, info = helper.make_node, helper.make_tensor_value_info
INT, FLOAT = TensorProto.INT64, TensorProto.FLOAT
X = np.random.default_rng(6).standard_normal((3, 4, 5)).astype(np.float32)


def compiled(op, inputs, weights=None, **attributes):
    """A model of one node; of inputs by name the shapes, and elements other than f32."""
    kinds = {name: kind if isinstance(kind[-1], tuple) else (FLOAT, kind) for name, kind in inputs.items()}
    given = [onnx_models.tensor(name, shape, kind) for name, (kind, shape) in kinds.items()]
    names = [*inputs, *(weights or {})]
    order = attributes.pop("order", names)
    kind = FLOAT if op == "OneHot" else kinds[next(iter(inputs))][0]
    made = node(op, order, ["y", "z"][: 1 + (op == "TopK")], **attributes)
    source = onnx_models.model([made], given, [info("y", kind, None)], weights or {})
    empty = any("a" in shape for _, shape in kinds.values())
    return source, tilewright.compile(source, threads=1, dynamic={"a": (0, 9)} if empty else {})


def compared(source, made, *feeds):
    reference = ReferenceEvaluator(source)
    for each in feeds:
        (wanted,) = reference.run(None, each)
        (got,) = made.run(None, each)
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert made.compilations == 0


def ints(*values):
    return np.array(values, np.int64)


FAR = np.iinfo(np.int64).max


def test_slices_from_anywhere(tmp_path):
    weights = {"axes": ints(2, 0)}
    inputs = {"x": ("a", "b", "c"), "s": (INT, (2,)), "e": (INT, (2,)), "t": (INT, (2,))}
    source, made = compiled("Slice", inputs, weights, order=["x", "s", "e", "axes", "t"])
    rng, feeds = np.random.default_rng(2), []
    for _ in range(60):
        steps = rng.choice([-3, -2, -1, 1, 2, 9], 2)
        feeds.append({"x": X, "s": rng.integers(-7, 8, 2), "e": rng.integers(-7, 8, 2), "t": steps})
        # the standard begins at the first element where numpy has none
        feeds[-1]["s"][(steps < 0) & (feeds[-1]["s"] < -3)] = 0
    feeds.append({"x": X, "s": ints(0, 2), "e": ints(FAR, -FAR), "t": ints(1, -1)})
    feeds.append({"x": X[:0], "s": ints(0, 0), "e": ints(FAR, FAR), "t": ints(1, 1)})
    compared(source, made, *feeds)
    with pytest.raises(InputError, match=r"node 'y'.* holds 1.*, which is out of range"):
        made.run(None, {"x": X, "s": ints(0, 0), "e": ints(1, 1), "t": ints(1, 0)})
    made.save(tmp_path / "it.tw")
    compared(source, tilewright.load(tmp_path / "it.tw"), *feeds[:3])


def test_rows_one_after_the_other_and_axes_of_a_run():
    inputs = {"x": ("a", "b", "c"), "s": (INT, (1,)), "e": (INT, (1,)), "axes": (INT, (1,))}
    source, made = compiled("Slice", inputs)
    feeds = [
        {"x": X, "s": ints(i), "e": ints(i + 1), "axes": ints(axis)} for i in (0, 1, -2) for axis in (0, -1)
    ]
    compared(source, made, *feeds)


@pytest.mark.parametrize("zero", [0, 1])
def test_shapes_that_leave_sizes_out(zero):
    source, made = compiled("Reshape", {"x": ("a", "b", "c"), "shape": (INT, (2,))}, allowzero=zero)
    shapes = [(12, 5), (-1, 5), (6, -1), (1, 60)] + ([] if zero else [(0, -1), (0, 20), (-1, 0)])
    feeds = [{"x": X, "shape": ints(*shape)} for shape in shapes]
    compared(source, made, *(f for f in feeds if f["shape"].tolist() != [-1, 0]))
    for wrong in ((7, 5), (7, -1), (-1, -1), (-2, 30)):
        with pytest.raises(InputError, match=r"have to be equal for node 'y'|says a size of -2"):
            made.run(None, {"x": X, "shape": ints(*wrong)})


@pytest.mark.parametrize("upper", [0, 1])
def test_diagonals_below(upper):
    source, made = compiled("Trilu", {"x": ("a", "b", "c"), "k": (INT, ())}, upper=upper)
    compared(source, made, *({"x": X, "k": np.array(k)} for k in (0, 1, -1, -3, 5, -9)))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, INT])
def test_ranges_of_data(kind):
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    source, made = compiled("Range", {"s": (kind, ()), "l": (kind, ()), "d": (kind, ())})
    cases = [(0, 5, 1), (5, -4, -2), (-3, 8, 3), (4, 4, 1), (4, 1, 1), (1, 9, 2)]
    compared(source, made, *({n: dtype.type(v) for n, v in zip("sld", case, strict=True)} for case in cases))
    with pytest.raises(InputError, match=r"node 'y'.* holds 1.*, which is out of range"):
        made.run(None, {n: dtype.type(v) for n, v in zip("sld", (0, 5, 0), strict=True)})


def test_tensors_are_expanded_as_data_says():
    source, made = compiled("Expand", {"x": (3, 1), "shape": (INT, (3,))})
    x = X[:, :1, 0]
    compared(source, made, *({"x": x, "shape": ints(*s)} for s in ((1, 1, 1), (2, 3, 4), (5, 1, 7))))
    with pytest.raises(InputError, match="has to be 3"):
        made.run(None, {"x": x, "shape": ints(1, 2, 1)})


@pytest.mark.few(3)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_borders_that_data_says(mode):
    weights = {"axes": ints(2, 0)} | ({"v": np.float32(7)} if mode == "constant" else {})
    order = ["x", "pads", "v" if mode == "constant" else "", "axes"]
    source, made = compiled(
        "Pad", {"x": ("a", "b", "c"), "pads": (INT, (4,))}, weights, order=order, mode=mode
    )
    pads = [(0, 0, 0, 0), (1, 2, 0, 1), (2, 1, 3, 2)] + (
        [(-1, 0, 2, -2), (-2, -1, -1, 0)] if mode == "constant" else []
    )
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    for each in pads:
        feeds = {"x": X, "pads": ints(*each)}
        np.testing.assert_array_equal(made.run(None, feeds)[0], session.run(None, feeds)[0])
    assert made.compilations == 0


def test_parts_and_depths_and_the_largest():
    x = X[0]
    given = [onnx_models.tensor("x", ("a", 5)), onnx_models.tensor("sizes", (2,), INT)]
    split = onnx_models.model(
        [node("Split", ["x", "sizes"], ["y", "z"], axis=1)],
        given,
        [info("y", FLOAT, None), info("z", FLOAT, None)],
        {},
    )
    made = tilewright.compile(split, threads=1, dynamic={})
    for first in (0, 2, 5):
        y, z = made(x, ints(first, 5 - first))
        np.testing.assert_array_equal(y, x[:, :first])
        np.testing.assert_array_equal(z, x[:, first:])
    with pytest.raises(InputError, match="have to be equal"):
        made(x, ints(2, 2))
    _, made = compiled("TopK", {"x": ("a", 5), "sizes": (INT, (1,))})
    for k in (0, 1, 3, 5):
        np.testing.assert_array_equal(made(x, ints(k))[0], -np.sort(-x, 1)[:, :k])
    with pytest.raises(InputError, match="says a size of 6, which is not from 0 to 5"):
        made(x, ints(6))
    weights = {"values": np.array([-1, 2], np.float32)}
    _, made = compiled("OneHot", {"i": (INT, ("n",)), "depth": (FLOAT, ())}, weights)
    (got,) = made(ints(0, 2, -1), np.float32(4))
    np.testing.assert_array_equal(got, np.where(np.eye(4)[[0, 2, 3]] == 1, 2, -1))
    assert made.compilations == 0


def test_places_that_are_cut_out_of_others():
    """Rows from one offset to the next, as exports of EmbeddingBag take them."""
    nodes = [
        node("Add", ["i", "one"], ["j"]),
        node("Slice", ["offsets", "i", "j"], ["start"]),
        node("Add", ["j", "one"], ["k"]),
        node("Slice", ["offsets", "j", "k"], ["end"]),
        node("Slice", ["x", "start", "end"], ["y"]),
    ]
    given = [("x", ("n", 3), FLOAT), ("offsets", ("m",), INT), ("i", (1,), INT)]
    inputs = [onnx_models.tensor(name, shape, kind) for name, shape, kind in given]
    source = onnx_models.model(nodes, inputs, [info("y", FLOAT, None)], {"one": ints(1)})
    made = tilewright.compile(source, threads=1, dynamic={})
    feeds = {"x": X.reshape(-1, 3), "offsets": ints(0, 4, 4, 20)}
    compared(source, made, *({**feeds, "i": ints(i)} for i in range(3)))
    assert str(made.plans[0].stages[-1].steps.graph.types["y"].shape[1]) == "3"
