"""Half and twice the size by the taps 1 3 3 1, of planes and of stacks of planes; the same in numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from application import Array, Grid
from tilewright import lang
from tilewright.lang import IndexExpr, Scalar, Tensor

TAPS = ((-1, 1), (0, 3), (1, 3), (2, 1))


def levels_for(h: int, w: int, most: int) -> int:
    """Levels of a pyramid over an image: as many as leave a few pixels, and at most ``most``."""
    return max(2, min(most, min(h, w).bit_length() - 2))


def down(f: Tensor, name: str) -> Tensor:
    """Half the size."""

    def taps(at: Callable[[IndexExpr], Scalar], i: IndexExpr) -> Scalar:
        return (at(2 * i - 1) + 3 * (at(2 * i) + at(2 * i + 1)) + at(2 * i + 2)) * 0.125

    return _separably(f, taps, name)


def up(f: Tensor, name: str) -> Tensor:
    """Twice the size."""

    def taps(at: Callable[[IndexExpr], Scalar], i: IndexExpr) -> Scalar:
        return 0.25 * at(i // 2 - 1 + 2 * (i % 2)) + 0.75 * at(i // 2)

    return _separably(f, taps, name)


def _separably(f: Tensor, taps: Callable[..., Scalar], name: str) -> Tensor:
    if f.rank == 2:
        g = lang.stage(lambda y, x: taps(lambda j: f[y, j], x), name=f"{name}_x")
        return lang.stage(lambda y, x: taps(lambda j: g[j, x], y), name=name)
    g = lang.stage(lambda k, y, x: taps(lambda j: f[k, y, j], x), name=f"{name}_x")
    return lang.stage(lambda k, y, x: taps(lambda j: g[k, j, x], y), name=name)


def halved(f: Grid) -> Grid:
    """:func:`down` in numpy, where ``f`` has all that it reads."""
    rows, columns = (np.arange(-(-(p[0] + 1) // 2), (p[-1] - 2) // 2 + 1) for p in (f.rows, f.columns))
    values = sum(a * b * f.at(2 * rows + i, 2 * columns + j) for i, a in TAPS for j, b in TAPS) / 64
    return Grid(values, rows[0], columns[0])


def doubled(f: Grid, like: Grid) -> tuple[Array, Array, Array]:
    """:func:`up` in numpy at the places of ``like`` where ``f`` has what it reads; its rows and columns."""
    rows, columns = (
        p[(p // 2 - 1 >= q[0]) & (p // 2 + 1 <= q[-1])]
        for p, q in ((np.array(like.rows), f.rows), (np.array(like.columns), f.columns))
    )

    def taps(p: Array) -> list[tuple[Array, float]]:
        return [(p // 2 - 1 + 2 * (p % 2), 0.25), (p // 2, 0.75)]

    return sum(a * b * f.at(i, j) for i, a in taps(rows) for j, b in taps(columns)), rows, columns
