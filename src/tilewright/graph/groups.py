"""Fusion groups and partitions of a graph into them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from tilewright.graph.alike import Key, group_key
from tilewright.graph.model import Graph, Node
from tilewright.graph.program import Build, NodesProgram, nodes_program
from tilewright.graph.registry import Kind

#: A kernel's name lists at most so many characters of operators.
NAME_LENGTH: Final = 48


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Nodes that one kernel computes, in topological order, and how.

    `inputs` are the values it reads: the model's inputs, constants, other groups' outputs, and views of
    these. Constants of one element are part of the program and not listed. `outputs` are the values it
    makes, `joints` those between groups that were joined. `stem` is a legal identifier that says which
    operators are in it, and `number` the place of the first in the graph: together they are unique.
    """

    stem: str
    number: int
    kind: Kind
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    how: Build = field(default_factory=Build)
    joints: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A name of its own in the graph."""
        return f"{self.stem}_{self.number}"

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators, in order, those that are only read through included."""
        return tuple(node.op for node in self.nodes)


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The groups of a graph in an order in which they can run, and the views.

    `views` maps each view's output to the value whose buffer it is (never a view itself). A model's output
    may be a view, an input or a constant: nothing makes it, whoever runs the groups copies it.
    """

    graph: Graph
    groups: tuple[Group, ...]
    views: Mapping[str, str]
    _programs: dict[tuple[str, Key], tuple[NodesProgram, tuple[str, ...]]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "views", MappingProxyType(dict(self.views)))

    def buffer(self, value: str) -> str:
        """The value whose buffer holds `value`."""
        return self.views.get(value, value)

    def program(self, group: Group) -> NodesProgram:
        """The program that computes a group, called by its stem: equal groups have equal programs."""
        graph = self.graph
        how = group.how
        renamed = [(value,) for pair in how.renamed for value in pair]
        named = (how.through, how.permuted, *renamed)
        found = group_key(group.nodes, graph.types, graph.constants, group.outputs, named)
        if found is None:
            return self._built(group)
        key, values = (found[0], how.order), found[1]
        known = self._programs.get((group.stem, key))
        if known is None:
            made = self._built(group)
            if not made.ranges:
                self._programs[group.stem, key] = (made, values)
            return made
        made, before = known
        return made.of_values(dict(zip(before, values, strict=True)))

    def _built(self, group: Group) -> NodesProgram:
        graph = self.graph
        return nodes_program(group.nodes, graph.types, graph.constants, group.outputs, group.stem, group.how)
