"""Units of compilation: a fusion group of the model with the one program that computes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tilewright.graph import Array, Graph, Kind, Node, find_operator, nodes_program
from tilewright.ir import CONST, Program

_MAX_LABEL = 40
_NOT_IN_LABELS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One step of a run: the ``nodes`` of the model that it computes, and their program.

    ``inputs`` and ``outputs`` map the program's argument buffers to the graph's values, ``tables`` maps
    others to constants that operators made. Inputs that are constants have the scope ``const`` in the
    program: their contents are known, so that a schedule may choose their layout.
    """

    nodes: tuple[Node, ...]
    program: Program
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    tables: Mapping[str, Array]

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "tables"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def label(self) -> str:
        """The nodes' names in the user's model, for profiles and messages."""
        names = [node.location.name for node in self.nodes]
        return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"

    @property
    def operators(self) -> str:
        """The nodes' operators, such as ``Conv+Add+Relu``."""
        return "+".join(node.op for node in self.nodes)


def make_units(graph: Graph) -> tuple[tuple[Unit, ...], dict[str, str]]:
    """The units of a graph in the order in which they run, and its views.

    A view is a value that is another value's buffer under another shape; the second result maps it to that
    other value.
    """
    units: list[Unit] = []
    views: dict[str, str] = {}
    for node in graph.nodes:
        entry = find_operator(node)
        if entry is not None and entry.kind is Kind.VIEW and node.outputs[0]:
            views[node.outputs[0]] = node.inputs[0]
        else:
            units.append(_unit(graph, (node,), node.used_outputs))
    return tuple(units), views


def _unit(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> Unit:
    made = nodes_program(nodes, graph.types, graph.constants, outputs, name=_program_name(nodes))
    constant = set(made.tables) | {name for name, value in made.inputs.items() if value in graph.constants}
    inputs = tuple(b.with_(scope=CONST) if b.name in constant else b for b in made.program.inputs)
    return Unit(tuple(nodes), replace(made.program, inputs=inputs), made.inputs, made.outputs, made.tables)


def _program_name(nodes: Sequence[Node]) -> str:
    """A name for generated code, made of operators that the registry knows; never of the model's names."""
    known = [node.op for node in nodes if find_operator(node) is not None]
    text = _NOT_IN_LABELS.sub("_", "_".join(known).lower()).strip("_")
    return f"k_{text[:_MAX_LABEL].rstrip('_')}"
