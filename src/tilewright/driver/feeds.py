"""Inputs and outputs of a compiled model, from the values of its graph."""

from __future__ import annotations

from tilewright.graph import Graph
from tilewright.ir import dtype_of
from tilewright.runtime import TensorInfo


def tensor_info(
    graph: Graph, value: str, name: str = "", strides: tuple[int, ...] | None = None
) -> TensorInfo:
    """The description of a value of the graph under a name; with strides where it is no dense array."""
    type_ = graph.types[value]
    texts, keys = graph.texts.get(name or value), graph.maps.get(name)
    return TensorInfo(name or value, dtype_of(type_.dtype).numpy, type_.sizes, strides, texts, keys)
