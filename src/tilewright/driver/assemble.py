"""From units and kernels to one execution plan: where every tensor of a run lives, and the list of calls."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.build import Array, UnitKernel, is_plain, pack, physical_sizes
from tilewright.cost import KEPT_SHARE
from tilewright.devices import DevicePlan
from tilewright.driver.sections import Section, find_sections, plan_lane, section_step
from tilewright.driver.units import Unit
from tilewright.graph import Graph, MemoryPlan, Repetition, Step, ValueRange, plan_memory
from tilewright.ir import Buffer, DType, IndexMap, dtype_of
from tilewright.plan import resized
from tilewright.runtime import (
    INPUT,
    BufferRef,
    ExecutionPlan,
    PlanBuilder,
    RangeCheck,
    ThreadPool,
    aligned_copy,
)
from tilewright.schedule import (
    DerivedConstant,
    Step as ScheduleStep,
    argument_map,
    derived_constants,
    overwritable,
    pack_argument,
)
from tilewright.support import InternalError, ResourceError, format_bytes, quoted

_PackKey: TypeAlias = tuple[object, ...]
"""The identity of an array, and all that decides how it is packed."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """All that running a model needs: its values and constants, and the kernel of each step.

    ``graph`` has had the constants taken out that only kernels read; those are in ``constants``, in the
    layouts of the kernels.
    """

    graph: Graph
    units: tuple[Unit, ...]
    kernels: tuple[UnitKernel, ...]
    views: Mapping[str, str]
    constants: Mapping[tuple[int, str], Array]
    buffers: Mapping[str, Buffer]

    def root(self, value: str) -> str:
        """The value whose buffer holds ``value``."""
        while value in self.views:
            value = self.views[value]
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Assembled:
    """An execution plan, and which arrays it takes.

    ``inputs`` and ``outputs`` are values in the plan's order. Wanted values that no step makes (inputs and
    constants) are not among the outputs.
    """

    plan: ExecutionPlan | DevicePlan
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arrays: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]
    """Element type and allocated shape of each output."""
    calls: tuple[tuple[int, int], ...]
    """Of each call of the plan: its unit, and how many lanes run at the same time."""

    def unit_times(self, nanoseconds: npt.NDArray[np.int64], units: int) -> npt.NDArray[np.float64]:
        """The times of units from those of calls, of shape (repeats, calls): what a run spends on each."""
        times = np.zeros((len(nanoseconds), units))
        for call, (unit, lanes) in enumerate(self.calls):
            times[:, unit] += nanoseconds[:, call] / lanes
        return times


def make_steps(
    graph: Graph,
    units: Sequence[Unit],
    kernels: Sequence[UnitKernel],
    views: Mapping[str, str],
    threads: int = 1,
    packs: Packs | None = None,
) -> Steps:
    """Pack the constants as the kernels want them, on ``threads`` threads. Each is packed once a layout.

    What ``packs`` has is not packed again; new packs of the arrays that it keeps are put into it.
    """
    steps = Steps(graph, tuple(units), tuple(kernels), MappingProxyType(dict(views)), {}, {})
    with ThreadPoolExecutor(max_workers=threads) as executor:
        constants, buffers = _packed(steps, executor, packs or Packs())
    return replace(steps, constants=constants, buffers=buffers)


class Packs:
    """Constants as kernels want them, for models that are assembled again and again of the same arrays."""

    def __init__(self) -> None:
        self._made: dict[_PackKey, Array] = {}
        self._kept: dict[int, Array] = {}
        self._contents: dict[tuple[Any, ...], Array] = {}

    def keep(self, array: Array) -> None:
        """Remember what becomes of an array from now on; it lives as long as this does."""
        self._kept[id(array)] = array

    def find(self, key: _PackKey) -> Array | None:
        """What was packed before."""
        return self._made.get(key)

    def add(self, key: _PackKey, packed: Array) -> Array:
        """Remember a pack, if its arrays, whose identities are first in the key, are kept; an equal one of
        before takes its place: graphs at parts of a range make the same constants, each its own.
        """
        content = packed.reshape(-1).view(np.uint8)
        known = self._contents.setdefault((packed.dtype, packed.shape, zlib.crc32(content.data)), packed)
        if known is not packed and np.array_equal(known.reshape(-1).view(np.uint8), content):
            packed = known
        ids, *_ = key
        if isinstance(ids, tuple) and self._kept.keys() >= set(ids):
            self._made[key] = packed
        return packed

    @property
    def nbytes(self) -> int:
        """Bytes of all packs."""
        return sum(array.nbytes for array in self._made.values())


def _packed(
    steps: Steps, executor: Executor, packs: Packs
) -> tuple[dict[tuple[int, str], Array], dict[str, Buffer]]:
    """The constants by step and argument, packed (numpy copies without holding Python's lock), and the
    buffers of all other values.
    """
    packing: dict[_PackKey, Future[Array]] = {}
    packed: dict[_PackKey, Array] = {}
    wanted: dict[tuple[int, str], _PackKey] = {}
    buffers: dict[str, Buffer] = {}

    def want(at: int, name: str, key: _PackKey, make: Callable[[], Array]) -> None:
        wanted[at, name] = key
        if key in packed or key in packing:
            return
        known = packs.find(key)
        if known is None:
            packing[key] = executor.submit(make)
        else:
            packed[key] = known

    for at, (unit, kernel) in enumerate(zip(steps.units, steps.kernels, strict=True)):
        declared = {b.name: b for b in (*unit.program.inputs, *unit.program.outputs)}
        derived = derived_constants(kernel.schedule)
        for b in kernel.buffers:
            made = derived.get(b.name)
            if made is not None:
                arrays = {name: _constant(steps, unit, name) for name in made.sources}
                ids = tuple(map(id, arrays.values()))
                key: _PackKey = (ids, b.name, b.shape, b.layout, kernel.schedule.trace.steps)
                want(at, b.name, key, partial(_derive, made, arrays, b))
                continue
            name = b.name
            value = unit.inputs.get(name) or unit.outputs.get(name)
            array = _constant(steps, unit, name)
            if array is None:
                if value is None:
                    raise InternalError(f"the kernel {kernel.name} has an unknown argument {b.name}")
                own = declared[b.name]
                if not _same_places(kernel, own, b):
                    raise InternalError(f"the schedule of {kernel.name} changed the layout of {b.name}")
                whole = resized(own, own.shape[0].as_int() * unit.parts) if name in unit.sliced else own
                known = buffers.setdefault(steps.root(value), whole)
                if known.layout != whole.layout and not (is_plain(known) and is_plain(whole)):
                    raise InternalError(f"two kernels want {quoted(value)} in different layouts")
                continue
            steps_of = tuple(
                step
                for step in kernel.schedule.trace.steps
                if step.primitive.startswith("layout_") and step.args[:1] == (b.name,)
            )
            key = ((id(array),), b.dtype, b.shape, b.layout, steps_of, declared[b.name].layout)
            want(at, b.name, key, partial(_pack, array, b, steps_of, declared[b.name].layout))
    for key, future in packing.items():
        packed[key] = packs.add(key, future.result())
    return {at: packed[key] for at, key in wanted.items()}, buffers


def _constant(steps: Steps, unit: Unit, name: str) -> Array | None:
    """The array of an argument that is a constant."""
    value = unit.inputs.get(name) or unit.outputs.get(name)
    return unit.tables.get(name) if value is None else steps.graph.constants.get(steps.root(value))


def _derive(made: DerivedConstant, arrays: Mapping[str, Array | None], b: Buffer) -> Array:
    known = {name: array for name, array in arrays.items() if array is not None}
    if len(known) < len(arrays):
        raise InternalError(f"the constant {b.name} is made of what is no constant")
    return pack(made.of(known), b)


def _same_places(kernel: UnitKernel, declared: Buffer, b: Buffer) -> bool:
    """Whether the elements of a kernel's argument lie where its program said, whatever indices they have."""
    if (b.shape, b.layout) == (declared.shape, declared.layout):
        return True
    made = argument_map(declared, kernel.schedule.trace.steps, b)
    return made == argument_map(declared, (), declared)


def _pack(array: Array, b: Buffer, steps: Sequence[ScheduleStep], layout: IndexMap | None) -> Array:
    rounded = array if array.dtype == b.dtype.numpy else array.astype(b.dtype.numpy)
    moved = pack_argument(rounded, b.name, steps, layout) if steps else rounded
    return aligned_copy(moved) if is_plain(b) else pack(moved, b)


def assemble(
    steps: Steps, pool: ThreadPool, memory_limit: int, wanted: Collection[str], *, checks: bool = True
) -> Assembled:
    """The plan that computes the values ``wanted`` from the graph's inputs.

    With ``checks`` a run ends where a place that is read from data is out of range, its outputs as they were.
    Raises ResourceError where a run needs more than ``memory_limit`` bytes.
    """
    graph = steps.graph
    builder = PlanBuilder(pool)
    made = {value for unit in steps.units for value in unit.outputs.values()}
    sizes = {value: _nbytes(steps, value) for value in (*graph.inputs, *made)}
    refs: dict[str, BufferRef] = {value: builder.input(sizes[value]) for value in graph.inputs}
    outputs = tuple(dict.fromkeys(root for root in map(steps.root, wanted) if root in made))
    results = {value: builder.output(sizes[value]) for value in outputs}
    refs.update(results)
    roots = {value: steps.root(value) for value in (*sizes, *steps.views, *_read(steps))}
    sections = find_sections(steps.units, roots, refs.keys())
    moves = memory_steps(steps)
    planned = {value: sizes[value] for value in made if value not in refs}
    lanes: list[str | None] = []
    lane_plans = [plan_lane(section, moves, sizes) for section in sections]
    for at, (section, lane_plan) in enumerate(zip(sections, lane_plans, strict=True)):
        name = f"lanes of section {at}"
        while name in sizes:
            name += "_"
        lanes.append(name if lane_plan.size else None)
        if lane_plan.size:
            planned[name] = lane_plan.size * pool.threads
        for value in section.inner:
            del planned[value]
    outer = [section_step(section, moves, each) for section, each in zip(sections, lanes, strict=True)]
    staged = staged_outputs(steps, sections, outputs) if checks else ()
    planned |= {value: sizes[value] for value in staged}
    layout = _arena(steps, outer, planned, pool.threads, staged)
    weights = sum({id(array): array.nbytes for array in steps.constants.values()}.values())
    given = sum(sizes[value] for value in refs)
    if layout.size + weights + given > memory_limit:
        raise ResourceError(
            f"one run would take {format_bytes(layout.size)} for intermediate tensors, "
            f"{format_bytes(weights)} for weights and {format_bytes(given)} for inputs and outputs; "
            f"there are {format_bytes(memory_limit)}"
        )
    refs.update({value: builder.arena(layout.offsets[value], planned[value]) for value in planned})
    for value in staged:
        builder.copy(refs[value], results[value])
    calls = _Calls(steps, builder, refs, checks=checks)
    for number, (section, lane_memory, lane_plan) in enumerate(zip(sections, lanes, lane_plans, strict=True)):
        if section.parts == 1:
            calls.add(section.units[0])
            continue
        for lane, parts in enumerate(section.lane_parts(pool.threads)):
            own = (
                {} if lane_memory is None else _lane_refs(refs[lane_memory], lane, section, lane_plan, sizes)
            )
            for part in parts:
                for at in section.units:
                    calls.add(at, part, own, section=number + 1, lane=lane, lanes=pool.threads)
    arrays = tuple((value_dtype(steps, value).numpy, value_shape(steps, value)) for value in outputs)
    plan = builder.build(steps.kernels)
    return Assembled(plan, graph.inputs, outputs, arrays, tuple(calls.made))


def _read(steps: Steps) -> Iterator[str]:
    return (value for unit in steps.units for value in (*unit.inputs.values(), *unit.only_checked))


def _lane_refs(
    whole: BufferRef, lane: int, section: Section, plan: MemoryPlan, sizes: Mapping[str, int]
) -> dict[str, BufferRef]:
    """Where a lane has its parts of the values within a section."""
    return {
        value: whole.part(lane * plan.size + plan.offsets[value], sizes[value] // section.parts)
        for value in section.inner
    }


class _Calls:
    """Adds the calls of units to a plan, each constant once."""

    def __init__(
        self, steps: Steps, builder: PlanBuilder, refs: Mapping[str, BufferRef], *, checks: bool
    ) -> None:
        self._checks = checks
        self.made: list[tuple[int, int]] = []
        self._steps = steps
        self._builder = builder
        self._refs = refs
        self._stored: dict[int, BufferRef] = {}

    def add(
        self,
        at: int,
        part: int = 0,
        own: Mapping[str, BufferRef] = MappingProxyType({}),
        *,
        section: int = 0,
        lane: int = 0,
        lanes: int = 1,
    ) -> None:
        """Call unit ``at`` for one part of its batch; ``own`` are the lane's own values."""
        unit, kernel = self._steps.units[at], self._steps.kernels[at]
        for asked in unit.ranges if self._checks else ():
            self._builder.check(range_check(self._steps, self._refs, at, asked, part, own))
        for run in range(1 if unit.repeat is None else unit.repeat.count):
            arguments = [
                self._argument(at, b.name, part, own)
                if unit.repeat is None
                else run_argument(unit.repeat, b.name, run, lambda name: self._argument(at, name, 0, {}))
                for b in kernel.buffers
            ]
            kernel.on_cpu().add_to(
                self._builder, arguments, kernel.sizes, name=unit.label, section=section, lane=lane
            )
            self.made.append((at, lanes))

    def _argument(self, at: int, name: str, part: int, own: Mapping[str, BufferRef]) -> BufferRef:
        array = self._steps.constants.get((at, name))
        if array is not None:
            if id(array) not in self._stored:
                self._stored[id(array)] = self._builder.constant(array)
            return self._stored[id(array)]
        unit = self._steps.units[at]
        value = self._steps.root(unit.inputs.get(name) or unit.outputs[name])
        if value in own:
            return own[value]
        whole = self._refs[value]
        if name not in unit.sliced:
            return whole
        return whole.part(part * (whole.nbytes // unit.parts), whole.nbytes // unit.parts)


def run_argument(repeat: Repetition, name: str, run: int, whole: Callable[[str], BufferRef]) -> BufferRef:
    """Where an argument lies in one of several runs; ``whole`` gives all of an argument."""
    source, part = repeat.source(name, run)
    ref = whole(source)
    if part is None:
        return ref
    nbytes = ref.nbytes // repeat.count
    return ref.part(part * nbytes, nbytes)


def range_check(
    steps: Steps,
    refs: Mapping[str, BufferRef],
    at: int,
    asked: ValueRange,
    part: int = 0,
    own: Mapping[str, BufferRef] = MappingProxyType({}),
) -> RangeCheck:
    """The check of a part of the numbers; of an input, which is looked at before any step, of all.

    ``refs`` are the places of values, ``own`` those of a lane.
    """
    unit = steps.units[at]
    name = next((name for name, value in unit.inputs.items() if value == asked.value), "")
    root, type_ = steps.root(asked.value), steps.graph.types[asked.value]
    whole = refs.get(root)
    place, first = whole, asked.range.first
    if whole is None or whole.kind != INPUT:
        place = own[root] if root in own else refs[root]
        if name in unit.sliced:
            part_bytes = type_.nbytes // unit.parts
            place = place if root in own else place.part(part * part_bytes, part_bytes)
            first += part * part_bytes // dtype_of(type_.dtype).bytes
    assert place is not None
    skipped = asked.range.first * dtype_of(type_.dtype).bytes
    return RangeCheck(
        place=place.part(min(skipped, place.nbytes), max(place.nbytes - skipped, 0)),
        dtype=dtype_of(type_.dtype).numpy.name,
        low=asked.range.low,
        high=asked.range.high,
        node=str(asked.node),
        value=asked.value,
        shape=type_.sizes,
        first=first,
        stride=asked.range.stride,
    )


def staged_outputs(steps: Steps, sections: Sequence[Section], outputs: Sequence[str]) -> tuple[str, ...]:
    """The outputs that are written before the last place that a step computed has been checked."""
    inputs = set(steps.graph.inputs)
    number = {unit: at for at, section in enumerate(sections) for unit in section.units}
    checked = [
        (number[at], len(sections[number[at]].units) > 1 or sections[number[at]].parts > 1)
        for at, unit in enumerate(steps.units)
        if any(steps.root(asked.value) not in inputs for asked in unit.ranges)
    ]
    # parts of a section run at the same time: one may write what another's check is to prevent
    last = max((at if shared else at - 1 for at, shared in checked), default=-1)
    early = {
        steps.root(value)
        for at, unit in enumerate(steps.units)
        if number[at] <= last
        for value in unit.outputs.values()
    }
    return tuple(value for value in outputs if value in early)


def _arena(
    steps: Steps, moves: Sequence[Step], sizes: Mapping[str, int], threads: int, kept: Collection[str]
) -> MemoryPlan:
    """Where intermediate values live, those ``kept`` until the end.

    For several threads, each kind of values gets bytes of its own, as far as a part of the outermost cache
    holds all of them: writing to lines that another core has changed costs more than a larger arena.
    """
    layout = plan_memory(moves, sizes, kept)
    if threads > 1 and steps.kernels:
        kinds = {value: _kind(steps, value) if value in steps.graph.types else value for value in sizes}
        apart = plan_memory(moves, sizes, kept, kinds=kinds)
        caches = [level.size for level in steps.kernels[0].target.memory if level.size is not None]
        if apart.size <= KEPT_SHARE * max(caches, default=0):
            return apart
    return layout


def _kind(steps: Steps, value: str) -> tuple[int, ...]:
    """What values have in common whose bytes threads divide alike: all extents but the outermost.

    Threads divide the rows of a picture, say, in every block of channels: of any number of blocks, each lies
    where another one was.
    """
    shape = [extent for extent in value_shape(steps, value) if extent != 1]
    return tuple(shape[1:])


def memory_steps(steps: Steps) -> list[Step]:
    """What each step reads and writes, and which of its inputs its output may overwrite."""
    over: dict[int, tuple[str, ...]] = {}
    found: list[Step] = []
    for unit, kernel in zip(steps.units, steps.kernels, strict=True):
        if id(kernel) not in over:
            over[id(kernel)] = overwritable(kernel.schedule)
        roots = {name: steps.root(value) for name, value in unit.inputs.items()}
        roots |= {f"{at} of the checked": steps.root(value) for at, value in enumerate(unit.only_checked)}
        writes = tuple(dict.fromkeys(map(steps.root, unit.outputs.values())))
        # a value that comes in under two names is also read where it is not being overwritten
        read = list(roots.values())
        alone = [roots[name] for name in over[id(kernel)] if name in roots and read.count(roots[name]) == 1]
        if unit.repeat is not None or unit.is_version:
            # a later run, or version, may read what an earlier one would have overwritten
            alone = []
        pairs = tuple((write, value) for write in writes[:1] for value in alone)
        found.append(Step(tuple(dict.fromkeys(read)), writes, pairs))
    return found


def value_shape(steps: Steps, value: str) -> tuple[int, ...]:
    """The allocated shape of a value: the logical one where its layout is plain."""
    buffer = steps.buffers.get(value)
    return steps.graph.types[value].sizes if buffer is None or is_plain(buffer) else physical_sizes(buffer)


def _nbytes(steps: Steps, value: str) -> int:
    return math.prod(value_shape(steps, value)) * value_dtype(steps, value).bytes


def value_dtype(steps: Steps, value: str) -> DType:
    """The type in which a value is stored."""
    buffer = steps.buffers.get(value)
    return dtype_of(steps.graph.types[value].dtype) if buffer is None else buffer.dtype
