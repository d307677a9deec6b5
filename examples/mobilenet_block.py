"""MobileNet's block (expand 1x1, depthwise 3x3, project 1x1, ReLU6 between) as one kernel, scheduled by hand.

    python examples/mobilenet_block.py

The projection's reduction runs over blocks of expanded channels; inside it a thread computes one such block
of its band of rows, and only that much of the expanded tensor ever exists. Sums of the band stay in a buffer
of the thread's own, and a register tile of them takes in a block of channels at a time.
"""

from __future__ import annotations

import numpy as np

from tilewright import lang
from tilewright.build import build
from tilewright.ir import Program
from tilewright.schedule import Schedule


def program(h: int, w: int, ci: int, e: int, co: int, stride: int = 1) -> Program:
    """``h x w`` pixels of ``ci`` channels, stored pixel by pixel, expanded to ``e``, projected to ``co``.

    The depthwise stage has a border of one pixel and the stride; the projection has a bias and no ReLU6.
    """
    X = lang.placeholder((h, w, ci), name="X")
    W1, b1 = lang.placeholder((ci, e), name="W1"), lang.placeholder((e,), name="b1")
    Wd, bd = lang.placeholder((3, 3, e), name="Wd"), lang.placeholder((e,), name="bd")
    W2, b2 = lang.placeholder((e, co), name="W2"), lang.placeholder((co,), name="b2")
    c, k = lang.reduce_axis(ci, "c"), lang.reduce_axis(e, "k")
    r, q = lang.reduce_axis(3, "r"), lang.reduce_axis(3, "q")
    oh, ow = (h - 1) // stride + 1, (w - 1) // stride + 1
    E0 = lang.compute((h, w, e), lambda y, x, m: lang.sum(X[y, x, c] * W1[c, m], axis=c), name="E0")
    E = lang.compute((h, w, e), lambda y, x, m: lang.clamp(E0[y, x, m] + b1[m], 0.0, 6.0), name="E")
    P = lang.boundary(E, value=0)
    D0 = lang.compute(
        (oh, ow, e),
        lambda y, x, m: lang.sum(P[stride * y + r - 1, stride * x + q - 1, m] * Wd[r, q, m], axis=(r, q)),
        name="D0",
    )
    D = lang.compute((oh, ow, e), lambda y, x, m: lang.clamp(D0[y, x, m] + bd[m], 0.0, 6.0), name="D")
    Y0 = lang.compute((oh, ow, co), lambda y, x, o: lang.sum(D[y, x, k] * W2[k, o], axis=k), name="Y0")
    Y = lang.compute((oh, ow, co), lambda y, x, o: Y0[y, x, o] + b2[o], name="Y")
    return lang.program([X, W1, b1, Wd, bd, W2, b2], [Y], name="block")


def _tile(s: Schedule, block: str, pixels: int, channel: str, vectors: tuple[int, int]) -> Schedule:
    """A row in tiles of ``pixels`` (``_xt``), channels in tiles of (number, lanes) of vectors (``_ct``)."""
    s = s.split(f"{block}_x", pixels, names=(f"{block}_xt", f"{block}_xi"))
    names = (f"{block}_ct", f"{block}_cv", f"{block}_ci")
    return s.split(f"{block}_{channel}", vectors, names=names)


def _expand(s: Schedule, block: str) -> Schedule:
    """The innermost loop as one vector, those from the pixels of a tile down to it unrolled."""
    *outer, lanes = s.loops(block)
    pixels = next(n for n, loop in enumerate(outer) if "_x" in loop and "_xt" not in loop)
    for loop in outer[pixels:]:
        s = s.unroll(loop)
    return s.vectorize(lanes)


def fused(
    source: Program,
    *,
    band: int = 7,
    block: int = 32,
    pixels: int = 14,
    expanded: tuple[int, int] = (2, 16),
    projected: tuple[int, int] = (2, 16),
) -> Schedule:
    """One kernel: ``band`` rows of the result a thread at a time, ``block`` expanded channels at a time.

    Register tiles are ``pixels`` of a row times ``expanded`` (vectors, lanes) for the expansion and times
    ``projected`` for the projection, one vector for the depthwise stage. Neighbouring bands both compute the
    rows of the expansion that they share.
    """
    s = Schedule(source).skip_padding("D0")
    s = s.split("Y_y", band, names=("band", "Y_r")).compute_at("Y0", "band").set_scope("Y0", "local")
    s = _tile(s.split("Y0_k", block, names=("block", "k")), "Y0", pixels, "o", projected)
    s = s.reorder("block", "Y0_y", "Y0_ct", "Y0_xt", "k", "Y0_xi", "Y0_cv", "Y0_ci")
    # a row of the depthwise stage is projected at once; the expansion covers the band and its border
    s = s.compute_at("D", "Y0_y").set_scope("D", "local")
    s = _tile(s, "D", pixels, "m", (1, expanded[1])).reorder("D_ct", "D_xt", "D_xi", "D_cv", "D_ci")
    s = s.compute_at("D0", "D_xt").set_scope("D0", "register")
    s = s.compute_at("E", "block").set_scope("E", "local")
    s = _tile(s, "E", pixels, "m", expanded).reorder("E_ct", "E_y", "E_xt", "E_xi", "E_cv", "E_ci")
    s = s.compute_at("E0", "E_xt").set_scope("E0", "register")

    s = s.decompose_init("Y0", "block").cache("Y0", "Y0_xt", mode="accumulate", scope="register", name="acc")
    s = s.split("E0_m", expanded[1]).reorder("E0_c", "E0_x", "E0_m_o", "E0_m_i").decompose_init("E0", "E0_c")
    s = s.reorder("D0_r", "D0_q", "D0_x", "D0_m").decompose_init("D0", "D0_r").unroll("D0_q")
    for loop in ("acc_o", "acc_out_o", "Y_o"):
        s = s.split(loop, projected[1])
    for name in ("E0_init", "E0", "E", "D0_init", "D0", "D", "acc", "Y0", "acc_out"):
        s = _expand(s, name)
    s = s.vectorize(s.loops("Y0_init")[-1]).vectorize(s.loops("Y")[-1])
    # the depthwise stage's tiles at the left and the right border have conditions of their own
    tiles = s.loop("D_xt").extent.as_int()
    if tiles > 1:
        s = s.partition("D_xt", 1)
    if tiles > 2:
        s = s.partition("D_xt_1", -1)
    return s.parallel("band")


def arguments(source: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Random arrays by name, sized so that ReLU6 cuts on both sides."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for b in source.inputs:
        shape = tuple(n.as_int() for n in b.shape)
        terms = {"W1": shape[0], "Wd": 2, "W2": shape[0]}.get(b.name, 1)
        arrays[b.name] = (4 / terms**0.5 * rng.standard_normal(shape)).astype(np.float32)
    return arrays


def main() -> None:
    s = fused(program(14, 14, 16, 64, 32))
    print(s, end="\n\n")
    print(s.trace)
    arrays = arguments(s.source)
    (Y,) = build(s)(**arrays)
    expected = lang.evaluate(s.source, arrays, dtype_override="f64")["Y"]
    print(f"largest difference {np.abs(Y - expected).max():.2g} of {np.abs(expected).max():.2g}")


if __name__ == "__main__":
    main()
