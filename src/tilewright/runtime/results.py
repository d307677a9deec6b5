"""Arrays for the results of runs: the memory of results that nobody holds any more is used again.

A result that is dropped leaves its memory, mostly still in the caches, to the next run; for small models
allocating it would take as long as computing it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.runtime.memory import aligned_empty

RECYCLED_BYTES: Final = 4 << 20
"""Results of at most so many bytes are used again; of larger ones the native allocator keeps the memory."""
RECYCLED: Final = 2
"""Blocks kept for each result: one that the caller may hold from the last run, and one for this run."""

Array = npt.NDArray[Any]


class _Block:
    """Memory of one result. Arrays handed out are views, and hold a reference to its ``owner``."""

    __slots__ = ("_alone", "array", "owner")

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.array = aligned_empty(shape, dtype)
        # numpy refers views of views to the array at the bottom
        self.owner = self.array.view().base
        self._alone = sys.getrefcount(self.owner)

    @property
    def free(self) -> bool:
        """Whether no view of it is left."""
        return sys.getrefcount(self.owner) == self._alone


_Place: TypeAlias = tuple[np.dtype[Any], tuple[int, ...], list[_Block] | None]


class Results:
    """Makes the arrays that runs write to, each of a given element type and shape, aligned to 64 bytes.

    Any number of Python threads may take arrays at once.
    """

    def __init__(self, kinds: Sequence[tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
        self._places: tuple[_Place, ...] = tuple(
            (dtype, shape, _keeps(dtype, shape)) for dtype, shape in kinds
        )

    def take(self) -> list[Array]:
        """New arrays of undefined content, in order. Raises ResourceError if there is no memory for them."""
        return [
            aligned_empty(shape, dtype) if kept is None else _take(dtype, shape, kept)
            for dtype, shape, kept in self._places
        ]

    def trim(self) -> None:
        """Forget the memory kept for runs to come."""
        for _, _, kept in self._places:
            if kept is not None:
                kept.clear()


def _keeps(dtype: np.dtype[Any], shape: tuple[int, ...]) -> list[_Block] | None:
    """Where blocks of a result are kept, oldest first; ``None`` where they are not."""
    return [] if math.prod(shape) * dtype.itemsize <= RECYCLED_BYTES else None


def _take(dtype: np.dtype[Any], shape: tuple[int, ...], kept: list[_Block]) -> Array:
    # who takes a block out of the list has it alone: `pop` and `append` are atomic
    try:
        block = kept.pop(0)
    except IndexError:
        block = _Block(dtype, shape)
    if not block.free:
        if len(kept) + 1 < RECYCLED:
            kept.append(block)
        block = _Block(dtype, shape)
    array = block.array.view()
    kept.append(block)
    return array
