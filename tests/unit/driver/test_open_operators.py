"""Operators over sizes that only a run knows: one plan, no compiler again, right at every size."""

import random
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tests import onnx_models

import tilewright
from tilewright.ir import extent

node = helper.make_node
RNG = np.random.default_rng(8)
W3 = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
INT = TensorProto.INT64


def ints(*values):
    return np.array(values, np.int64)


#: Nodes, the dimensions of the input x, and constants; sizes n from 1 to 40 and m from 1 to 9 where not said.
CASES = {
    "strided convolution": (
        [node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[1] * 4)],
        ("m", 3, "n", 17),
        {"w": W3},
    ),
    "unpadded convolution": ([node("Conv", ["x", "w"], ["y"])], (2, 3, "n", "n"), {"w": W3}),
    "padded alike": (
        [node("Conv", ["x", "w"], ["y"], strides=[2, 2], auto_pad="SAME_UPPER")],
        (1, 3, "n", "m"),
        {"w": W3},
    ),
    "transposed convolution": (
        [node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])],
        ("m", 4, "n", 5),
        {"w": W3},
    ),
    "largest of windows": (
        [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 3], strides=[2, 2], pads=[0, 1, 0, 1])],
        ("m", 2, "n", 7),
        {},
    ),
    "windows that hang over": (
        [node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2], ceil_mode=1)],
        (1, 2, "n"),
        {},
    ),
    "means of windows": (
        [node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])],
        (1, 2, "n", "m"),
        {},
    ),
    "mean of a picture": ([node("GlobalAveragePool", ["x"], ["y"])], ("m", 3, "n", "n"), {}),
    "mean of an axis": ([node("ReduceMean", ["x", "a"], ["y"], keepdims=0)], ("m", "n", 5), {"a": ints(1)}),
    "sums of all": ([node("ReduceSum", ["x"], ["y"], keepdims=0)], ("m", "n"), {}),
    "places of the largest": ([node("ArgMax", ["x"], ["y"], axis=1)], ("m", "n"), {}),
    "softmax": ([node("Softmax", ["x"], ["y"], axis=-1)], ("m", "n"), {}),
    "normalised pictures": (
        [node("InstanceNormalization", ["x", "s", "b"], ["y"])],
        ("m", 3, "n", 4),
        {"s": W3[0, :, 0, 0], "b": W3[1, :, 0, 0]},
    ),
    "groups of channels": (
        [node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)],
        (1, 4, "n", "m"),
        {"s": W3[:, 0, 0, 0], "b": W3[:, 1, 0, 0]},
    ),
    "strided slice": (
        [node("Slice", ["x", "s", "e", "a", "t"], ["y"])],
        ("m", "n"),
        {"s": ints(1), "e": ints(1 << 40), "a": ints(1), "t": ints(3)},
    ),
    "reversed": (
        [node("Slice", ["x", "s", "e", "a", "t"], ["y"])],
        ("m", "n"),
        {"s": ints(-1), "e": ints(-(1 << 40)), "a": ints(1), "t": ints(-2)},
    ),
    "all but the last": (
        [node("Slice", ["x", "s", "e", "a"], ["y"])],
        ("n", 3),
        {"s": ints(0), "e": ints(-2), "a": ints(0)},
    ),
    "halves": ([node("Split", ["x"], ["y", "z"], axis=0, num_outputs=2)], ("n", 3), {}),
    "zeros around": ([node("Pad", ["x", "p"], ["y"])], ("n", "m"), {"p": ints(1, 0, 2, 3)}),
    "mirrored": ([node("Pad", ["x", "p"], ["y"], mode="reflect")], ("n", 4), {"p": ints(1, 0, 1, 2)}),
    "repeated": ([node("Tile", ["x", "r"], ["y"])], ("n", "m"), {"r": ints(2, 3)}),
    "nearest, doubled": (
        [
            node(
                "Resize",
                ["x", "", "s"],
                ["y"],
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        ],
        (1, 2, "n", "m"),
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "linear, by a half": (
        [node("Resize", ["x", "", "s"], ["y"], mode="linear")],
        (1, 2, "n", 6),
        {"s": np.array([1, 1, 1.5, 2], np.float32)},
    ),
    "linear, to a size": (
        [
            node(
                "Resize",
                ["x", "", "", "s"],
                ["y"],
                mode="linear",
                coordinate_transformation_mode="pytorch_half_pixel",
            )
        ],
        (1, 2, "n", "m"),
        {"s": ints(1, 2, 13, 7)},
    ),
    "cubic, by corners": (
        [
            node(
                "Resize",
                ["x", "", "", "s"],
                ["y"],
                mode="cubic",
                coordinate_transformation_mode="align_corners",
            )
        ],
        (1, 1, "n", "m"),
        {"s": ints(1, 1, 11, 6)},
    ),
    "looked up": (
        [node("Gather", ["t", "i"], ["z"], axis=0), node("Add", ["x", "z"], ["y"])],
        ("n", 4),
        {"t": RNG.standard_normal((60, 4)).astype(np.float32), "i": ints(3)},
    ),
    "running sums": ([node("CumSum", ["x", "a"], ["y"])], ("m", "n"), {"a": np.array(1, np.int64)}),
    "triangle": ([node("Trilu", ["x"], ["y"], upper=0)], ("n", "m"), {}),
    "three largest": ([node("TopK", ["x", "k"], ["y", "i"], axis=1)], (2, "n"), {"k": ints(3)}),
    "flattened": ([node("Flatten", ["x"], ["y"], axis=2)], ("m", 3, "n", 2), {}),
    "depth to space": ([node("DepthToSpace", ["x"], ["y"], blocksize=2)], ("m", 8, "n", 3), {}),
    "einsum": (
        [node("Einsum", ["x", "w"], ["y"], equation="bnk,kj->bjn")],
        ("m", "n", 3),
        {"w": W3[:3, :, 0, 0]},
    ),
    "recurrence": (
        [node("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=2)],
        ("n", "m", 3),
        {"w": W3.reshape(1, -1)[:, :24].reshape(1, 8, 3), "r": W3.reshape(1, -1)[:, 24:40].reshape(1, 8, 2)},
    ),
    "backwards": (
        [node("GRU", ["x", "w", "r"], ["y", "h"], hidden_size=2, direction="reverse", linear_before_reset=1)],
        ("n", "m", 3),
        {"w": W3.reshape(1, -1)[:, :18].reshape(1, 6, 3), "r": W3.reshape(1, -1)[:, 24:36].reshape(1, 6, 2)},
    ),
    "places of a shape": (
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "one"], ["n"], axis=0),
            node("Range", ["zero", "n", "one"], ["r"]),
            node("Cast", ["r"], ["f"], to=1),
            node("Add", ["x", "f"], ["y"]),
        ],
        ("m", "n"),
        {"one": np.array(1, np.int64), "zero": np.array(0, np.int64)},
    ),
    "filled by a shape": (
        [
            node("Shape", ["x"], ["s"]),
            node("ConstantOfShape", ["s"], ["c"]),
            node("Sub", ["c", "x"], ["y"]),
        ],
        ("m", "n"),
        {},
    ),
    "a size as a number": (
        [
            node("Shape", ["x"], ["s"]),
            node("ReduceProd", ["s"], ["p"], keepdims=0),
            node("Cast", ["p"], ["f"], to=1),
            node("Sqrt", ["f"], ["q"]),
            node("Div", ["x", "q"], ["y"]),
        ],
        ("m", "n"),
        {},
    ),
    "sizes as a result": (
        [node("Shape", ["x"], ["s"]), node("Mul", ["s", "two"], ["y"])],
        ("m", "n"),
        {"two": ints(2)},
    ),
    "half of it": (
        [
            node("Shape", ["x"], ["s"], start=0, end=1),
            node("Div", ["s", "two"], ["h"]),
            node("Slice", ["x", "zero", "h"], ["y"]),
        ],
        ("n", "m"),
        {"two": ints(2), "zero": ints(0)},
    ),
    "rows and columns as one": (
        [node("Reshape", ["x", "s"], ["z"]), node("ReduceMax", ["z", "a"], ["y"])],
        ("m", "n", 4),
        {"s": ints(-1, 4), "a": ints(0)},
    ),
}
OUTPUTS = {"places of the largest": INT, "sizes as a result": INT}
#: Sizes at which a case is no model: windows, borders and axes that are too small.
LEAST = {"unpadded convolution": 3, "three largest": 3, "mirrored": 2, "windows that hang over": 2,
         "largest of windows": 2, "means of windows": 1}  # fmt: skip


