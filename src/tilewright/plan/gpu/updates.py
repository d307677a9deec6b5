"""What threads of a GPU update at once: integers that are scattered, and sums that blocks have parts of.

Scatters that replace elements are done so as well: threads find the last write to each element, then do it.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tilewright.ir import (
    ATOMIC_TYPES,
    DTYPES,
    DType,
    Load,
    Program,
    Stage,
    Store,
    atomic_update,
    condition_of,
    loads,
    stmt_loads,
    update_at_once,
)
from tilewright.plan.fallback import fell_back
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import WIDE_ATOMICS, GpuTarget

#: Writes that one thread may do in order.
FEW_WRITES: Final = 32
#: Elements that are gone over for each write, at most.
MOST_ELEMENTS: Final = 1024


def has_atomics(dtype: DType, target: GpuTarget) -> bool:
    """Whether threads of a device can update elements of a type at once."""
    narrow = dtype.bits == DTYPES["i32"].bits
    wide = target.language != "opencl" or WIDE_ATOMICS in target.features
    return dtype.name in ATOMIC_TYPES and (narrow or wide)


def are_atomic(stage: Stage, target: GpuTarget) -> bool:
    """Whether threads do the updates of a stage at once: of integers, at places that data say."""
    _, body = condition_of(stage.body)
    update = None if stage.init is not None else atomic_update(body, [it.kind for it in stage.iters])
    if update is None or not has_atomics(update.value.dtype, target):
        return False
    # where data say nothing, parallel iterators give each element to one thread
    return any(sum(1 for _ in loads(ld)) > 1 for ld in stmt_loads(body) if ld.buffer == update.buffer)


def share_writes(s: Schedule) -> Schedule:
    """Scatters that replace elements, for all threads: in order they would be one's, or a few's."""
    for stage in s.require_program().stages:
        extents = [it.extent for it in stage.iters]
        held = s.require_program().buffer(stage.writes[0]).shape
        if not all(n.is_const for n in (*extents, *held)) or not any(it.kind == "ord" for it in stage.iters):
            continue
        each = prod(it.extent.as_int() for it in stage.iters if it.kind == "ord")
        writes, elements = prod(n.as_int() for n in extents), prod(n.as_int() for n in held)
        # with all of its elements to go over, a scatter of few to many is slower
        if each < FEW_WRITES or elements > writes * MOST_ELEMENTS or not _replaces(stage):
            continue
        try:
            s = s.last_writes(stage.name, f"{stage.name}_last")
        except ScheduleError as error:
            s = fell_back(s, f"{stage.name} replaces elements in order", error)
    return s


def _replaces(stage: Stage) -> bool:
    """Whether a stage writes elements at places that data say, and reads none of what it changes."""
    _, body = condition_of(stage.body)
    if not isinstance(body, Store) or len(body.writes) != 1 or stage.init is not None:
        return False
    (write,) = body.writes
    place = Load(write.buffer, write.indices, write.value.dtype)
    return sum(1 for _ in loads(place)) > 1 and all(ld.buffer != write.buffer for ld in stmt_loads(body))


def joined_at_once(program: Program, parts: Stage, target: GpuTarget) -> tuple[Stage, Load] | None:
    """The stage that alone joins parts of sums of integers, whose blocks can do so themselves.

    Also returns what it reads of the parts: its one reduction axis, then its own axes; ``None`` for others.
    """
    (name,) = parts.writes
    readers = program.consumers(name)
    if len(readers) != 1 or name in {b.name for b in program.outputs}:
        return None
    (joined,) = readers
    update = update_at_once(joined.body)
    reds = [it.name for it in joined.iters if it.kind == "red"]
    if joined.init is None or update is None or not has_atomics(update.value.dtype, target):
        return None
    read = update.value
    if not isinstance(read, Load) or read.buffer != name or len(reds) != 1:
        return None
    own = [*reds, *(it.name for it in joined.iters if it.kind == "par")]
    return (joined, read) if [i.as_var() for i in read.indices] == own else None
