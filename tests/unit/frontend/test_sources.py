"""Models of open sizes that no file holds."""

import numpy as np
from onnx import TensorProto, helper

import tilewright
from tilewright.frontend import OpenSource, read_onnx
from tilewright.graph import Inference, Limits, Node, TensorType


class Doubled:
    """``x + x`` for vectors of any length."""

    name = "doubled"

    def kinds(self):
        return {"x": TensorType("f32", ("n",))}

    inputs = kinds

    def graph(self, shapes=None, constants=None, open_sizes=None, said=None):
        size = {**(shapes or {}), **(open_sizes or {})}["n"]
        walk = Inference({"x": TensorType("f32", (size,))}, {}, Limits(), {}, None, None)
        walk.visit(Node("Add", ("x", "x"), ("y",), {}, "y", "", 21, "y"))
        return walk.graph(["x"], ["y"])


def test_what_knows_its_graphs_is_compiled_once_for_all_sizes():
    assert isinstance(Doubled(), OpenSource)
    model = tilewright.compile(Doubled(), dynamic={"n": (1, 64)})
    for size in (3, 50):
        (found,) = model(np.ones(size, np.float32))
        assert found.tolist() == [2.0] * size
    assert model.compilations == 0
    (found,) = tilewright.compile(Doubled(), shapes={"n": 2})(np.ones(2, np.float32))
    assert found.tolist() == [2.0, 2.0]


def test_files_are_such_sources():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negated", [x], [y])
    read = read_onnx(helper.make_model(graph))
    assert isinstance(read, OpenSource) and read.name == "negated"
