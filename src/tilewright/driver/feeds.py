"""Inputs and outputs of a compiled model, from the values of its graph."""

from __future__ import annotations

from tilewright.graph import TensorType
from tilewright.ir import dtype_of
from tilewright.runtime import TensorInfo


def tensor_info(name: str, type_: TensorType, strides: tuple[int, ...] | None = None) -> TensorInfo:
    """The description of a value of the graph; with strides where it is no dense array."""
    return TensorInfo(name, dtype_of(type_.dtype).numpy, type_.sizes, strides)
