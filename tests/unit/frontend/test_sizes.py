import numpy as np
import pytest
from onnx import TensorProto, helper

from tilewright.frontend import import_onnx
from tilewright.support import InputError


def _model(x, y, op="Add"):
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "y"], ["z"])],
        "g",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", x), ("y", y))
        ],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "-1":
                dim.dim_value = -1
    return model


@pytest.mark.parametrize("text", ["-1", "?", None, "None"])
@pytest.mark.parametrize(
    "shapes",
    [{"x": (2, 3), "y": (3, 5)}, {"x[0]": 2, "y[1]": 5}, {"x": (2, 3), "y[1]": 5}],
    ids=["whole shapes", "places", "a shape and a place"],
)
def test_sizes_without_a_name_are_not_one_size(text, shapes):
    graph = import_onnx(_model([text, 3], [3, text], "MatMul"), shapes=shapes)
    assert graph.types["z"].shape == (2, 5)


@pytest.mark.parametrize("text", ["-1", "?"])
def test_what_is_no_name_may_stand_for_all_that_are_written_so(text):
    graph = import_onnx(_model([text, 3], [3, text], "MatMul"), shapes={text: 4})
    assert graph.types["z"].shape == (4, 4)


def test_sizes_without_a_name_that_nobody_gives_are_told_by_their_places():
    with pytest.raises(InputError, match=r"'x': axis 0 \('x\[0\]'\); 'y': axis 1 \('y\[1\]'\)"):
        import_onnx(_model([-1, 3], [3, "?"], "MatMul"))


def test_a_whole_shape_says_what_its_names_are():
    model = _model(["a", "b"], ["a", "b"])
    assert import_onnx(model, shapes={"x": (2, 3)}).types["z"].shape == (2, 3)
    fixed = {"x": np.zeros((2, 3), np.float32)}
    assert import_onnx(model, constants=fixed).types["y"].shape == (2, 3)


def test_names_are_what_is_said_of_them_whatever_shapes_say():
    """Exporters name sizes alike that are not: two whole shapes may differ."""
    model = _model(["a", 3], ["a", 3])
    assert import_onnx(model, shapes={"x": (2, 3), "y": (1, 3)}).types["z"].shape == (2, 3)
    assert import_onnx(model, shapes={"x": (2, 3), "a": 1}).types["y"].shape == (1, 3)
