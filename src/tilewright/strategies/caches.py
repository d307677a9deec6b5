"""What default schedules ask about caches: the size of the last level, and what buffers take of it."""

from __future__ import annotations

from math import prod
from typing import Final

from tilewright.ir import Buffer
from tilewright.target import Target

#: Bytes of the last cache level of a machine that does not say.
UNKNOWN: Final = 1 << 23


def last_cache(target: Target) -> int:
    """Bytes of the last cache level."""
    return max((level.size for level in target.memory if level.size is not None), default=UNKNOWN)


def buffer_bytes(b: Buffer) -> int:
    """Bytes of a buffer; 0 where its size is known only when it runs."""
    shape = b.physical_shape
    return prod(e.as_int() for e in shape) * b.dtype.bytes if all(e.is_const for e in shape) else 0
