"""Convolution, bias and ReLU in a blocked layout with an unfolded input, all of it written as a schedule.

    python examples/blocked_convolution.py

The program phase changes layouts by rewriting indices: channels in blocks of a vector, columns in tiles, the
input's columns in overlapping tiles, so that each output tile reads one input tile. The loop phase keeps a
tile's sums in registers and applies bias and ReLU to them there.
"""

from __future__ import annotations

import numpy as np

from tilewright import lang
from tilewright.build import build
from tilewright.ir import Program
from tilewright.schedule import Schedule, pack_argument, unpack_argument


def program(oc: int = 32, ic: int = 8, h: int = 14, w: int = 14) -> Program:
    """A 3x3 convolution of an input that has its border, bias, ReLU; ``h x w`` is the output's size."""
    X = lang.placeholder((ic, h + 2, w + 2), name="X")
    W = lang.placeholder((oc, ic, 3, 3), name="W")
    b = lang.placeholder((oc,), name="b")
    c, r, s = lang.reduce_axis(ic, "ic"), lang.reduce_axis(3, "kh"), lang.reduce_axis(3, "kw")
    Y = lang.compute(
        (oc, h, w),
        lambda oc, oh, ow: lang.sum(X[c, oh + r, ow + s] * W[oc, c, r, s], axis=(c, r, s)),
        name="Y",
    )
    Z = lang.compute((oc, h, w), lambda oc, oh, ow: lang.relu(Y[oc, oh, ow] + b[oc]), name="Z")
    return lang.program([X, W, b], [Z], name="conv")


def layouts(s: Schedule, *, lanes: int = 16, columns: int = 7) -> Schedule:
    """Program phase: Y and Z as [oc/lanes, oh, ow/columns, columns, lanes], X and W to match."""
    for tensor in ("Y", "Z"):
        s = s.layout_split(tensor, 0, (-1, lanes)).layout_split(tensor, 3, (-1, columns))
        s = s.layout_reorder(tensor, (0, 2, 3, 4, 1))
    s = s.layout_split("W", 0, (-1, lanes)).layout_reorder("W", (0, 2, 3, 4, 1))
    s = s.layout_split("b", 0, (-1, lanes))
    # tile t of the input's columns holds columns*t .. columns*t + columns + 1: neighbours share two columns
    return s.layout_unfold("X", 2, columns + 2, columns)


def loops(s: Schedule) -> Schedule:
    """Loop phase: a tile of columns x lanes in registers, bias and ReLU on it, rows in parallel."""
    s = s.compute_at("Y", "Z_ow_o").set_scope("Y", "register")
    pars = [v for v in s.loops("Y") if v in ("Y_ow_i", "Y_oc_i")]
    reds = ["Y_ic", "Y_kh", "Y_kw"]
    s = s.reorder(*reds, *pars).decompose_init("Y", "Y_ic")
    for nest in (("Y_ow_i_init", "Y_oc_i_init"), ("Y_ow_i", "Y_oc_i"), ("Z_ow_i", "Z_oc_i")):
        s = s.unroll(nest[0]).vectorize(nest[1])
    s = s.unroll("Y_kw").annotate("Z_ow_o", "outline")
    return s.fuse("Z_oc_o", "Z_oh", names=("rows",)).parallel("rows")


def run(s: Schedule, X: np.ndarray, W: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Run natively on arrays in the program's own layouts."""
    steps = s.trace.steps
    packed = {n: pack_argument(a, n, steps) for n, a in {"X": X, "W": W, "b": b}.items()}
    (Z,) = build(s)(**packed)
    shape = (W.shape[0], X.shape[1] - 2, X.shape[2] - 2)
    return unpack_argument(Z, "Z", shape, steps)


def main() -> None:
    plain = Schedule(program())
    blocked = layouts(plain)
    scheduled = loops(blocked)
    for s in (plain, blocked, scheduled):
        print(s, end="\n\n")
    print(scheduled.trace)
    rng = np.random.default_rng(0)
    shapes = ((8, 16, 16), (32, 8, 3, 3), (32,))
    X, W, b = (rng.standard_normal(shape, np.float32) for shape in shapes)
    expected = lang.evaluate(program(), [X, W, b], dtype_override="f64")["Z"]
    print(f"largest difference {np.abs(run(scheduled, X, W, b) - expected).max():.2g}")


if __name__ == "__main__":
    main()
