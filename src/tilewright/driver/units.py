"""Units of compilation: a fusion group of the model with the one program that computes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tilewright.graph import Array, Group, Node, Partition
from tilewright.ir import CONST, Program
from tilewright.strategies import Flow, assign_layouts
from tilewright.target import Target


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


def make_units(partition: Partition, target: Target) -> tuple[Unit, ...]:
    """The units of a partitioned graph in the order in which they run, values in the layouts that suit them.

    The model's inputs and outputs, and values that are seen under several shapes, stay plain.
    """
    units = [_unit(partition, group) for group in partition.groups]
    graph = partition.graph
    fixed = {*graph.inputs, *graph.outputs, *partition.views, *partition.views.values()}
    flows = [Flow(unit.program, unit.inputs, unit.outputs) for unit in units]
    return tuple(
        replace(unit, program=program)
        for unit, program in zip(units, assign_layouts(flows, fixed, target), strict=True)
    )


def _unit(partition: Partition, group: Group) -> Unit:
    made = partition.program(group)
    constants = partition.graph.constants
    known = {name for name, value in made.inputs.items() if partition.buffer(value) in constants}
    inputs = tuple(
        b.with_(scope=CONST) if b.name in known or b.name in made.tables else b for b in made.program.inputs
    )
    return Unit(group.nodes, replace(made.program, inputs=inputs), made.inputs, made.outputs, made.tables)
