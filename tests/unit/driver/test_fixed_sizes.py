import pytest
from onnx import TensorProto, helper

from tilewright.driver.fixed_sizes import import_settled
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
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("shapes", [{"a": 5}, {"b": 5}, {"x": (5, 4)}])
def test_two_names_that_the_model_needs_to_be_equal_are(shapes):
    assert import_settled(_model(["a", 4], ["b", 4]), shapes).types["z"].shape == (5, 4)


def test_expressions_of_names_follow_from_these():
    graph = import_settled(_model(["n", "2*n"], ["2*n", "n + 3"], "MatMul"), {"n": 2})
    assert graph.types["y"].shape == (4, 5)


def test_what_does_not_follow_is_asked_for():
    with pytest.raises(InputError, match=r"the model leaves sizes open: 'y': axis 1 \('b'\)"):
        import_settled(_model(["a", 4], [4, "b"], "MatMul"), {"a": 5})


def test_nothing_follows_where_nothing_is_said():
    with pytest.raises(InputError, match="the model leaves sizes open: 'x': axis 0"):
        import_settled(_model(["a", 4], ["b", 4]))
