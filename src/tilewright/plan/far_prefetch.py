"""Requests for what comes from main memory, ahead of its use: when they pay, how far ahead, and how often."""

from __future__ import annotations

from math import prod
from typing import Final

from tilewright.cost import buffer_bytes, comes_from_memory, last_cache, whole_cache
from tilewright.ir import Buffer, Load
from tilewright.target import Target

#: Up to so many times the whole last cache level, something of what is read is left there.
NEAR: Final = 2
#: Part of the first cache level ahead of which reductions of several operations a vector ask for what they
#: read. Extrema take three, as NaN must stay, and a core has room for so many waiting ones only: the loads
#: among them are too few to cover the way to the third level. Zen 5 (48 KB), us, 16, 67 and 67 MB of 4096,
#: 4096 and 256 columns: 82, 573, 565; with a twelfth 68, 519, 548; a sixth 68, 473, 494; a quarter 73, 447,
#: 468. Sums, one operation, 354 us: 421, 388, 386. Products with four columns: 7680x4x2560 1.16 -> 1.00 ms,
#: 6144x4x2048 0.66 -> 0.58, but 3072x4x1024, whose columns stay in the first level, 0.071 -> 0.075.
LEVEL_AHEAD: Final = 1 / 6
#: The same from beyond this part of the last level.
FAR, LEVEL_AHEAD_FAR = 0.5, 1 / 4


def stride(buffer: Buffer, load: Load, axis: str) -> int:
    """Elements between what neighbouring iterations of an axis read of a buffer in its plain order."""
    shape = [e.as_int() for e in buffer.shape]
    return sum(i.coefficient(axis) * prod(shape[n + 1 :]) for n, i in enumerate(load.indices))


def requests(buffer: Buffer, target: Target) -> int:
    """How often each line of an operand is asked for; 0 where it may be in the caches: there it costs 20%."""
    if not comes_from_memory(buffer, target):
        return 0
    near, far = target.far_requests
    return near if buffer_bytes(buffer) <= NEAR * whole_cache(target) else far


def further(buffer: Buffer, elements: int, target: Target) -> str:
    """The hint ``prefetch`` that asks for what lies so many elements further on."""
    return ",".join([f"{buffer.name}+{elements}"] * requests(buffer, target))


def steps_ahead(buffer: Buffer, steps: int, target: Target) -> str:
    """The hint ``prefetch`` that asks for what so many iterations later read."""
    return ",".join([f"{buffer.name}@{steps}"] * requests(buffer, target))


def into_first_level(buffer: Buffer, rows: int, target: Target) -> str:
    """The hint that asks ahead into the first level for so many rows at a time; empty from the second one."""
    l1, l2 = (target.level(name).size or 0 for name in ("l1", "l2"))
    nbytes = buffer_bytes(buffer)
    share = LEVEL_AHEAD_FAR if nbytes > FAR * last_cache(target) else LEVEL_AHEAD
    return f"{buffer.name}+{int(share * l1) // (buffer.dtype.bytes * rows)}:1" if nbytes > l2 else ""