def model_of(name):
    nodes, dims, weights = CASES[name]
    last = {value for each in nodes for value in each.output} - {v for each in nodes for v in each.input}
    outputs = [
        helper.make_tensor_value_info(value, INT if value == "i" else OUTPUTS.get(name, 1), None)
        for value in sorted(last)
    ]
    return onnx_models.model(nodes, [onnx_models.tensor("x", dims)], outputs, weights)


@pytest.mark.few(20)
@pytest.mark.parametrize("name", CASES)
def test_one_plan_is_right_at_every_size(name):
    least = LEAST.get(name, 1)
    dims = CASES[name][1]
    ranges = {dim: (least, 40) if dim == "n" else (1, 9) for dim in dims if isinstance(dim, str)}
    made = model_of(name)
    model = tilewright.compile(made, threads=2, dynamic=ranges)
    assert model.plans
    reference = ReferenceEvaluator(made)
    rng = random.Random(seed := random.Random(name).getrandbits(32))
    print(f"seed {seed}", file=sys.stderr)
    sizes = [{d: hi for d, (_, hi) in ranges.items()}, {d: lo for d, (lo, _) in ranges.items()}]
    sizes += [{d: rng.randint(lo, hi) for d, (lo, hi) in ranges.items()} for _ in range(8)]
    for at in sizes:
        shape = [at.get(d, d) for d in dims]
        x = np.random.default_rng(rng.getrandbits(32)).standard_normal(shape).astype(np.float32)
        wanted = reference.run(None, {"x": x})
        for got, want in zip(model(x), wanted, strict=True):
            assert got.shape == want.shape, at
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=str(at))
    assert model.compilations == 0


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["strided convolution", "linear, to a size", "recurrence", "three largest"])
def test_what_a_size_is_taken_for_decides_nothing(name, monkeypatch):
    """Plans are priced at usual sizes: with others the programs of all kernels are the same."""
    found = []
    for usual in (509, 17, 5):
        monkeypatch.setattr(extent, "TYPICAL", usual)
        model = tilewright.compile(model_of(name), threads=1, dynamic={"n": (4, 40)})
        found.append([unit.program for planned in model.plans for unit in planned.stages[0].units.units])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"mode": "linear", "antialias": 1}, "antialias by a factor that only a run knows"),
        ({"mode": "nearest", "keep_aspect_ratio_policy": "not_larger"}, "the policy not_larger for sizes"),
    ],
)
def test_what_has_no_code_for_all_sizes_is_compiled_at_each(attributes, message, caplog):
    resize = node("Resize", ["x", "", "", "s"], ["y"], **attributes)
    source = onnx_models.model(
        [resize],
        [onnx_models.tensor("x", (1, 1, "n", 8))],
        [helper.make_tensor_value_info("y", 1, None)],
        {"s": ints(1, 1, 5, 5)},
    )
    model = tilewright.compile(source, threads=1, dynamic={"n": (5, 9)})
    assert not model.plans and message in caplog.text
    for n in (6, 8, 6):
        x = RNG.standard_normal((1, 1, n, 8)).astype(np.float32)
        alone = tilewright.compile(source, threads=1, shapes={"n": n})
        np.testing.assert_array_equal(model(x)[0], alone(x)[0])
    assert model.compilations == 2
