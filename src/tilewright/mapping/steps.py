"""From a mapping to schedule steps: layouts, splits, order, the result's place, nests as instructions.

set_layout   operands as the instruction reads them
split        each axis of the program into what one execution does and what is around
reorder      loops around first, those of reductions last, then those of the instruction
stage        the result in the instruction's scope, where it has one
decompose_init, tensorize    starting, adding and storing it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.ir import Store
from tilewright.mapping.access import ThreeOperandForm, three_operand_form
from tilewright.mapping.mapping import Bundle, LayoutNeed, Mapping
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, quoted
from tilewright.target import Instruction, Operations

RESULT: Final = "held"
"""What the result's copy in the instruction's scope is called, behind the stage's name."""


@dataclass(frozen=True, slots=True)
class _Loop:
    """An axis that is mapped: the loop, what one execution does, and the instruction's axis."""

    name: str
    part: int
    axis: str

    @property
    def outer(self) -> str:
        return f"{self.name}_o"

    @property
    def inner(self) -> str:
        return f"{self.name}_i"


def tensorized(schedule: Schedule, mapping: Mapping) -> Schedule:
    """The schedule with the mapping's stage done by its instruction, one of the schedule's ``operations``.

    The schedule is in its program phase.
    Raises ScheduleError for mappings whose needs are more than layouts (copies, padding, axes of several or
    no axes of the program: rewrites make those first), and where no part divides an extent.
    """
    row = schedule.operations.get(mapping.instruction.name)
    if row is None or row.digest != mapping.instruction.digest:
        raise ScheduleError(
            f"the mapping is onto another instruction {quoted(mapping.instruction.name)} than the schedule's",
            hint="map onto the rows of Schedule.operations",
        )
    program = schedule.require_program("a mapping is of a program's stage")
    form = three_operand_form(program.stage(mapping.stage))
    loops = _loops(mapping, row)
    for n, each in enumerate(need for need in mapping.needs if isinstance(need, LayoutNeed)):
        order = _layout(schedule, mapping, row, each, loops)
        if order and all(each.buffer != other.buffer for other in _layouts(mapping)[:n]):
            schedule = schedule.set_layout(each.buffer, order)
    return _by_instructions(_split(schedule, mapping, form, loops), mapping, row, loops)


def _layouts(mapping: Mapping) -> list[LayoutNeed]:
    return [need for need in mapping.needs if isinstance(need, LayoutNeed)]


def _loops(mapping: Mapping, row: Instruction) -> dict[str, _Loop]:
    """The loop of each of the instruction's axes."""
    for need in mapping.needs:
        if not isinstance(need, LayoutNeed):
            raise ScheduleError(
                f"{row.name} needs more than layouts of stage {quoted(mapping.stage)}: {need}",
                hint="rewrite the program so that it has what the mapping needs, then map it again",
            )
    out: dict[str, _Loop] = {}
    for b in mapping.axes:
        if len(b.program) != 1:
            raise ScheduleError(
                f"axis {b.axis} of {row.name} is {len(b.program)} axes of stage {quoted(mapping.stage)}",
                hint="fuse them, or add a dimension of one element, then map the program again",
            )
        out[b.axis] = _Loop(b.program[0], _part(mapping, row, b), b.axis)
    return out


def _part(mapping: Mapping, row: Instruction, b: Bundle) -> int:
    """What one execution does of an axis: the most that divides the extent, in whole groups."""
    (extent,) = b.extents
    group = max((o.group for o in row.operands if o.group > 1 and o.axes and o.axes[0] == b.axis), default=1)
    most = mapping.instruction.axis(b.axis)
    found = 0
    if extent.is_const:
        sizes = range(most.extent, 0, -1) if most.partial and not most.lane else (most.extent,)
        if most.lane:
            sizes = (min(most.extent, extent.const),)
        found = next((n for n in sizes if extent.const % n == 0 and n % group == 0), 0)
    if not found:
        raise ScheduleError(
            f"no part of axis {b.program[0]} ({extent}) is an execution of {row.name} along {b.axis}",
            hint="pad the extent first",
        )
    return found


def _layout(
    schedule: Schedule, mapping: Mapping, row: Instruction, need: LayoutNeed, loops: dict[str, _Loop]
) -> tuple[str, ...]:
    """The layout string of a need: other dimensions, then parts of its own, then groups."""
    operand = row.operand(need.operand)
    rank = len(schedule.buffers()[need.buffer].shape)
    others = [f"d{d}" for d in range(rank) if d not in need.dims]
    if need.group > 1:
        slow, *rest = need.dims
        return (*others, f"d{slow}//{need.group}", *(f"d{d}" for d in rest), f"d{slow}%{need.group}")
    if len(need.dims) == 1:
        return (*others, f"d{need.dims[0]}")
    axes = [a for a in operand.axes if a in loops and not operand.strided(a)]
    parts = [loops[a].part for a in axes]
    mapped = {each.name for each in loops.values()}
    access = mapping.bound(need.operand)
    for d, part in zip(need.dims, parts, strict=True):
        index = access.indices[d]
        if index.const % part or any(index.coefficient(v) % part for v in index.vars - mapped):
            raise ScheduleError(
                f"{row.name} needs more than layouts of stage {quoted(mapping.stage)}: what it reads of "
                f"{need.buffer} begins anywhere along dimension {d}, and not at each {part}th element",
                hint="copy what it reads first (gather_operand), then map the program again",
            )
    blocks = [f"d{d}//{n}" for d, n in zip(need.dims, parts, strict=True)]
    return (*others, *blocks, *(f"d{d}%{n}" for d, n in zip(need.dims, parts, strict=True)))


