"""A chain of two vertical stencils in which the first keeps only two rows: a rolling buffer.

    python examples/rolling_rows.py

``compute_at`` computes the rows that each row of the result needs, ``slide`` only the new one of them, and
``roll`` keeps two rows of storage instead of the whole image. Strips of columns run in parallel, each with
two rows of its own.
"""

from __future__ import annotations

import numpy as np

from tilewright import lang
from tilewright.build import build
from tilewright.ir import Program
from tilewright.schedule import Schedule


def program() -> Program:
    """D[y] = T[y] * T[y + 1] with T[y] = X[y] + X[y + 1], of symbolic height and width."""
    H, W = lang.param("H", hi=1 << 14), lang.param("W", hi=1 << 14)
    X = lang.placeholder((H + 2, W), name="X")
    T = lang.compute((H + 1, W), lambda y, x: X[y, x] + X[y + 1, x], name="T")
    D = lang.compute((H, W), lambda y, x: T[y, x] * T[y + 1, x], name="D")
    return lang.program([X], [D], name="rows")


def schedule(strip: int = 256, lanes: int = 16) -> Schedule:
    """Strips of columns in parallel, rows from top to bottom, two rows of T stored."""
    s = Schedule(program())
    s = s.split("D_x", strip).reorder("D_x_o", "D_y").parallel("D_x_o")
    s = s.compute_at("T", "D_y").slide("T", "D_y").roll("T", 0, 2).set_scope("T", "local")
    for block in s.blocks():
        x = s.loops(block)[-1]
        s = s.split(x, lanes).vectorize(f"{x}_i")
    return s


def main() -> None:
    plain = Schedule(program())
    tiled = plain.split("D_x", 256).reorder("D_x_o", "D_y").parallel("D_x_o")
    at = tiled.compute_at("T", "D_y")
    slid = at.slide("T", "D_y")
    for s in (plain, at, slid, schedule()):
        print(s, end="\n\n")
    X = np.random.default_rng(0).integers(-4, 5, (40, 300)).astype(np.float32)
    (D,) = build(schedule())(X)
    T = X[:-1] + X[1:]
    print(f"largest difference {np.abs(D - T[:-1] * T[1:]).max():.2g}")


if __name__ == "__main__":
    main()
