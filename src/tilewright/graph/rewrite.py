"""Tools for passes: sorting, renaming, removing what is not needed, replacing nodes by others."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tilewright.graph.model import Array, Graph, Node, TensorType, type_of
from tilewright.support import ModelError


def topological(nodes: Sequence[Node], available: Iterable[str]) -> tuple[Node, ...]:
    """The nodes in an order in which each value is made before it is read.

    `available` are the values that need no node. Keeps the given order wherever that is possible, so a sorted
    sequence comes back unchanged. Raises ModelError, naming a node, where there is a cycle.
    """
    ready_values = set(available)
    producer = {value: at for at, node in enumerate(nodes) for value in node.used_outputs}
    waiting: list[int] = []
    blocked: dict[int, list[int]] = {}
    ready: list[int] = []
    for at, node in enumerate(nodes):
        needs = {producer[v] for v in node.used_inputs if v not in ready_values and v in producer}
        waiting.append(len(needs))
        for need in needs:
            blocked.setdefault(need, []).append(at)
        if not needs:
            ready.append(at)
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        at = heapq.heappop(ready)
        order.append(nodes[at])
        for other in blocked.get(at, ()):
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, other)
    if len(order) != len(nodes):
        stuck = next(node for at, node in enumerate(nodes) if waiting[at] > 0)
        raise ModelError("the node's inputs depend on its own outputs", where=stuck.location)
    return tuple(order)


@dataclass(slots=True)
class Rewriter:
    """Builds the next version of a graph, node by node in topological order.

    A pass walks `graph.nodes`, looks each node up through `current`, and calls `keep`, `emit` or `alias`.
    Values it aliases are replaced in all later nodes and in the model's outputs.
    """

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    types: dict[str, TensorType] = field(init=False)
    constants: dict[str, Array] = field(init=False)
    _names: dict[str, str] = field(default_factory=dict)
    _taken: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.types = dict(self.graph.types)
        self.constants = dict(self.graph.constants)
        self._taken = set(self.types)

    def fresh(self, stem: str) -> str:
        """A value name that is not taken, starting with `stem`."""
        name, number = stem, 0
        while name in self._taken or not name:
            number += 1
            name = f"{stem}.{number}"
        self._taken.add(name)
        return name

    def resolve(self, value: str) -> str:
        """The value that stands for `value` now."""
        while value in self._names:
            value = self._names[value]
        return value

    def current(self, node: Node) -> Node:
        """The node with its inputs resolved."""
        inputs = tuple(self.resolve(value) for value in node.inputs)
        return node if inputs == node.inputs else replace(node, inputs=inputs)

    def keep(self, node: Node) -> None:
        """Take a node over, with its inputs resolved."""
        self.nodes.append(self.current(node))

    def emit(self, node: Node, types: Sequence[TensorType]) -> None:
        """Add a node whose outputs have these types (one for each output, named or not)."""
        self.nodes.append(node)
        for value, type_ in zip(node.outputs, types, strict=True):
            if value:
                self.types[value] = type_
                self._taken.add(value)

    def alias(self, old: str, new: str) -> None:
        """Let `new` stand for `old` from here on."""
        if old != new:
            self._names[old] = new

    def constant(self, array: Array, stem: str) -> str:
        """Add a constant and return its name."""
        name = self.fresh(stem)
        self.constants[name] = array
        self.types[name] = type_of(array)
        return name

    def finish(self) -> Graph:
        """The new graph, without nodes and constants that nothing needs.

        The model's outputs keep their names in `output_names`, whatever value stands for them now.
        """
        outputs = tuple(self.resolve(value) for value in self.graph.outputs)
        return without_dead_code(
            replace(
                self.graph,
                outputs=outputs,
                nodes=tuple(self.nodes),
                constants=self.constants,
                types=self.types,
            )
        )


def without_dead_code(graph: Graph) -> Graph:
    """The graph without nodes, constants and types that no output needs. Inputs stay."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(value in needed for value in node.used_outputs):
            needed.update(node.used_inputs)
            kept.append(node)
    constants = {value: array for value, array in graph.constants.items() if value in needed}
    alive = needed | set(graph.inputs) | {value for node in kept for value in node.used_outputs}
    types = {value: type_ for value, type_ in graph.types.items() if value in alive}
    if (
        len(kept) == len(graph.nodes)
        and len(constants) == len(graph.constants)
        and len(types) == len(graph.types)
    ):
        return graph
    return replace(graph, nodes=tuple(reversed(kept)), constants=constants, types=types)
