"""A convolution whose reduction is split outside the tile, bias and ReLU only in the last part of it.

    python examples/epilogue_last_block.py

The weights of a block of input channels stay in the cache for the whole image. Between blocks the sums live
in memory: each block loads a tile of them into registers, adds to it and stores it. ``partition`` makes the
last block a copy of its own, and only that copy gets the epilogue: it stores the result, not the sums.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from blocked_convolution import layouts, program as convolution, run
from tilewright import lang
from tilewright.ir import Program
from tilewright.schedule import Schedule

program = partial(convolution, 32, 12, 6, 14)


def _expand(s: Schedule, block: str) -> Schedule:
    """The two innermost loops of a nest: columns unrolled, channels as one vector."""
    columns, channels = (v for v in s.loops(block) if "ow_i" in v or "oc_i" in v)
    return s.unroll(columns).vectorize(channels)


def schedule(source: Program, *, lanes: int = 16, columns: int = 7, block: int = 4) -> Schedule:
    """Input channels in blocks of ``block``, outside of tiles of ``columns`` by ``lanes``."""
    s = layouts(Schedule(source), lanes=lanes, columns=columns)
    s = s.split("ic", block)
    s = s.reorder("oc_o", "ic_o", "oh", "ow_o", "ic_i", "kh", "kw", "ow_i", "oc_i")
    s = s.decompose_init("Y", "ic_o")
    # the last block of input channels is now Y_1, in loops of its own ...
    s = s.partition("ic_o", -1)
    # ... where a tile of the result is final, and takes bias and ReLU along
    s = s.reverse_compute_at("Z", "ow_o_1", keep_storage=True)
    s = s.cache("Y", "ow_o_1", scope="register", mode="accumulate", name="last", keep=False)
    for nest in ("Y_init", "Y_1", "Z", "last"):
        s = _expand(s, nest)
    if "Y" in s.blocks():
        s = s.cache("Y", "ow_o", scope="register", mode="accumulate", name="sums")
        for nest in ("Y", "sums", "sums_out"):
            s = _expand(s, nest)
    return s.parallel("oc_o")


def main() -> None:
    plain = layouts(Schedule(program()))
    s = schedule(program())
    for shown in (plain, s):
        print(shown, end="\n\n")
    print(s.trace)
    rng = np.random.default_rng(0)
    shapes = ((12, 8, 16), (32, 12, 3, 3), (32,))
    X, W, b = (rng.standard_normal(shape, np.float32) for shape in shapes)
    expected = lang.evaluate(program(), [X, W, b], dtype_override="f64")["Z"]
    print(f"largest difference {np.abs(run(s, X, W, b) - expected).max():.2g}")


if __name__ == "__main__":
    main()
