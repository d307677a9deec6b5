"""What data decides of a model's course: branches and loops, each with graphs of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from tilewright.graph.model import Graph, Node, Subgraph, TensorType
from tilewright.ir import Index, Size, base_symbols


@dataclass(frozen=True, slots=True)
class Counted:
    """Sizes that data may say: what some are ``said`` to be, numbers for new ones, all symbols."""

    said: Mapping[str, Index]
    numbers: Iterator[int] = field(default_factory=count)
    symbols: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """A node that runs graphs: an `If` the first or the second, a `Loop` one while it goes on.

    An `If` may also say a number: of one of several graphs, or of none, which is the ``refusal``.

    The graph of a loop is given the number of the step, whether it goes on, and what is ``carried``, under
    its own names, ``takes``; it makes whether to go on, what is carried, then what is collected.
    """

    graphs: tuple[Graph, ...]
    takes: tuple[str, ...] = ()
    carried: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """A node on lists that a run does: an operator, its attributes that are integers, where it is."""

    op: str
    attributes: Mapping[str, int]
    where: str


def read_outside(body: Subgraph) -> dict[str, None]:
    """The values that the nodes of a body, and bodies inside of it, may read of what is around it."""
    found = dict.fromkeys(body.outputs)
    for node in body.nodes:
        found |= dict.fromkeys(node.used_inputs)
        for inner in node.attributes.values():
            if isinstance(inner, Subgraph):
                found |= read_outside(inner)
    for value in (*body.inputs, *body.constants, *_made(body.nodes)):
        found.pop(value, None)
    return found


def _made(nodes: Sequence[Node]) -> Iterable[str]:
    return (value for node in nodes for value in node.used_outputs)


def unlike(types: Sequence[TensorType], inner: frozenset[str]) -> list[bool] | None:
    """For each axis whether types differ there, or depend on ``inner`` symbols; ``None`` for other kinds."""
    first = types[0]
    if any(t.dtype != first.dtype or t.rank != first.rank for t in types):
        return None
    return [
        any(t.sizes[axis] != first.sizes[axis] for t in types) or _depends(first.sizes[axis], inner)
        for axis in range(first.rank)
    ]


def _depends(size: int, symbols: frozenset[str]) -> bool:
    return isinstance(size, Size) and not symbols.isdisjoint(base_symbols(size.index))
