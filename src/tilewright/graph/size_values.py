"""Arrays that hold sizes of a run: arrays of Python's integers and sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graph.model import Array
from tilewright.ir import Size, dtype_of


def array_of_sizes(sizes: Sequence[int]) -> Array:
    """A list of sizes as an array: one of integers where none is of a run."""
    if not any(isinstance(n, Size) for n in sizes):
        return np.array(sizes, np.int64)
    made = np.empty(len(sizes), object)
    made[:] = sizes
    return made


def is_sized(array: Array | None) -> bool:
    """Whether an array holds sizes that only a run knows."""
    return array is not None and array.dtype == object


def without_sizes(array: Array, dtype: str) -> Array:
    """An array of sizes as one of numbers, where it has no sizes."""
    return array if any(isinstance(n, Size) for n in array.flat) else array.astype(dtype_of(dtype).numpy)
