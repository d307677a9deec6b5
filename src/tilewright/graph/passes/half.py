"""Half precision as what it is stored in: models of f16 compute in f32.

    before                          after
    y = Conv(x, w)                  a = Cast(x)                 inputs of the model, once
                                    b = Conv(a, w in f32)
                                    y = Cast(b)                 outputs of the model

Most CPUs have no arithmetic of f16: each operation would be two conversions and one of f32, and its result
rounded. Numbers between nodes keep the digits that rounding would take, so that results are nearer to exact
ones; where they exceed the range of f16 on the way they do not become infinite. A conversion that the model
writes itself rounds: ``Cast`` from another type to f16 stays, and is widened behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from tilewright.graph.model import Attribute, Graph, Node, TensorType
from tilewright.graph.rewrite import Rewriter
from tilewright.graph.unroll import VERSION

_HALF: Final = "f16"
_WIDE: Final = "f32"
#: Attributes that name the type of a result.
_TYPES: Final = ("to", "dtype", "output_dtype")


@dataclass(frozen=True, slots=True)
class WidenHalf:
    """Compute what is f16 in f32, from the model's inputs to its outputs."""

    name: ClassVar[str] = "widen-half"

    def __call__(self, graph: Graph) -> Graph:
        """Change every node; a graph that looks at the bits of numbers stays as it is."""
        computed = [value for node in graph.nodes for value in node.used_outputs if _half(graph, value)]
        if not computed or any(node.op == "BitCast" for node in graph.nodes):
            return graph
        rewriter = Rewriter(graph)
        for value in graph.inputs:
            if _half(graph, value) and graph.consumers(value):
                _cast(rewriter, value, rewriter.fresh(f"{value}.f32"), _WIDE)
        for value, array in graph.constants.items():
            if _half(graph, value) and graph.consumers(value):
                rewriter.alias(value, rewriter.constant(array.astype(np.float32), f"{value}.f32"))
        renamed: dict[str, str] = {}
        for node in graph.nodes:
            now = rewriter.current(node)
            if _rounds(graph, node):
                (value,) = node.outputs
                made = replace(now, op="Cast", inputs=now.inputs[:1], attributes={"to": _HALF})
                rewriter.emit(made, [graph.types[value]])
                if graph.consumers(value):
                    _cast(rewriter, value, rewriter.fresh(f"{value}.f32"), _WIDE)
                continue
            outputs = []
            for value in node.outputs:
                if value and _half(graph, value):
                    renamed[value] = rewriter.fresh(f"{value}.f32")
                    outputs.append(renamed[value])
                else:
                    outputs.append(value)
            types = [graph.types[value] if value else TensorType(_WIDE, ()) for value in node.outputs]
            wide = [replace(t, dtype=_WIDE) if t.dtype == _HALF else t for t in types]
            made = replace(now, outputs=tuple(outputs), attributes=_widened(node.attributes))
            rewriter.emit(made, wide)
            for value in node.used_outputs:
                if value in renamed:
                    rewriter.alias(value, renamed[value])
        return _narrowed(rewriter)


def _half(graph: Graph, value: str) -> bool:
    return graph.types[value].dtype == _HALF


def _rounds(graph: Graph, node: Node) -> bool:
    """Whether the model itself asks for numbers of another type in half precision."""
    conversion = node.op in ("Cast", "CastLike") and not node.domain
    return conversion and _half(graph, node.outputs[0]) and not _half(graph, node.inputs[0])


def _widened(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {name: _WIDE if name in _TYPES and value == _HALF else value for name, value in attributes.items()}


def _cast(rewriter: Rewriter, value: str, made: str, dtype: str) -> None:
    type_ = replace(rewriter.types[value], dtype=dtype)
    rewriter.emit(Node("Cast", (value,), (made,), {"to": dtype}, version=VERSION), [type_])
    rewriter.alias(value, made)


def _narrowed(rewriter: Rewriter) -> Graph:
    """The new graph, whose outputs are f16 where they were."""
    graph = rewriter.graph
    for value in dict.fromkeys(graph.outputs):
        if _half(graph, value):
            now = rewriter.resolve(value)
            if rewriter.types[now].dtype == _WIDE:
                made = rewriter.fresh(f"{value}.f16")
                _cast(rewriter, now, made, _HALF)
    return rewriter.finish()
