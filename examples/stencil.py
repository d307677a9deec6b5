"""Two 3x3 blurs of an image of any size: unfused, fused with overlapping tiles, and sliding in bands.

    python examples/stencil.py [--height 37 --width 53]

The sizes are symbolic: one kernel serves every image.
"""

from __future__ import annotations

import argparse
from typing import Final

import numpy as np

from tilewright import lang
from tilewright.build import build
from tilewright.ir import Program
from tilewright.schedule import Schedule

LARGEST: Final = 1 << 14
"""Largest height and width, in pixels."""


def program(*, keep_first: bool = False) -> Program:
    """C = blur(T), T = blur(X), without borders; with ``keep_first`` T is an output too."""
    H, W = lang.param("H", hi=LARGEST), lang.param("W", hi=LARGEST)
    X = lang.placeholder((H + 4, W + 4), name="X")

    def blur(image):
        def row(y, x):
            return image[y, x] * 0.25 + image[y, x + 1] * 0.5 + image[y, x + 2] * 0.25

        return lambda y, x: row(y, x) * 0.25 + row(y + 1, x) * 0.5 + row(y + 2, x) * 0.25

    T = lang.compute((H + 2, W + 2), blur(X), name="T")
    C = lang.compute((H, W), blur(T), name="C")
    return lang.program([X], [T, C] if keep_first else [C], name="blurs")


def _jam(s: Schedule, block: str, rows: int, lanes: int) -> Schedule:
    """Vectors of ``lanes`` pixels, ``rows`` rows at a time, so that neighbours share what they load.

    Only the last vector of a row is masked, and rows that are left over are a copy of their own.
    """
    y, x = s.loops(block)[-2:]
    whole = s.loop(x).extent.is_const and s.loop(x).extent.as_int() % lanes == 0
    s = s.split(y, rows, tail="peel").split(x, lanes)
    s = s.reorder(f"{y}_o", f"{x}_o", f"{y}_i").unroll(f"{y}_i").vectorize(f"{x}_i")
    return s if whole else s.partition(f"{x}_o", -1)


def _vectorise_rest(s: Schedule, lanes: int) -> Schedule:
    """Vectors, masked where needed, in every block that has none yet."""
    for block in s.blocks():
        x = s.loops(block)[-1]
        if s.loop(x).kind.name != "vector":
            s = s.split(x, lanes).vectorize(f"{x}_i")
    return s


def unfused(lanes: int = 16, *, rows: int = 1, keep_first: bool = False) -> Schedule:
    """Each stage on its own: rows in parallel (``rows`` of them at a time), vectors along the width."""
    s = Schedule(program(keep_first=keep_first))
    for block in ("T", "C"):
        y, x = s.loops(block)
        if rows == 1:
            s = s.parallel(y).split(x, lanes).vectorize(f"{x}_i").partition(f"{x}_o", -1)
        else:
            s = s.split(y, rows, tail="peel").parallel(f"{y}_o").split(x, lanes)
            s = s.reorder(f"{x}_o", f"{y}_i").unroll(f"{y}_i").vectorize(f"{x}_i").partition(f"{x}_o", -1)
    return _vectorise_rest(s, lanes)


def fused(tile: tuple[int, int] = (60, 1006), *, rows: tuple[int, int] = (6, 6), lanes: int = 16) -> Schedule:
    """The first blur inside the tiles of the second: each tile computes the two rows and columns it shares.

    ``tile`` is in pixels of the result, ``rows`` how many rows of the first and of the second blur are
    computed together.
    """
    s = Schedule(program())
    s = s.tile(["C_y", "C_x"], tile).parallel("C_y_o")
    s = s.compute_at("T", "C_x_o").set_scope("T", "local").annotate("C_x_o", "outline")
    # tiles at the lower and the right border are copies with conditions; those inside have none
    s = s.partition("C_y_o", -1).partition("C_x_o", -1).partition("C_x_o_1", -1)
    s = _jam(_jam(s, "T", rows[0], lanes), "C", rows[1], lanes)
    return _vectorise_rest(s, lanes)


def sliding(tile: tuple[int, int] = (60, 1006), *, rows: int = 6, lanes: int = 16) -> Schedule:
    """Overlapping bands of tiles; inside a band each row is blurred once and kept in a rolling buffer."""
    s = Schedule(program())
    s = s.tile(["C_y", "C_x"], tile).parallel("C_y_o").split("C_y_i", rows)
    s = s.compute_at("T", "C_y_i_o").slide("T", "C_y_i_o").roll("T", 0, rows + 2).set_scope("T", "local")
    s = s.partition("C_y_o", -1).partition("C_x_o", -1).partition("C_x_o_1", -1)
    for block, count in (("T_first", 2), ("T", rows), ("C", rows)):
        s = _jam(s, block, count, lanes)
    return _vectorise_rest(s, lanes)


def reference(X: np.ndarray) -> np.ndarray:
    """The two blurs by numpy, in double precision."""
    out = X.astype(np.float64)
    for _ in range(2):
        h, w = out.shape
        out = 0.25 * out[: h - 2] + 0.5 * out[1 : h - 1] + 0.25 * out[2:]
        out = 0.25 * out[:, : w - 2] + 0.5 * out[:, 1 : w - 1] + 0.25 * out[:, 2:]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--height", type=int, default=37)
    parser.add_argument("--width", type=int, default=53)
    args = parser.parse_args()
    X = np.random.default_rng(0).standard_normal((args.height + 4, args.width + 4), np.float32)
    small = fused((4, 8), rows=(3, 2), lanes=4)
    print(small.trace)
    print(Schedule(program()).tile(["C_y", "C_x"], (4, 8)).compute_at("T", "C_x_o"))
    for make in (unfused, fused, sliding):
        (C,) = build(make())(X)
        print(f"{make.__name__}: largest difference {np.abs(C - reference(X)).max():.2g}")


if __name__ == "__main__":
    main()
