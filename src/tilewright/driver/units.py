"""Units of compilation: a fusion group of the model with the one program that computes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from tilewright.graph import (
    Array,
    Group,
    Node,
    Partition,
    Repetition,
    ValueRange,
    contraction_runs,
    join_groups,
)
from tilewright.ir import BF16, CONST, F32, Program, program_at, typical_sizes
from tilewright.lang import large_outputs, largest, store_as
from tilewright.plan import Flow, GraphPlan, slice_program, sliced_buffers, with_layouts
from tilewright.support import ArtefactError, ScheduleError

Precision = Literal["f32", "bf16", "tf32"]
PRECISIONS: Final[tuple[Precision, ...]] = ("f32", "bf16", "tf32")
_OTHER_MODEL: Final = "is it the plan of another model?"


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One step of a run: the ``nodes`` of the model that it computes, and their program.

    ``inputs`` and ``outputs`` map the program's argument buffers to the graph's values, ``tables`` maps
    others to constants that operators made. Inputs that are constants have the scope ``const`` in the
    program: their contents are known, so that a schedule may choose their layout.

    ``ranges`` are what runs check of values that hold places.

    The program computes one of ``parts`` equal parts of a batch; of the arguments ``sliced`` it sees its part
    alone. Or it is one of several runs in order, each on parts of its own: ``repeat``.

    Of a unit with open sizes there may be two versions, one behind the other. Each is run where its arguments
    have so many elements: more than the first number of ``elements``, and no more than the second.
    """

    nodes: tuple[Node, ...]
    program: Program
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    tables: Mapping[str, Array]
    parts: int = 1
    sliced: frozenset[str] = frozenset()
    ranges: tuple[ValueRange, ...] = ()
    repeat: Repetition | None = None
    elements: tuple[int, int | None] = (0, None)

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
    def is_version(self) -> bool:
        """Whether another unit computes the same at other sizes."""
        return self.elements != (0, None)

    @property
    def calls(self) -> int:
        """How often a run calls the program."""
        return self.parts if self.repeat is None else self.repeat.count

    @property
    def partly_seen(self) -> frozenset[str]:
        """The arguments of which a call sees its part alone."""
        return self.sliced if self.repeat is None else self.repeat.sliced

    @property
    def operators(self) -> str:
        """The nodes' operators, such as ``Conv+Add+Relu``."""
        return "+".join(node.op for node in self.nodes)


def plain_units(partition: Partition) -> tuple[Unit, ...]:
    """The units of a partitioned graph, all values in their plain layouts: what devices take."""
    return tuple(_unit(partition, group) for group in partition.groups)


class UnitMaker:
    """Units of a partitioned graph's groups, all values plain; each group's program is made once.

    With the ``precision`` ``bf16`` units pass each other f32 values rounded to that, finite ones to finite
    ones; the model's inputs and outputs keep theirs.
    """

    def __init__(self, partition: Partition, precision: Precision = "f32") -> None:
        self.partition = partition
        self.precision = precision
        self._made: dict[Group, Unit] = {}
        self._joined: dict[tuple[Group, ...], Group] = {}

    def units(self, joins: Sequence[Sequence[str]] = ()) -> list[Unit]:
        """The units in the order in which they run; ``joins`` name the groups of one by what each makes.

        Raises ArtefactError for groups that do not read one another.
        """
        units = [self._unit(group) for group in self._groups(joins)]
        return _rounded(self.partition, units) if self.precision == "bf16" else units

    def fixed(self) -> frozenset[str]:
        """The values that stay plain: what callers see, what is seen under several shapes, or checked."""
        partition, graph = self.partition, self.partition.graph
        checked = (asked.value for group in partition.groups for asked in self._unit(group).ranges)
        seen = (*partition.views, *partition.views.values())
        units = [self._unit(group) for group in partition.groups]
        runs = [unit for unit in units if unit.repeat is not None]
        repeated = (v for unit in runs for v in (*unit.inputs.values(), *unit.outputs.values()))
        return frozenset((*graph.inputs, *graph.outputs, *seen, *checked, *repeated))

    def _unit(self, group: Group) -> Unit:
        if group not in self._made:
            self._made[group] = _unit(self.partition, group)
        return self._made[group]

    def _groups(self, joins: Sequence[Sequence[str]]) -> list[Group]:
        """The groups of the partition, runs of them joined."""
        if not joins:
            return list(self.partition.groups)
        made = {group.outputs[0]: group for group in self.partition.groups if len(group.outputs) == 1}
        after = {a: b for run in contraction_runs(self.partition) for a, b in pairwise(run)}
        last: dict[Group, tuple[Group, ...]] = {}
        inside: set[Group] = set()
        for names in joins:
            run = tuple(made[name] for name in names if name in made)
            if len(run) < len(names) or any(after.get(a) is not b for a, b in pairwise(run)):
                raise ArtefactError(
                    f"the plan joins the kernels of {', '.join(map(repr, names))}, which do not follow one"
                    " another",
                    hint=_OTHER_MODEL,
                )
            if not inside.isdisjoint(run):
                raise ArtefactError(f"the plan joins a kernel of {', '.join(map(repr, names))} twice")
            inside.update(run)
            last[run[-1]] = run
        return [
            self._join(last[group]) if group in last else group
            for group in self.partition.groups
            if group in last or group not in inside
        ]

    def _join(self, run: tuple[Group, ...]) -> Group:
        if run not in self._joined:
            self._joined[run] = join_groups(*run)
        return self._joined[run]