def _split(schedule: Schedule, mapping: Mapping, form: ThreeOperandForm, loops: dict[str, _Loop]) -> Schedule:
    """Iterators that are several axes become loops of their own; mapped ones are split into their parts."""
    for name in dict.fromkeys(o for o, _ in form.origins):
        digits = [(a, n) for a, (o, n) in zip(form.axes, form.origins, strict=True) if o == name]
        if len(digits) > 1:
            factors = [form.extents[form.axes.index(a)].as_int() for a, _ in digits[1:]]
            loop = _loop_of(schedule, mapping.stage, name)
            schedule = schedule.split(loop, factors, names=[a for a, _ in digits])
    for each in loops.values():
        loop = _loop_of(schedule, mapping.stage, each.name)
        schedule = schedule.split(loop, each.part, names=(each.outer, each.inner))
    return schedule


def _loop_of(schedule: Schedule, stage: str, axis: str) -> str:
    """The loop of a stage's axis, as the unscheduled nest calls it."""
    found = schedule.loops(stage)
    return axis if axis in found else next(n for n in found if n == f"{stage}_{axis}")


def _by_instructions(
    schedule: Schedule, mapping: Mapping, row: Instruction, loops: dict[str, _Loop]
) -> Schedule:
    stage = mapping.stage
    spanned = {v for i in row.result.indices for v in i.vars}
    inner = [loops[a].inner for a, _ in row.inner_axes]
    lanes = [loops[a].inner for a in row.lanes]
    red = {it.name for it in schedule.block(stage).iters if it.kind == "red"}
    binding = {
        it.name: b for it, b in zip(schedule.block(stage).iters, schedule.block(stage).bind, strict=True)
    }
    sums = {v for name in red for v in binding[name].vars}
    around = [n for n in schedule.loops(stage) if n not in inner and n not in lanes]
    outer = [n for n in around if n not in sums]
    reductions = [n for n in around if n in sums]
    schedule = schedule.reorder(*outer, *reductions, *lanes, *inner)
    scope = row.result.scope
    held = stage
    if scope:
        held = f"{stage}_{RESULT}"
        at = outer[-1] if outer else None
        schedule = schedule.cache(
            mapping.bound(row.result.name).buffer, at=at, scope=scope, mode="write", name=held
        )
        schedule = schedule.reorder(*reductions, *inner)
    if schedule.block(stage).init is not None and row.accumulates:
        first = reductions[0] if reductions else (lanes or inner)[0]
        schedule = schedule.decompose_init(stage, first)
    for n in lanes:
        schedule = schedule.vectorize(n)
    schedule = schedule.tensorize(inner[0], row.name)
    if not scope:
        return schedule
    depth = sum(1 for a, _ in row.inner_axes if a in spanned)
    clear, store = _moves(schedule.operations, row)
    schedule = schedule.tensorize(schedule.loops(f"{stage}_init")[-depth], clear)
    stored = _storing(schedule, mapping, row, f"{held}_out")
    return schedule.reorder(*stored).tensorize(stored[len(stored) - depth], store)


def _storing(schedule: Schedule, mapping: Mapping, row: Instruction, block: str) -> list[str]:
    """The loops that store a result: those of dimensions that the instruction has last, as it has them.

    The copy's nest goes over the tensor's dimensions in their order, with others between them.
    """
    found = schedule.block(block)
    assert isinstance(found.body, Store)
    (w,) = found.body.writes
    feeds = {it.name: b.vars for it, b in zip(found.iters, found.bind, strict=True)}
    loops = [n for n in schedule.loops(block) if n.startswith(f"{block}_")]
    mine: list[str] = []
    for dims in dict(mapping.dims)[row.result.name]:
        along = {loop for d in dims for it in w.indices[d].vars for loop in feeds[it]}
        mine.extend(n for n in loops if n in along)
    return [*(n for n in loops if n not in mine), *mine]


def _moves(operations: Operations, row: Instruction) -> tuple[str, str]:
    """The rows that clear and that store results of an instruction."""
    found: dict[str, str] = {}
    scope, total = row.result.scope, row.result.dtype
    for move in operations.values():
        if move.is_contraction or len(move.operands) > 2 or move.epilogue:
            continue
        source = move.source
        if source is None and (move.result.scope, move.result.dtype) == (scope, total):
            found.setdefault("clear", move.name)
        elif source is not None and (source.scope, source.dtype, move.result.scope) == (scope, total, ""):
            found.setdefault("store", move.name)
    for what in ("clear", "store"):
        if what not in found:
            raise ScheduleError(
                f"no instruction would {what} results of {row.name} in scope {scope}",
                hint="add its row to the target's moves",
            )
    return found["clear"], found["store"]
