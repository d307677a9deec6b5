"""Requests for what comes from main memory, ahead of its use: when they pay, how far ahead, and how often."""

from __future__ import annotations

from math import prod
from typing import Final

from tilewright.ir import Buffer, Load
from tilewright.strategies.caches import buffer_bytes, last_cache
from tilewright.target import Target

#: Part of the second cache level that what is asked for may take, until it is used.
NEXT_SHARE: Final = 0.25


def stride(buffer: Buffer, load: Load, axis: str) -> int:
    """Elements between what neighbouring iterations of an axis read of a buffer in its plain order."""
    shape = [e.as_int() for e in buffer.shape]
    return sum(i.coefficient(axis) * prod(shape[n + 1 :]) for n, i in enumerate(load.indices))


def requests(buffer: Buffer, target: Target) -> int:
    """How often each line of an operand is asked for; 0 where it may be in the caches: there it costs 20%."""
    nbytes, kept = buffer_bytes(buffer), last_cache(target)
    if nbytes <= kept:
        return 0
    near, far = target.far_requests
    return near if nbytes <= 2 * kept else far


def further(buffer: Buffer, elements: int, target: Target) -> str:
    """The hint ``prefetch`` that asks for what lies so many elements further on."""
    return ",".join([f"{buffer.name}+{elements}"] * requests(buffer, target))


def steps_ahead(buffer: Buffer, steps: int, target: Target) -> str:
    """The hint ``prefetch`` that asks for what so many iterations later read."""
    return ",".join([f"{buffer.name}@{steps}"] * requests(buffer, target))
