"""Units of compilation: a fusion group of the model with the one program that computes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tilewright.graph import Array, Group, Node, Partition
from tilewright.ir import CONST, Program
from tilewright.strategies import Flow, assign_layouts, choose_parts, slice_program, sliced_buffers
from tilewright.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One step of a run: the ``nodes`` of the model that it computes, and their program.

    ``inputs`` and ``outputs`` map the program's argument buffers to the graph's values, ``tables`` maps
    others to constants that operators made. Inputs that are constants have the scope ``const`` in the
    program: their contents are known, so that a schedule may choose their layout.

    The program computes one of ``parts`` equal parts of a batch; of the arguments ``sliced`` it sees its part
    alone.
    """

    nodes: tuple[Node, ...]
    program: Program
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    tables: Mapping[str, Array]
    parts: int = 1
    sliced: frozenset[str] = frozenset()

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


def make_units(partition: Partition, target: Target, threads: int = 1) -> tuple[Unit, ...]:
    """The units of a partitioned graph in the order in which they run, values in the layouts that suit them.

    The model's inputs and outputs, and values that are seen under several shapes, stay plain. Units for which
    that pays on ``threads`` threads take the batch in parts.
    """
    units = [_unit(partition, group) for group in partition.groups]
    graph = partition.graph
    fixed = {*graph.inputs, *graph.outputs, *partition.views, *partition.views.values()}
    flows = [Flow(unit.program, unit.inputs, unit.outputs) for unit in units]
    programs = assign_layouts(flows, fixed, target)
    flows = [replace(flow, program=program) for flow, program in zip(flows, programs, strict=True)]
    parts = choose_parts(flows, _batch(partition), target, threads)
    return tuple(
        replace(unit, program=program)
        if count == 1
        else replace(unit, program=slice_program(program, count), parts=count, sliced=sliced_buffers(program))
        for unit, program, count in zip(units, programs, parts, strict=True)
    )


def _batch(partition: Partition) -> int:
    """The size of the outermost dimension that all inputs of the model have; 1 where they differ."""
    graph = partition.graph
    sizes = {graph.types[value].sizes[:1] for value in graph.inputs}
    return next(iter(sizes))[0] if len(sizes) == 1 and () not in sizes else 1


def _unit(partition: Partition, group: Group) -> Unit:
    made = partition.program(group)
    constants = partition.graph.constants
    known = {name for name, value in made.inputs.items() if partition.buffer(value) in constants}
    inputs = tuple(
        b.with_(scope=CONST) if b.name in known or b.name in made.tables else b for b in made.program.inputs
    )
    return Unit(group.nodes, replace(made.program, inputs=inputs), made.inputs, made.outputs, made.tables)
