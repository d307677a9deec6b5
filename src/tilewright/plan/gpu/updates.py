"""What threads of a GPU update at once: integers that are scattered, and sums that blocks have parts of."""

from __future__ import annotations

from tilewright.ir import (
    ATOMIC_TYPES,
    DTYPES,
    DType,
    Load,
    Program,
    Stage,
    atomic_update,
    condition_of,
    loads,
    stmt_loads,
    update_at_once,
)
from tilewright.target import WIDE_ATOMICS, GpuTarget


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
