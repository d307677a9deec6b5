"""Importing ONNX models: the reference architectures, sizes left open, fixed inputs, functions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from model_cases import feeds_of
from tilewright.frontend import import_onnx, zoo
from tilewright.graph import TensorType, UndeterminedError, evaluate_graph
from tilewright.support import InputError, ModelError


@pytest.mark.parametrize("name", sorted(zoo.SMALL))
def test_the_reference_architectures_compute_what_onnx_says(name: str) -> None:
    model = zoo.SMALL[name]()
    graph = import_onnx(model.SerializeToString())
    feeds = feeds_of(model)
    found = evaluate_graph(graph, feeds)
    expected = ReferenceEvaluator(model).run(None, feeds)
    for value, array in zip(model.graph.output, expected, strict=True):
        # The two evaluators add in different orders, and so differ by a few roundings a layer.
        np.testing.assert_allclose(found[value.name], array, rtol=2e-4, atol=2e-4)


def _model(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], rank: int = 2, **kwargs: object
) -> onnx.ModelProto:
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)
    graph = helper.make_graph(nodes, "g", inputs, [output], **kwargs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _input(name: str, *shape: int | str | None, elem: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem, list(shape))


def _node(op: str, values: str) -> onnx.NodeProto:
    """A node with what it reads and, at the end, what it makes."""
    *inputs, output = values.split()
    return helper.make_node(op, inputs, [output])


def test_open_sizes_are_settled_by_name_or_by_shape() -> None:
    model = _model([helper.make_node("Relu", ["x"], ["y"])], [_input("x", "batch", 3, None)], rank=3)
    with pytest.raises(InputError, match=r"'x': axis 0 \('batch'\), axis 2"):
        import_onnx(model)
    assert import_onnx(model, shapes={"x": (2, 3, 5)}).types["y"] == TensorType("f32", (2, 3, 5))
    assert import_onnx(model, shapes={"batch": 4, "x[2]": 7}).types["y"].shape == (4, 3, 7)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (2, 4, 5)}, "does not fit the input 'x'"),
        ({"x": (2, 3)}, "does not fit the input 'x'"),
        ({"X": (2, 3, 5)}, "'X', which the model does not have"),
        ({"bach": 2}, "'bach', which the model does not have"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, object], message: str) -> None:
    model = _model([helper.make_node("Relu", ["x"], ["y"])], [_input("x", "batch", 3, 5)], rank=3)
    with pytest.raises(InputError, match=message):
        import_onnx(model, shapes=shapes)


def test_an_input_may_be_fixed_when_compiling() -> None:
    inputs = [_input("x", 2, 6), _input("shape", 2, elem=TensorProto.INT64)]
    model = _model([helper.make_node("Reshape", ["x", "shape"], ["y"])], inputs)
    with pytest.raises(UndeterminedError, match="'shape'"):
        import_onnx(model)
    graph = import_onnx(model, constants={"shape": np.array([3, 4])})
    assert graph.inputs == ("x",)
    assert graph.types["y"].shape == (3, 4)
    with pytest.raises(InputError, match="'shape', which is i64"):
        import_onnx(model, constants={"shape": np.array([3, 4], np.int32)})


def test_old_models_list_their_weights_as_inputs() -> None:
    weight = onnx.numpy_helper.from_array(np.full(2000, 3, np.float32), "w")
    inputs = [_input("x", 2000), _input("w", 2000)]
    model = _model([helper.make_node("Mul", ["x", "w"], ["y"])], inputs, rank=1, initializer=[weight])
    graph = import_onnx(model)
    assert graph.inputs == ("x",)
    assert evaluate_graph(graph, {"x": np.ones(2000, np.float32)})["y"].max() == 3


def test_local_functions_and_composed_operators_are_expanded() -> None:
    body = helper.make_function(
        "custom",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 21)],
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["t"], domain="custom"),
        helper.make_node("SoftmaxCrossEntropyLoss", ["t", "labels"], ["y"]),
    ]
    model = _model(nodes, [_input("x", 4, 5), _input("labels", 4, elem=TensorProto.INT64)], rank=0)
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("custom", 1))
    graph = import_onnx(model)
    feeds = {"x": np.eye(4, 5, dtype=np.float32), "labels": np.array([1, 2, 3, 4])}
    expected = ReferenceEvaluator(model).run(None, feeds)[0]
    np.testing.assert_allclose(evaluate_graph(graph, feeds)["y"], expected, rtol=1e-5)


def test_a_declared_shape_that_is_wrong_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    model = _model([helper.make_node("Relu", ["x"], ["y"])], [_input("x", 2, 3)])
    model.graph.output[0].CopyFrom(_input("y", 2, 4))
    assert import_onnx(model).types["y"].shape == (2, 3)
    assert "'y' is declared as f32[2, 4], but is f32[2, 3]" in caplog.text


def test_a_declared_element_type_that_is_wrong_is_refused() -> None:
    model = _model([helper.make_node("Relu", ["x"], ["y"])], [_input("x", 2, 3)])
    model.graph.output[0].CopyFrom(_input("y", 2, 3, elem=TensorProto.DOUBLE))
    with pytest.raises(ModelError, match=r"'y' is declared as f64\[2, 3\], but is f32\[2, 3\]"):
        import_onnx(model)


def test_outputs_need_no_type_and_values_none_that_is_right() -> None:
    model = _model([helper.make_node("Relu", ["x"], ["y"])], [_input("x", 2, 3)])
    model.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="y"))
    model.graph.value_info.append(_input("x", 7))
    assert import_onnx(model).types["y"] == TensorType("f32", (2, 3))


def test_nodes_may_stand_in_any_order() -> None:
    branch = helper.make_graph(
        [helper.make_node("Neg", ["s"], ["t"]), helper.make_node("Exp", ["a"], ["s"])],
        "branch",
        [],
        [onnx.ValueInfoProto(name="t")],
    )
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.array(True))),
    ]
    branch.node.sort(key=lambda node: node.op_type, reverse=True)
    model = _model(nodes, [_input("x", 2, 3)])
    given = model.SerializeToString()
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(evaluate_graph(import_onnx(model), {"x": x})["y"], -np.exp(x), rtol=1e-6)
    assert model.SerializeToString() == given, "the caller's model is left as it is"


def test_nodes_that_read_one_another_in_a_circle_are_refused() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["y"]), helper.make_node("Relu", ["y"], ["b"])]
    with pytest.raises(ModelError, match="sorted"):
        import_onnx(_model(nodes, [_input("x", 2, 3)]))


def _branch(node: onnx.NodeProto, *values: tuple[str, float]) -> onnx.GraphProto:
    """A branch of one node with constants of its own."""
    constants = [onnx.numpy_helper.from_array(np.float32(number), name) for name, number in values]
    return helper.make_graph([node], "b", [], [_input(node.output[0], 2, 3)], constants)


def _if(condition: str, output: str, then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.NodeProto:
    return helper.make_node("If", [condition], [output], then_branch=then, else_branch=other)


def _branched(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    """A model over `x` of nodes that read `yes`, `no` and `k`, which is 100."""
    known = [("yes", np.array(True)), ("no", np.array(False)), ("k", np.float32(100))]
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in known]
    return _model(list(nodes), [_input("x", 2, 3)], initializer=constants)


SCOPES = {
    "two constants of one name": (
        [
            _if(
                "yes", "a", _branch(_node("Mul", "x k t"), ("k", 2)), _branch(_node("Mul", "x k e"), ("k", 9))
            ),
            _if(
                "yes", "b", _branch(_node("Mul", "x k u"), ("k", 3)), _branch(_node("Mul", "x k v"), ("k", 9))
            ),
            _node("Add", "a b y"),
        ],
        lambda x: 5 * x,
    ),
    "a constant for a branch alone": (
        [
            _if("yes", "a", _branch(_node("Mul", "x k t"), ("k", 5)), _branch(_node("Neg", "x t"))),
            _node("Add", "a k y"),
        ],
        lambda x: 5 * x + 100,
    ),
    "results of one name": (
        [
            _if("yes", "a", _branch(_node("Neg", "x t")), _branch(_node("Exp", "x t"))),
            _if("no", "b", _branch(_node("Exp", "x t")), _branch(_node("Add", "x a t"))),
            _node("Add", "a b y"),
        ],
        lambda x: -x,
    ),
    "composed operators of one name": (
        [_if("yes", "y", _branch(_node("HardSwish", "x t")), _branch(_node("Mish", "x t")))],
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    ),
    "a branch in a branch": (
        [
            _if(
                "no",
                "a",
                _branch(_node("Neg", "x t")),
                _branch(
                    _if("yes", "t", _branch(_node("Mul", "x k u"), ("k", 7)), _branch(_node("Neg", "x u")))
                ),
            ),
            _node("Add", "a k y"),
        ],
        lambda x: 7 * x + 100,
    ),
}


@pytest.mark.parametrize("case", SCOPES)
def test_names_in_branches_are_their_own(case: str) -> None:
    nodes, expected = SCOPES[case]
    x = np.linspace(-2, 3, 6, dtype=np.float32).reshape(2, 3)
    found = evaluate_graph(import_onnx(_branched(*nodes)), {"x": x})["y"]
    np.testing.assert_allclose(found, expected(x), rtol=1e-6)


def test_many_branches_within_branches() -> None:
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["r"])], "b", [], [_input("r", 2, 3)])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["n"])], "b", [], [_input("n", 2, 3)])
    for depth in range(24):
        node = helper.make_node("If", ["c"], [f"r{depth}"], then_branch=inner, else_branch=other)
        inner = helper.make_graph([node], "b", [], [_input(f"r{depth}", 2, 3)])
    last = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other)
    condition = onnx.numpy_helper.from_array(np.array(True), "c")
    graph = import_onnx(_model([last], [_input("x", 2, 3)], initializer=[condition]).SerializeToString())
    assert [node.op for node in graph.nodes if node.op != "Identity"] == ["Relu"]
