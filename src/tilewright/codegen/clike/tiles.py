"""How tiles lie in shared memory, and what of that descriptors of matrices and of boxes can say.

Rows of 128, 64 or 32 bytes follow each other; pieces of 16 bytes of each row are turned by bits of the row's
address, so that what is read along columns comes from different banks (PTX ISA, "Shared Memory Matrix
Layout" and "Tensor Swizzling Modes": bits 4-6 of an address are xor-ed with bits 7-9, or fewer of them).

Where elements lie is asked of the layouts themselves: places are computed for all elements of an operand and
for values of all variables around, and compared with what the hardware does with a descriptor.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.ir import Env, Index, evaluate_index, int_range, simplify

Places: TypeAlias = npt.NDArray[np.int64]

#: Bytes of rows that are turned, with how many bits, and how a descriptor of a matrix calls them.
SWIZZLES: Final[tuple[tuple[int, int, int], ...]] = ((128, 7, 1), (64, 3, 2), (32, 1, 3))
#: Rows that a pattern repeats after.
ROWS: Final = 8
#: Values of a variable, and of all together, that places are computed for.
MOST_VALUES: Final = 8
MOST_POINTS: Final = 256


def unturned(places: Places, bits: int) -> Places:
    """Bytes before they are turned; turning again gives the places back."""
    return places ^ (((places >> 7) & bits) << 4)


def values(names: Sequence[str], env: Env) -> Iterator[dict[str, int]] | None:
    """Values of variables, first and last among them; ``None`` where one has no known range."""
    ranges: list[list[int]] = []
    for name in names:
        if name not in env:
            return None
        low, high = (int_range(simplify(end, env), env)[n] for n, end in enumerate(env[name]))
        if low is None or high is None:
            return None
        few = [*range(low, min(high, low + MOST_VALUES - 2) + 1), high]
        ranges.append(list(dict.fromkeys(few)))
    points = itertools.product(*ranges)
    every = max(1, int(np.prod([len(r) for r in ranges], initial=1)) // MOST_POINTS)
    return (dict(zip(names, p, strict=True)) for p in itertools.islice(points, 0, None, every))


def placed(x: Index, at: Mapping[str, int | Places]) -> Places:
    """The values of an index over arrays of values of its variables."""
    return np.asarray(evaluate_index(x, at), np.int64)  # type: ignore[arg-type]  # arithmetic on arrays


@dataclass(frozen=True, slots=True)
class MatrixPlace:
    """What a descriptor says of a matrix operand: bytes between its groups, its swizzle, and which axis lies.

    ``turned``: elements along the other axis than the sums' lie together.
    """

    leading: int
    stride: int
    mode: int
    turned: bool


def matrix_place(places: Places, nbytes: int) -> MatrixPlace | None:
    """The descriptor for elements ``[row, k]`` of a matrix, whose first one's place is any (in bytes)."""
    rows, depth = places.shape
    row, k = np.ogrid[:rows, :depth]
    for width, bits, mode in SWIZZLES:
        flat = unturned(places, bits)
        if flat[0, 0] != places[0, 0] or flat[0, 0] % (ROWS * width) >= width:
            continue
        apart, n = flat - flat[0, 0], width // nbytes
        stride = int(apart[ROWS, 0]) if rows > ROWS else ROWS * width
        if np.array_equal(apart, row // ROWS * stride + row % ROWS * width + k * nbytes):
            return MatrixPlace(16, stride, mode, False)
        stride = int(apart[0, ROWS]) if depth > ROWS else ROWS * width
        leading = int(apart[n, 0]) if rows > n else ROWS * width
        lies = row // n * leading + k // ROWS * stride + k % ROWS * width + row % n * nbytes
        if np.array_equal(apart, lies):
            return MatrixPlace(leading, stride, mode, True)
    return None


def box_swizzle(places: Places, inner_bytes: int, nbytes: int) -> int | None:
    """Bytes of the swizzle of a box whose elements are given in order; ``None``: it lies otherwise.

    0: as it is, row after row.
    """
    flat = places.reshape(-1)
    row = np.arange(flat.size, dtype=np.int64) * nbytes
    if flat[0] % 128 == 0 and np.array_equal(flat - flat[0], row):
        return 0
    for width, bits, _ in SWIZZLES:
        apart = unturned(flat, bits)
        if width == inner_bytes and flat[0] % (ROWS * width) == 0 and np.array_equal(apart - flat[0], row):
            return width
    return None
