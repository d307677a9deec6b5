"""The storage of allocated buffers, for primitives that change how it is laid out and nothing else."""

from __future__ import annotations

from tilewright.ir import TILE, Buffer, LoopFunction, buffers_of, map_buffers
from tilewright.schedule.common import refusal
from tilewright.support import known_names


def allocated(func: LoopFunction, name: str) -> Buffer:
    """The allocated buffer of that name. Raises ScheduleError for arguments and tile registers."""
    known = buffers_of(func)
    if name not in known:
        raise refusal(
            func, f"there is no buffer {name!r}", hint=known_names(name, sorted(known), "the buffers")
        )
    if any(b.name == name for b in func.buffers) or known[name].scope == TILE:
        raise refusal(
            func,
            f"{name!r} is {'in tile registers' if known[name].scope == TILE else 'an argument'}: "
            "how it is laid out is not for this step to say",
            hint="cache a copy of it",
            buffers=[name],
        )
    return known[name]


def with_storage(func: LoopFunction, buffer: Buffer) -> LoopFunction:
    """The function with an allocated buffer laid out anew; accesses stay, they name logical indices."""
    return func.with_body(map_buffers(func.body, lambda b: buffer if b.name == buffer.name else b))
