"""Values that several nodes read from one copy: where the copy lies otherwise, they share its conversion.

    before                    after
    y = Conv(x, w)            x.copy = Copy(x)
    z = Conv(x, v)            y = Conv(x.copy, w)
                              z = Conv(x.copy, v)

A copy is a kernel of its own, so that a plan can give its result another layout than that of what it copies
(ALT, Sec. 4.2: a conversion operator between producer and consumers).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.graph.model import Graph, Node
from tilewright.graph.registry import OWN
from tilewright.graph.rewrite import Rewriter
from tilewright.support import ArtefactError


@dataclass(frozen=True, slots=True)
class ValueCopy:
    """A copy of ``value``, called ``name``, that some nodes read, each named by the first value it makes."""

    value: str
    name: str
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CopyValues:
    """Make copies of values, each before the first node that is to read it.

    Raises ArtefactError, naming the values, where the graph has no such value or reader.
    """

    copies: tuple[ValueCopy, ...]
    name: ClassVar[str] = "copy-values"

    def __call__(self, graph: Graph) -> Graph:
        """The graph with the copies."""
        readers = {copy: _nodes(graph, copy) for copy in self.copies}
        rewriter = Rewriter(graph)
        made: set[ValueCopy] = set()
        for node in graph.nodes:
            changed = node
            for copy in self.copies:
                if id(node) not in readers[copy]:
                    continue
                if copy not in made:
                    made.add(copy)
                    _emit(rewriter, copy)
                changed = replace(
                    changed, inputs=tuple(copy.name if v == copy.value else v for v in changed.inputs)
                )
            rewriter.keep(changed)
        return rewriter.finish() if self.copies else graph


def _nodes(graph: Graph, copy: ValueCopy) -> Collection[int]:
    """The nodes that are to read a copy."""
    found = {n.used_outputs[0]: n for n in graph.nodes if n.used_outputs and copy.value in n.inputs}
    gone = [reader for reader in copy.readers if reader not in found]
    if gone or copy.name in graph.types:
        raise ArtefactError(
            f"the plan copies {copy.value!r} for the node that makes {gone[0]!r}, which does not read it"
            if gone
            else f"the plan calls a copy {copy.name!r}, which is a value of the model",
            hint="is it the plan of another model?",
        )
    return {id(found[reader]) for reader in copy.readers}


def _emit(rewriter: Rewriter, copy: ValueCopy) -> None:
    node = Node("Copy", (copy.value,), (copy.name,), domain=OWN)
    rewriter.emit(node, [rewriter.types[copy.value]])
