"""Tensor maps: what a launch says of arguments that an instruction copies boxes of (CUDA's ``CUtensorMap``).

Limits: CUDA Driver API, ``cuTensorMapEncodeTiled``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

#: Element types, as maps call them: tf32 are numbers of f32 that are rounded as they are copied.
TYPES: Final = ("f16", "bf16", "f32", "tf32")
BYTES: Final = (2, 2, 4, 4)
#: Dimensions at most, elements of a box along each, and what strides in bytes are multiples of.
MOST_RANK: Final = 5
MOST_BOX: Final = 256
STRIDE_BYTES: Final = 16
SWIZZLES: Final = (0, 32, 64, 128)
_HEAD: Final = 3


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A box of an argument: what a launch makes a tensor map of.

    ``buffer`` is the number of the argument among a kernel's buffers; ``shape``, ``strides`` (elements) and
    ``box`` are slowest first. ``swizzle`` are the bytes of rows whose pieces are turned, 0: none.
    """

    buffer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return BYTES[TYPES.index(self.dtype)]

    def numbers(self) -> tuple[int, ...]:
        """The map as numbers, which files hold."""
        head = (self.buffer, TYPES.index(self.dtype), self.swizzle)
        return (*head, *self.shape, *self.strides, *self.box)


def read_tensor_map(numbers: Sequence[int], buffers: int) -> TensorMap:
    """The map of numbers from a file, of a kernel with so many buffers. Raises ValueError for others."""
    rank, rest = divmod(len(numbers) - _HEAD, 3)
    if rest or not 1 <= rank <= MOST_RANK:
        raise ValueError("tensor map")
    buffer, kind, swizzle = numbers[:_HEAD]
    sizes = numbers[_HEAD:]
    shape, strides, box = (tuple(sizes[n * rank : (n + 1) * rank]) for n in range(3))
    if not (0 <= buffer < buffers and 0 <= kind < len(TYPES) and swizzle in SWIZZLES):
        raise ValueError("tensor map")
    made = TensorMap(buffer, TYPES[kind], shape, strides, box, swizzle)
    apart = all(s > 0 and s * made.element % STRIDE_BYTES == 0 for s in strides[:-1])
    inside = all(1 <= b <= min(n, MOST_BOX) for b, n in zip(box, shape, strict=True))
    if not apart or strides[-1] != 1 or not inside:
        raise ValueError("tensor map")
    if prod(shape) > 1 << 40:
        raise ValueError("tensor map")
    return made
