"""Which nodes come before which, as bit sets: what fusion asks to keep the groups free of cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.graph.model import Graph


@dataclass(frozen=True, slots=True)
class Ancestors:
    """For every node, by its position in the graph, the set of positions it depends on, as a bit mask."""

    masks: tuple[int, ...]
    makers: Mapping[str, int]

    @classmethod
    def of(cls, graph: Graph) -> Ancestors:
        """The ancestors of all nodes of a graph."""
        makers: dict[str, int] = {}
        masks: list[int] = []
        for at, node in enumerate(graph.nodes):
            mask = 0
            for value in node.used_inputs:
                maker = makers.get(value)
                if maker is not None:
                    mask |= masks[maker] | 1 << maker
            masks.append(mask)
            for value in node.used_outputs:
                makers[value] = at
        return cls(tuple(masks), MappingProxyType(makers))

    def leaves_and_returns(self, region: Iterable[int], inputs: Iterable[str]) -> bool:
        """Whether a value among `inputs` is made outside of the region from something made inside of it."""
        inside = 0
        for at in region:
            inside |= 1 << at
        for value in inputs:
            maker = self.makers.get(value)
            if maker is not None and not inside >> maker & 1 and self.masks[maker] & inside:
                return True
        return False
