"""The schedule of a nest: lifted where values allow it, else in tiles or as written, whichever runs wider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.cost import Machine
from tilewright.ir import (
    F64,
    Block,
    For,
    LoopFunction,
    Seq,
    Stmt,
    fresh_name,
    int_upper,
    locate,
    loop_env,
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
from tilewright.schedule import Schedule
from tilewright.strategies.nests.delayed import delayed_updates
from tilewright.strategies.nests.lifted import lifted_nest
from tilewright.strategies.nests.ordered import along_rows, on_machine, ordered_nest
from tilewright.strategies.nests.plan import RULE, NestPlan
from tilewright.strategies.nests.tiled import tiled_nest
from tilewright.support import ProgramError, ResourceError, ScheduleError
from tilewright.target import CpuTarget

MARGIN: Final = 0.6
"""Tiles are taken where they should need less than so much of the time of the order as written: their loops
have bounds that are dearer, and the estimate knows lanes and threads alone."""


@dataclass(frozen=True, slots=True)
class ScheduledNest:
    """A nest as it will run, and in ``notes`` how it came about.

    ``loops`` is the most loops that a band of tiles has, or would have; none where there is no such band.
    ``schedules`` are those of the parts that are lifted.
    """

    func: LoopFunction
    notes: tuple[str, ...]
    loops: int = 0
    schedules: tuple[Schedule, ...] = ()


def schedule_nest(func: LoopFunction, machine: Machine, plan: NestPlan | None = None) -> ScheduledNest:
    """A fast order for a nest of fixed sizes: same arguments, same results but for rounding of sums.

    A ``plan`` says whether what may run in tiles does, and in which; without one it does in those of the rule
    where lanes and threads gain by it. What stands before and after a black box is scheduled by itself,
    and so are outermost nests that cannot be lifted together.
    """
    boxes = any(is_black_box(place.node) for place in locate(func.body, Block))
    if boxes and len(parts := _apart(func, allocations_inside(func).body)) > 1:
        return _one_after_another(func, [schedule_nest(part, machine, plan) for part in parts])
    notes: list[str] = []
    try:
        lifted, schedule = lifted_nest(func, machine)
        return ScheduledNest(lifted, ("lifted to a program",), schedules=(schedule,))
    except (ScheduleError, ResourceError) as error:
        notes.append(f"not lifted: {error.what}")
    try:
        private = scalars_in_results(allocations_inside(func))
        if not boxes and len(parts := _apart(func, private.body)) > 1:
            return _one_after_another(func, [schedule_nest(part, machine, plan) for part in parts])
        if plan is None and isinstance(machine.on, CpuTarget):
            grouped = delayed_updates(private, machine.on)
            if grouped is not None:
                ahead = f"in groups of {grouped.steps} steps, whose rows and columns go first"
                return ScheduledNest(on_machine(grouped.func, grouped.facts, machine), (*notes, ahead))
        made = ordered_nest(private, machine)
    except ResourceError as error:
        return ScheduledNest(func, (*notes, f"nothing known of loops: {error.what}", "as it is written"))
    try:
        # trees have no storage inside of loops
        within = func if private.body.allocated else private
        tiles, loops = tiled_nest(within, machine, (plan or RULE).tiles or RULE.tiles)
    except (ScheduleError, ProgramError, ResourceError) as error:
        loops = 0
        notes.append(f"not in tiles: {error.what}")
    else:
        if plan is None:
            here, there = (_instances(func, f, machine) for f in (made, tiles))
            taken = there < MARGIN * here
        else:
            taken = bool(plan.tiles)
        if taken:
            sizes = " x ".join(map(str, (plan or RULE).tiles))
            return ScheduledNest(tiles, (*notes, f"in tiles of {sizes}"), loops)
        notes.append("tiles would not run wider" if plan is None else "tiles were measured to be slower")
    return ScheduledNest(made, (*notes, "in the order in which it is written"), loops)


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
    return ScheduledNest(func.with_body(seq(*bodies)), notes, max(part.loops for part in parts), schedules)


def _with_own_buffers(body: Stmt, taken: set[str]) -> Stmt:
    """A body whose allocations have names that are not ``taken``, which grows by them."""
    names = {b.name: fresh_name(b.name, taken) for b in body.allocated}
    taken.update(names.values())
    changed = {old: new for old, new in names.items() if old != new}
    return map_buffers(rename_buffers(body, changed), lambda b: b.with_(name=names[b.name]))


def _by_llvm(b: Block, loops: Sequence[For], lanes: int) -> bool:
    """Whether LLVM puts a statement in lanes: iterations side by side that stay in registers, or a free loop.

    That is the innermost one, or the one around one that is short, which is written out; along rows.
    """
    if len(loops) > 1 and loops[-1].kind.name == "unroll":
        steps = {it.name for it, x in zip(b.iters, b.bind, strict=True) if loops[-2].var in x.vars}
        places = (*(ld.indices for ld in b.reads), *(at for _, at in b.writes))
        return not any(steps & x.vars for at in places for x in at)
    short = loops and loops[-1].extent.is_const and loops[-1].extent.const <= lanes
    for loop in loops[-2 if short else -1 :]:
        kinds = {it.kind for it, x in zip(b.iters, b.bind, strict=True) if loop.var in x.vars}
        if kinds == {"par"} and along_rows(b, loop.var):
            return True
    return False


def _instances(written: LoopFunction, made: LoopFunction, machine: Machine) -> float:
    """Statement instances that run one after another in a function made of another one, roughly.

    A statement counts as in lanes, or on threads, where one of its copies is; the others are borders.
    """
    kinds: dict[str, set[str]] = {}
    for place in locate(made.body, Block):
        kinds.setdefault(place.node.stage, set()).update(loop.kind.name for loop in place.loops)
        if isinstance(machine.on, CpuTarget) and _by_llvm(place.node, place.loops, machine.target.lanes(F64)):
            kinds[place.node.stage].add("vector")
    out = 0.0
    known = {b.name: b.dtype.bytes for b in (*made.buffers, *made.body.allocated)}
    for place in locate(written.body, Block):
        count = 1.0
        for n, loop in enumerate(place.loops):
            count *= int_upper(loop.extent, loop_env(place.loops[:n])) or 0
        found = kinds.get(place.node.stage, set())
        if "vector" in found and isinstance(machine.on, CpuTarget):
            widest = max((known.get(name, 8) for name, _ in place.node.writes), default=8)
            count /= machine.target.preferred_vector_bits / (8 * widest)
        out += count / machine.threads if "parallel" in found else count
    return out
