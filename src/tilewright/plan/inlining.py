"""Which stages are computed where they are read: inlining, before loops are made."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tilewright.analysis import match_contraction, physical, reads_in_place
from tilewright.ir import (
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    OfIndex,
    Program,
    Select,
    Stage,
    Store,
    stmt_exprs,
    stmt_loads,
    walk,
    walk_index,
)
from tilewright.plan.fallback import fell_back
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, get_logger

_log = get_logger(__name__)

#: A stage whose elements are each read so often is stored, however cheap it is.
MANY_REPEATS: Final = 8
#: What a function such as the exponential counts for: about as many operations.
CALL_OPERATIONS: Final = 16
#: Operations of a stage that may be computed again by each of several consumers instead of being stored.
CHEAP_OPERATIONS: Final = 4
#: Extents of short axes, which are expanded or stay whole.
SHORT: Final = 4
#: Operations, counted as often as they occur, that inlining one stage may add: nested ones double each time.
MOST_OPERATIONS: Final = 256


def inline_stages(s: Schedule, keep: Collection[str] = ()) -> Schedule:
    """Inline point-wise stages into their consumers where that saves memory traffic and repeats little.

    Padding goes into the reductions that read it, which then leave its terms out. Stages named in ``keep``
    stay.
    """
    program = s.require_program()
    for stage in program.stages:
        if stage.name in keep:
            continue
        now = s.require_program()
        current = now.stage(stage.name)
        if _worth_inlining(now, current):
            s = s.inline_stage(stage.name)
        elif is_padding(now, current):
            s = _inline_padding(s, now, current)
        elif current.is_reduction:
            s = _skip_padding(s, current)
    return s


def _skip_padding(s: Schedule, stage: Stage) -> Schedule:
    """Leave out the terms of padding that a reduction already holds, if there are any."""
    if not any(isinstance(e, Select) for root in stmt_exprs(stage.body) for e in walk(root)):
        return s
    try:
        return s.skip_padding(stage.name)
    except ScheduleError as error:
        _log.info("stage %s: %s", stage.name, error.what)
        return s


def _inline_padding(s: Schedule, program: Program, stage: Stage) -> Schedule:
    """Inline padding where every reader can skip its terms; otherwise it stays a stage."""
    readers = program.consumers(stage.writes[0])
    try:
        new = s.inline_stage(stage.name)
        for reader in readers:
            if reader.is_reduction:
                new = new.skip_padding(reader.name)
    except ScheduleError as error:
        return fell_back(s, f"padding stage {stage.name} stays", error)
    return new


def _is_temporary(program: Program, stage: Stage) -> bool:
    """Whether a stage alone defines an intermediate buffer, point by point."""
    if stage.is_reduction or any(it.kind == "ord" for it in stage.iters):
        return False
    if not isinstance(stage.body, Store) or len(stage.body.writes) != 1:
        return False
    buffer = stage.body.writes[0].buffer
    if program.buffer(buffer).layout is not None:
        # stored so on purpose
        return False
    return buffer not in {b.name for b in program.outputs} and len(program.producers(buffer)) == 1


def is_padding(program: Program, stage: Stage) -> bool:
    """Whether a stage copies a buffer with a constant around it."""
    if not _is_temporary(program, stage) or not isinstance(stage.body, Store):
        return False
    value = stage.body.writes[0].value
    return isinstance(value, Select) and _moves(value.a) and isinstance(value.b, Const)


def _moves(value: Expr) -> bool:
    """Whether a value is an element as it is stored, perhaps in a narrower type."""
    if isinstance(value, Cast) and value.a.dtype.bytes < value.dtype.bytes:
        if value.a.dtype.is_float == value.dtype.is_float and value.a.dtype.kind != "bool":
            value = value.a
    return isinstance(value, Load)


def _worth_inlining(program: Program, stage: Stage) -> bool:
    if not _is_temporary(program, stage) or not isinstance(stage.body, Store):
        return False
    buffer, value = stage.body.writes[0].buffer, stage.body.writes[0].value
    moves_only = _moves(value)
    operations = 0 if moves_only else _operations(stage, value)
    consumers = program.consumers(buffer)
    for c in consumers:
        # a reduction reads each element many times: only free movement is repeated there
        ordered = any(it.kind == "ord" for it in c.iters)
        if ordered and moves_only and _turns(program, stage):
            # step by step it would gather
            return False
        if (
            (c.is_reduction or ordered)
            and not moves_only
            and (_repeats(stage, c) > 1 or _has_boundary(value))
        ):
            return False
    if operations and any(_repeats(stage, c) >= MANY_REPEATS for c in consumers):
        # a row's mean or scale: computed once, not once an element of the row
        return False
    uses = sum(sum(1 for ld in stmt_loads(c.body) if ld.buffer == buffer) for c in consumers)
    if uses * operations <= MOST_OPERATIONS and _ends_in_one(program, stage):
        # what occurs more than once in one expression is computed once
        return True
    if operations and uses > 1 and _follows_contraction(program, stage):
        # an epilogue, whose operand is in registers
        return False
    return moves_only or uses <= 1 or (operations <= CHEAP_OPERATIONS and not _looks_up(program, stage))


def _operations(stage: Stage, value: Expr) -> int:
    """Operations of a value, but for conditions on axes that are expanded: each copy knows what they say."""
    short = {it.name for it in stage.iters if it.extent.is_const and it.extent.const <= SHORT}
    known = {
        id(part)
        for e in walk(value)
        if isinstance(e, Select) and _of_places(e.cond) and e.cond.vars <= short
        for part in walk(e.cond)
    }
    found = (e for e in walk(value) if not isinstance(e, Load) and id(e) not in known)
    return sum(CALL_OPERATIONS if isinstance(e, Call) else 1 for e in found)


def _of_places(condition: Expr) -> bool:
    """Whether a condition compares places with numbers or one another."""
    return isinstance(condition, Compare) and all(
        isinstance(side, OfIndex | Const) for side in (condition.a, condition.b)
    )


def _turns(program: Program, stage: Stage) -> bool:
    """Whether elements that lie together in a stage's result come from different rows of what it reads."""
    last = stage.body.writes[0].indices[-1].vars if isinstance(stage.body, Store) else frozenset()
    read = [physical(program, ld).indices for ld in stmt_loads(stage.body)]
    return any(last & i.vars for indices in read for i in indices[:-1] if not last & indices[-1].vars)


