"""What has sizes that a run decides, however it was read: graphs of it at any sizes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from tilewright.frontend.onnx import Shapes
from tilewright.graph import Array, Graph, ListType, TensorType
from tilewright.ir import Index


@runtime_checkable
class OpenSource(Protocol):
    """A model of open sizes: each graph of it is one at given sizes, or at expressions of those of a run."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def kinds(self) -> dict[str, TensorType | ListType]:
        """The inputs that are given at run time; open sizes are names, or expressions of names."""
        ...

    def inputs(self) -> dict[str, TensorType]:
        """Those that are tensors."""
        ...

    def graph(
        self,
        shapes: Shapes | None = None,
        constants: Mapping[str, Array] | None = None,
        open_sizes: Mapping[str, int] | None = None,
        said: Mapping[str, Index] = MappingProxyType({}),
    ) -> Graph:
        """The typed graph; ``open_sizes`` are expressions of sizes of a run, ``said`` those data says."""
        ...