def make_units(maker: UnitMaker, plan: GraphPlan) -> tuple[Unit, ...]:
    """The units of a partitioned graph in the order in which they run, as a plan says.

    Raises ArtefactError, naming the value, where the plan is that of another model.
    """
    fixed = maker.fixed()
    units = maker.units(plan.joins)
    passed = {value for unit in units for value in unit.outputs.values()}
    for value in plan.fusion.cuts:
        if value not in maker.partition.graph.types:
            raise ArtefactError(
                f"the plan cuts at {value!r}, which the model does not compute", hint=_OTHER_MODEL
            )
    for value in plan.layouts.values:
        if value not in passed or value in fixed:
            raise ArtefactError(
                f"the plan gives a layout to {value!r}, which the model does not pass between its kernels",
                hint=_OTHER_MODEL,
            )
    for value in (*plan.layouts.copied, *plan.parts):
        if value not in passed:
            raise ArtefactError(
                f"the plan names {value!r}, which no kernel of the model makes", hint=_OTHER_MODEL
            )
    readers = {next(iter(unit.outputs.values()), ""): {*unit.inputs.values()} for unit in units}
    for reader, found in plan.layouts.converted.items():
        if not readers.get(reader, set()) >= {*found}:
            raise ArtefactError(
                f"the plan converts {', '.join(map(repr, found))} for the kernel that makes {reader!r}, which"
                " does not read them",
                hint=_OTHER_MODEL,
            )
    return tuple(planned_unit(unit, plan) for unit in units)


def planned_unit(unit: Unit, plan: GraphPlan) -> Unit:
    """A unit with the layouts of its arguments, and the part of the batch that it takes.

    Raises ArtefactError where a layout or the number of parts does not fit it.
    """
    try:
        program = with_layouts(flow_of(unit), plan.layouts)
    except ScheduleError as error:
        raise ArtefactError(f"a layout of the plan does not fit {unit.label}: {error.what}") from None
    count = next((plan.parts[value] for value in unit.outputs.values() if value in plan.parts), 1)
    if count == 1:
        return replace(unit, program=program)
    try:
        part = slice_program(program, count)
    except ValueError:
        raise ArtefactError(
            f"the plan makes {unit.label} in {count} parts of the batch, which it does not have",
            hint=_OTHER_MODEL,
        ) from None
    return replace(unit, program=part, parts=count, sliced=sliced_buffers(program))


def priced_flow(unit: Unit) -> Flow:
    """What decisions ask of a unit: where its sizes are those of a run, at usual ones."""
    flow = flow_of(unit)
    params = unit.program.params
    return replace(flow, program=program_at(flow.program, typical_sizes(params))) if params else flow


def flow_of(unit: Unit) -> Flow:
    """What layouts need to know of a unit."""
    return Flow(unit.program, unit.inputs, unit.outputs, unit.repeat is not None)


def _rounded(partition: Partition, units: Sequence[Unit]) -> list[Unit]:
    """The units with the f32 values between them stored in bf16."""
    kept = {partition.buffer(value) for value in partition.graph.outputs}
    # states go round in the type in which they begin
    kept |= {
        partition.buffer(unit.outputs[name])
        for unit in units
        if unit.repeat is not None
        for name in unit.repeat.carried.values()
    }
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
    if made.repeat is not None:
        # what differs from run to run is no constant of the program
        known -= {*made.repeat.sliced, *made.repeat.carried}
    inputs = tuple(
        b.with_(scope=CONST) if b.name in known or b.name in made.tables else b for b in made.program.inputs
    )
    program = replace(made.program, inputs=inputs)
    return Unit(
        group.nodes, program, made.inputs, made.outputs, made.tables, ranges=made.ranges, repeat=made.repeat
    )
