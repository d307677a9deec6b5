"""Definitions: attributes, static inputs, refusals, and what the registry knows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.graph import REGISTRY, Kind, Node, TensorType, is_supported, nodes_program, typed_graph
from tilewright.graph.registry import Context
from tilewright.support import ModelError, ResourceError, UnsupportedOperatorError


def _context(**attributes: object) -> Context:
    node = Node("Test", ("x",), ("y",), attributes, name="n", version=21)
    return Context(node, (TensorType("f32", (2, 3)),), (None,), max_bytes=100)


def test_attributes_are_typed() -> None:
    ctx = _context(axis=-1, alpha=0.5, mode="edge", pads=(1, 2))
    assert ctx.axis("axis", 3) == 2
    assert (ctx.real("alpha"), ctx.text("mode"), ctx.integers("pads")) == (0.5, "edge", (1, 2))
    assert ctx.integer("absent", 7) == 7
    for wrong in (lambda: ctx.integer("alpha"), lambda: ctx.text("axis"), lambda: ctx.integers("mode")):
        with pytest.raises(ModelError, match=r"'n'.*must be"):
            wrong()
    with pytest.raises(ModelError, match="absent is missing"):
        ctx.integer("absent")
    with pytest.raises(ModelError, match="axis -1 is out of range for rank 0"):
        ctx.axis("axis", 0)


def test_what_is_missing_or_too_large_is_refused() -> None:
    ctx = _context()
    with pytest.raises(UnsupportedOperatorError, match=r"input 0 \('x'\) must be known"):
        ctx.static(0)
    with pytest.raises(ModelError, match="input 3 is missing"):
        ctx.type(3)
    with pytest.raises(ResourceError, match=r"'n'.*101 B"):
        ctx.limit_bytes(101)


def test_the_registry_is_read_only_and_knows_its_operators() -> None:
    assert len(REGISTRY) >= 160
    assert is_supported("", "Conv")
    assert is_supported("ai.onnx", "Conv")
    assert is_supported("", "If")
    assert not is_supported("com.example", "Conv")
    assert not hasattr(REGISTRY, "__setitem__")
    assert REGISTRY["", "Conv"].kind is Kind.CONTRACTION
    assert (REGISTRY["", "Conv"].min_inputs, REGISTRY["", "Conv"].max_inputs) == (2, 3)
    assert REGISTRY["", "Concat"].max_inputs is None


def _program_text(op: str, shapes: Sequence[tuple[int, ...]], **attributes: object) -> str:
    names = [f"v{at}" for at in range(len(shapes))]
    types = {name: TensorType("f32", shape) for name, shape in zip(names, shapes, strict=True)}
    node = Node(op, tuple(names), ("y",), attributes, version=21)
    graph = typed_graph(types, ["y"], [node], {})
    program = nodes_program([node], graph.types, {}, ["y"]).program
    return "\n".join(str(stage.body) for stage in program.stages)


def test_index_arithmetic_is_no_more_than_needed() -> None:
    # Axes that stay are not divided and multiplied again, and padding that is not there is not tested.
    flat = _program_text("Flatten", [(4, 2, 3)], axis=2)
    assert "i//2" in flat
    assert "j)//" not in flat
    text = _program_text("Conv", [(1, 4, 6, 6), (8, 4, 1, 1)])
    assert "Select" not in text
    assert "Select" in _program_text("Conv", [(1, 4, 6, 6), (8, 4, 3, 3)], pads=(1, 1, 1, 1))


def test_a_depthwise_convolution_has_no_loop_over_channels() -> None:
    types = {"x": TensorType("f32", (1, 8, 6, 6)), "w": TensorType("f32", (8, 1, 3, 3))}
    node = Node("Conv", ("x", "w"), ("y",), {"group": 8}, version=21)
    stage = nodes_program([node], types | {"y": TensorType("f32", (1, 8, 4, 4))}, {}, ["y"]).program.stages[0]
    assert [it.name for it in stage.iters] == ["n", "oc", "oh", "ow", "kh", "kw"]


def test_constants_of_one_element_are_part_of_the_program() -> None:
    types = {"x": TensorType("f32", (4,)), "c": TensorType("f32", (1, 1)), "y": TensorType("f32", (1, 4))}
    constants = {"c": np.full((1, 1), 2.5, np.float32)}
    made = nodes_program([Node("Mul", ("x", "c"), ("y",))], types, constants, ["y"])
    assert list(made.inputs.values()) == ["x"]
    assert "2.5" in str(made.program.stages[0].body)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Node("Dropout", ("x", "half", "yes"), ("y",), version=21), "training mode"),
        (Node("Reshape", ("x", "x"), ("y",), version=21), "must be known"),
        (
            Node("BatchNormalization", ("x", "v", "v", "v", "v"), ("y",), {"training_mode": 1}, version=21),
            "training",
        ),
    ],
)
def test_what_cannot_be_compiled_says_why(node: Node, reason: str) -> None:
    constants = {"half": np.array(0.5, np.float32), "yes": np.array(True), "v": np.ones(3, np.float32)}
    with pytest.raises(UnsupportedOperatorError, match=reason):
        typed_graph({"x": TensorType("f32", (2, 3))}, ["y"], [node], constants)
