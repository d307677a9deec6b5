"""Units of compilation: a fusion group of the model with the one program that computes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import numpy as np

from tilewright.graph import Array, Group, Node, Partition, ValueRange, contraction_runs, join_groups
from tilewright.ir import BF16, CONST, F32, Program
from tilewright.lang import large_outputs, largest, store_as
from tilewright.plan import (
    Flow,
    assign_layouts,
    choose_joins,
    choose_parts,
    fits_together,
    slice_program,
    sliced_buffers,
)
from tilewright.target import Target

Precision = Literal["f32", "bf16"]
PRECISIONS: Final[tuple[Precision, ...]] = ("f32", "bf16")


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One step of a run: the ``nodes`` of the model that it computes, and their program.

    ``inputs`` and ``outputs`` map the program's argument buffers to the graph's values, ``tables`` maps
    others to constants that operators made. Inputs that are constants have the scope ``const`` in the
    program: their contents are known, so that a schedule may choose their layout.

    ``ranges`` are what runs check of values that hold places.

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
    ranges: tuple[ValueRange, ...] = ()

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "tables"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def label(self) -> str:
        """The nodes' names in the user's model, for profiles and messages."""
        names = [node.location.name for node in self.nodes]
        return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"

    @property
    def only_checked(self) -> tuple[str, ...]:
        """Values that a run checks for this step but its program does not read: one place is no choice."""
        read = set(self.inputs.values())
        return tuple(dict.fromkeys(asked.value for asked in self.ranges if asked.value not in read))

    @property
    def operators(self) -> str:
        """The nodes' operators, such as ``Conv+Add+Relu``."""
        return "+".join(node.op for node in self.nodes)


def plain_units(partition: Partition) -> tuple[Unit, ...]:
    """The units of a partitioned graph, all values in their plain layouts: what devices take."""
    return tuple(_unit(partition, group) for group in partition.groups)


def make_units(
    partition: Partition,
    target: Target,
    threads: int = 1,
    precision: Precision = "f32",
    *,
    exact: bool = False,
) -> tuple[Unit, ...]:
    """The units of a partitioned graph in the order in which they run, values in the layouts that suit them.

    The model's inputs and outputs, and values that are seen under several shapes, stay plain. Units for which
    that pays on ``threads`` threads take the batch in parts. With the ``precision`` ``bf16`` units pass each
    other f32 values rounded to that, finite ones to finite ones; inputs and outputs keep theirs. ``exact``
    says that kernels' products will be those of the model, not others that are faster.
    """
    units = [_unit(partition, group) for group in partition.groups]
    if precision == "bf16":
        units = _rounded(partition, units)
    graph = partition.graph
    fixed = {*graph.inputs, *graph.outputs, *partition.views, *partition.views.values()}
    fixed |= {asked.value for unit in units for asked in unit.ranges}
    flows = [Flow(unit.program, unit.inputs, unit.outputs) for unit in units]
    programs = assign_layouts(flows, fixed, target)
    flows = [replace(flow, program=program) for flow, program in zip(flows, programs, strict=True)]
    parts = choose_parts(flows, _batch(partition), target, threads)
    spans = _spans(partition, flows, parts, target, threads, exact)
    known: dict[Program, bool] = {}
    while spans:
        joined = _joined(partition, units, parts, spans)
        made = assign_layouts([Flow(u.program, u.inputs, u.outputs) for u, _, _ in joined], fixed, target)
        apart: list[_Span] = []
        for program, (_, _, span) in zip(made, joined, strict=True):
            if span is not None and program not in known:
                known[program] = fits_together(program, target, threads)
            if span is not None and not known[program]:
                apart.append(span)
        if not apart:
            units, parts, programs = [u for u, _, _ in joined], tuple(n for _, n, _ in joined), made
            break
        spans = [span for span in spans if span not in apart]
    return tuple(
        replace(unit, program=program)
        if count == 1
        else replace(unit, program=slice_program(program, count), parts=count, sliced=sliced_buffers(program))
        for unit, program, count in zip(units, programs, parts, strict=True)
    )


