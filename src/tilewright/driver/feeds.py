"""Inputs and outputs of a compiled model, from the values of its graph."""

from __future__ import annotations

from tilewright.graph import NARROW_INTEGERS, Graph
from tilewright.ir import dtype_of
from tilewright.runtime import TensorInfo


def tensor_info(
    graph: Graph, value: str, name: str = "", strides: tuple[int, ...] | None = None
) -> TensorInfo:
    """The description of a value of the graph under a name; with strides where it is no dense array."""
    type_ = graph.types[value]
    narrow = graph.narrow.get(name or value)
    dtype = dtype_of(type_.dtype).numpy if narrow is None else NARROW_INTEGERS[narrow].numpy
    texts, keys = graph.texts.get(name or value), graph.maps.get(name)
    return TensorInfo(name or value, dtype, type_.sizes, strides, texts, keys)
