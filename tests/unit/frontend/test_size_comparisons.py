"""Which models compare their sizes, and which only seem to."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests import onnx_models
from tests.unit.driver.test_dynamic import decoder_step, encoder

from tilewright.frontend.onnx.size_comparisons import size_comparison

node = helper.make_node

#: The number of rows of ``x`` as ``n``, and its shape as ``s``.
ROWS = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"], axis=0)]
SCALED = [node("Where", ["is", "two", "one"], ["f"]), node("Mul", ["x", "f"], ["y"])]


def comparing(*nodes, odd=7):
    weights = {"zero": np.array(0, np.int64), "odd": np.array(odd, np.int64), "below": np.array(-1, np.int64)}
    weights |= {"one": np.array(3, np.float32), "two": np.array(2, np.float32)}
    tensors = [onnx_models.tensor(name, ("n", 4)) for name in ("x", "y")]
    return onnx_models.model([*ROWS, *nodes], tensors[:1], tensors[1:], weights)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Equal", ["n", "odd"], ["is"])],
        [node("Mul", ["n", "odd"], ["m"]), node("Less", ["odd", "m"], ["is"])],
        [node("Sub", ["n", "odd"], ["m"]), node("Cast", ["m"], ["is"], to=TensorProto.BOOL)],
        # below zero where there are fewer rows
        [node("Sub", ["n", "odd"], ["m"]), node("Equal", ["m", "below"], ["is"])],
        [node("Mod", ["n", "odd"], ["m"]), node("Cast", ["m"], ["is"], to=TensorProto.BOOL)],
    ],
    ids=["equal", "less", "truth", "difference", "remainder"],
)
def test_comparisons_of_sizes(nodes):
    assert size_comparison(comparing(*nodes, *SCALED).graph) is not None


def test_shapes_as_exporters_write_them_decide_nothing():
    ones = helper.make_tensor("v", TensorProto.INT64, [1], [1])
    nodes = [
        node("Shape", ["s"], ["rank"]),
        node("ConstantOfShape", ["rank"], ["ones"], value=ones),
        node("Mul", ["ones", "below"], ["unknown"]),
        node("Equal", ["s", "unknown"], ["is"]),
        node("Where", ["is", "ones", "s"], ["wanted"]),
        node("Expand", ["one", "wanted"], ["y"]),
    ]
    assert size_comparison(comparing(*nodes).graph) is None


def test_comparisons_of_data_decide_nothing():
    nodes = [node("Reshape", ["x", "s"], ["z"]), node("Less", ["z", "one"], ["is"]), *SCALED]
    assert size_comparison(comparing(*nodes).graph) is None
    assert size_comparison(encoder().graph) is None
    assert size_comparison(decoder_step().graph) is None