_Span: TypeAlias = tuple[Group, ...]
"""Groups that follow one another, as one kernel."""


def _spans(
    partition: Partition,
    flows: Sequence[Flow],
    parts: Sequence[int],
    target: Target,
    threads: int,
    exact: bool,
) -> list[_Span]:
    """Runs of contractions for which one nest each is faster.

    Kernels that take the batch in parts stay as they are: values stay with their thread there as well.
    """
    flow = dict(zip(partition.groups, flows, strict=True))
    whole = {group for group, count in zip(partition.groups, parts, strict=True) if count == 1}
    runs = [run for run in contraction_runs(partition) if whole.issuperset(run)]
    spans: list[_Span] = []
    counted = choose_joins([[flow[g] for g in run] for run in runs], target, threads, exact=exact)
    for run, counts in zip(runs, counted, strict=True):
        ends = list(accumulate(counts))
        spans += [run[end - count : end] for count, end in zip(counts, ends, strict=True) if count > 1]
    return spans


def _joined(
    partition: Partition, units: Sequence[Unit], parts: Sequence[int], spans: Sequence[_Span]
) -> list[tuple[Unit, int, _Span | None]]:
    """The units, into how many parts each takes the batch, and the groups of those that are joined now."""
    last = {span[-1]: span for span in spans}
    inside = {group for span in spans for group in span}
    out: list[tuple[Unit, int, _Span | None]] = []
    for group, unit, count in zip(partition.groups, units, parts, strict=True):
        span = last.get(group)
        if span is not None:
            out.append((_unit(partition, join_groups(*span)), 1, span))
        elif group not in inside:
            out.append((unit, count, None))
    return out


def _batch(partition: Partition) -> int:
    """The size of the outermost dimension that all inputs of the model have; 1 where they differ."""
    graph = partition.graph
    sizes = {graph.types[value].sizes[:1] for value in graph.inputs}
    return next(iter(sizes))[0] if len(sizes) == 1 and () not in sizes else 1


def _rounded(partition: Partition, units: Sequence[Unit]) -> list[Unit]:
    """The units with the f32 values between them stored in bf16."""
    kept = {partition.buffer(value) for value in partition.graph.outputs}
    passed = {
        partition.buffer(unit.outputs[b.name])
        for unit in units
        for b in unit.program.outputs
        if b.dtype == F32 and partition.buffer(unit.outputs[b.name]) not in kept
    }
    limit = largest(BF16)
    large = {value for value, array in partition.graph.constants.items() if _exceeds(array, limit)}
    # what a caller gives may be a mask
    large |= set(partition.graph.inputs)
    out: list[Unit] = []
    for unit in units:
        values = {**unit.inputs, **unit.outputs}
        names = {name: BF16 for name, value in values.items() if partition.buffer(value) in passed}
        sources = {name for name, value in unit.inputs.items() if partition.buffer(value) in large}
        sources |= {name for name, array in unit.tables.items() if _exceeds(array, limit)}
        beyond = large_outputs(unit.program, sources, limit)
        large |= {partition.buffer(value) for name, value in unit.outputs.items() if name in beyond}
        out.append(replace(unit, program=store_as(unit.program, names, beyond)))
    return out


def _exceeds(array: Array, limit: float) -> bool:
    """Whether an array holds finite numbers beyond a limit."""
    if array.dtype.kind != "f" or not array.size or (array.max() <= limit and array.min() >= -limit):
        return False
    finite = array[np.isfinite(array)]
    return bool(finite.size) and float(max(-finite.min(), finite.max())) > limit


def _unit(partition: Partition, group: Group) -> Unit:
    made = partition.program(group)
    constants = partition.graph.constants
    known = {name for name, value in made.inputs.items() if partition.buffer(value) in constants}
    inputs = tuple(
        b.with_(scope=CONST) if b.name in known or b.name in made.tables else b for b in made.program.inputs
    )
    program = replace(made.program, inputs=inputs)
    return Unit(group.nodes, program, made.inputs, made.outputs, made.tables, ranges=made.ranges)
