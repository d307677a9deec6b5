"""What a pass over the graph is."""

from __future__ import annotations

from typing import Protocol

from tilewright.graph.model import Graph


class Pass(Protocol):
    """A rewriting of the graph that keeps what it computes: a frozen dataclass of the pass's options."""

    @property
    def name(self) -> str:
        """What dumps, timings and messages call it."""
        ...

    def __call__(self, graph: Graph) -> Graph:
        """The rewritten graph; the same object where nothing changes."""
        ...