def _looks_up(program: Program, stage: Stage) -> bool:
    """Whether lanes along the rows of what a stage reads look up their places: slower than what they read."""
    last = (index for ld in stmt_loads(stage.body) for index in physical(program, ld).indices[-1:])
    return any(True for index in last for _ in walk_index(index))


def _ends_in_one(program: Program, stage: Stage) -> bool:
    """Whether all that reads a stage's result, directly or not, ends in one stage, element by element."""
    left = [stage]
    while len(left) > 1 or left == [stage]:
        # the earliest: whatever else is left may read it
        first = min(left, key=program.stages.index)
        if not _is_temporary(program, first):
            return False
        buffer = first.writes[0]
        readers = program.consumers(buffer)
        if not readers or any(r.is_reduction or not reads_in_place(r, buffer) for r in readers):
            return False
        left = [s for s in dict.fromkeys((*left, *readers)) if s is not first]
    return not any(it.kind == "ord" for it in left[0].iters)


def _follows_contraction(program: Program, stage: Stage) -> bool:
    """Whether a stage is the only reader of a contraction's result, and reads it element by element."""
    for name in stage.reads:
        producers = program.producers(name)
        if len(producers) != 1 or program.consumers(name) != (stage,) or not reads_in_place(stage, name):
            continue
        found = match_contraction(program, producers[0], stage)
        if found is not None and found.b is not None:
            return True
    return False


def _repeats(producer: Stage, consumer: Stage) -> float:
    """How often a reduction reads each element of a producer."""

    def count(s: Stage) -> int:
        n = 1
        for it in s.iters:
            n *= it.extent.as_int() if it.extent.is_const else 64
        return n

    return count(consumer) / max(1, count(producer))


def _has_boundary(value: Expr) -> bool:
    return any(
        isinstance(e, Select)
        and any(isinstance(c, Compare) and isinstance(c.a, OfIndex) for c in walk(e.cond))
        for e in walk(value)
    )
