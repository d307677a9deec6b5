"""The schedule of a nest: its parts, each by a plan of its own, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.cost import Machine
from tilewright.ir import (
    Block,
    LoopFunction,
    Seq,
    Stmt,
    fresh_name,
    locate,
    map_buffers,
    rename_buffers,
    rename_loops,
    seq,
    stmt_writes,
)
from tilewright.poly import (
    allocations_inside,
    contents_that_count,
    is_black_box,
    scalars_in_results,
)
from tilewright.strategies.nests.neighbours import neighbours_in_registers
from tilewright.strategies.nests.part import NestTask, ScheduledNest
from tilewright.strategies.nests.streams import streams_asked_ahead
from tilewright.support import ResourceError
from tilewright.target import Target


def schedule_nest(
    func: LoopFunction,
    machine: Machine,
    chosen: Callable[[NestTask], ScheduledNest] = NestTask.default,
) -> ScheduledNest:
    """A fast order for a nest of fixed sizes: same arguments, same results but for rounding of sums.

    What stands before and after a black box is a part of its own, and so are outermost nests that cannot be
    lifted together. ``chosen`` decides about each part, by default the rules do.
    """
    task = NestTask(func, machine)
    boxes = any(is_black_box(place.node) for place in locate(func.body, Block))
    if not boxes and task.as_program() is not None:
        return chosen(task)
    try:
        private = allocations_inside(func)
        parts = _apart(func, (private if boxes else scalars_in_results(private)).body)
    except ResourceError:
        parts = [func]
    if len(parts) == 1:
        return chosen(task)
    return _one_after_another(func, [schedule_nest(part, machine, chosen) for part in parts])


def for_code_generation(func: LoopFunction, target: Target) -> LoopFunction:
    """A scheduled nest with rows in registers and streams asked ahead, which emitted C does not have."""
    return streams_asked_ahead(neighbours_in_registers(func, target), target)


def _apart(func: LoopFunction, body: Stmt) -> list[LoopFunction]:
    """The outermost nests of a body as functions, those between black boxes together."""
    if not isinstance(body, Seq):
        return [func]
    boxed = [any(is_black_box(place.node) for place in locate(s, Block)) for s in body.stmts]
    runs: list[list[Stmt]] = []
    for n, s in enumerate(body.stmts):
        if n and any(boxed) and not boxed[n] and not boxed[n - 1]:
            runs[-1].append(s)
        else:
            runs.append([s])
    parts: list[LoopFunction] = []
    for stmts in runs:
        written = {name for s in stmts for name, _ in stmt_writes(s)}
        outputs = tuple(name for name in func.outputs if name in written)
        part = replace(func, outputs=outputs, body=seq(*stmts), inouts=outputs)
        kept = contents_that_count(part)
        parts.append(replace(part, inouts=tuple(name for name in outputs if name in kept)))
    return parts


def _one_after_another(func: LoopFunction, parts: Sequence[ScheduledNest]) -> ScheduledNest:
    """Parts of a nest as one function, names of one told from those of another."""
    taken = {b.name for b in func.buffers}
    bodies: list[Stmt] = []
    for part in parts:
        bodies.append(rename_loops(_with_own_buffers(part.func.body, taken), taken))
    notes = tuple(f"part {n}: {note}" for n, part in enumerate(parts, 1) for note in part.notes)
    schedules = tuple(each for part in parts for each in part.schedules)
    tasks = tuple(each for part in parts for each in part.parts)
    return ScheduledNest(func.with_body(seq(*bodies)), notes, tasks, schedules)


def _with_own_buffers(body: Stmt, taken: set[str]) -> Stmt:
    """A body whose allocations have names that are not ``taken``, which grows by them."""
    names = {b.name: fresh_name(b.name, taken) for b in body.allocated}
    taken.update(names.values())
    changed = {old: new for old, new in names.items() if old != new}
    return map_buffers(rename_buffers(body, changed), lambda b: b.with_(name=names[b.name]))
