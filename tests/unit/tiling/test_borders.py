"""Loops over taps of border tiles: cut where some row of the tile begins or ceases to read padding."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import run_function
from tilewright.schedule import Schedule
from tilewright.tiling.borders import cut_borders


def windowed(size, taps, pad, step=1, rows=4):
    """A 1-D convolution over two channels whose rows are in tiles, the first one with code of its own."""
    x = lang.placeholder((2, size), "f32", "X")
    w = lang.placeholder((2, taps), "f32", "W")
    padded = lang.boundary(x, value=0)
    c, k = lang.reduce_axis(2, "c"), lang.reduce_axis(taps, "k")
    out = (size + 2 * pad - taps) // step + 1
    y = lang.compute(
        (out,), lambda i: lang.sum(padded[c, i * step + k - pad] * w[c, k], axis=[c, k]), name="Y"
    )
    s = Schedule(lang.program([x, w], [y]))
    s = s.skip_padding("Y") if pad else s
    s = s.split("i", rows).reorder("i_o", "k", "c", "i_i").decompose_init("Y", "k").unroll("i_i")
    return s.partition("i_o", 1)


def ranges(s):
    """The ranges of the loops over taps, in program order."""
    found = [s.loop(name) for name in s.loops() if name.split("_")[0] == "k"]
    return [(f.kind.name, f.lo.as_int(), f.hi.as_int()) for f in found]


def assert_equal_results(s):
    rng = np.random.default_rng(1)
    args = {
        b.name: rng.standard_normal([e.as_int() for e in b.shape]).astype("f4")
        for b in s.func.buffers
        if b.name not in s.func.outputs
    }
    got = run_function(s.func, args, seed=3)["Y"]
    np.testing.assert_allclose(got, lang.evaluate(s.source, args)["Y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("taps", "pad", "step", "expected"),
    [
        # the row at the edge misses tap 0 alone; tiles further on keep their loop
        (3, 1, 1, [("serial", 0, 1), ("serial", 1, 3), ("serial", 0, 3)]),
        # rows 0 and 1 begin at taps 3 and 1
        (7, 3, 2, [("serial", 0, 1), ("serial", 1, 3), ("serial", 3, 7), ("serial", 0, 7)]),
        # every tap is a case of its own
        (2, 1, 1, [("unroll", 0, 2), ("serial", 0, 2)]),
        (3, 0, 1, [("serial", 0, 3), ("serial", 0, 3)]),
    ],
)
def test_taps_are_cut_where_rows_meet_the_padding(taps, pad, step, expected):
    s = windowed(64 + taps - 1 - 2 * pad, taps, pad, step)
    cut = cut_borders(s, "Y")
    assert ranges(cut)[: len(expected)] == expected
    assert_equal_results(cut)


def test_the_last_tile_is_cut_at_its_end_and_by_the_rows_that_it_has():
    # 10 rows in tiles of 4: in the last one rows 0 and 1, of which row 1 misses tap 2
    s = windowed(10, 3, 1).partition("i_o_1", -1)
    cut = cut_borders(s, "Y")
    assert ranges(cut)[-2:] == [("serial", 0, 2), ("serial", 2, 3)]
    assert_equal_results(cut)


def test_the_innermost_loop_stays_whole():
    s = windowed(64, 3, 1)
    s = s.reorder("c", "k").reorder("c_1", "k_1")
    assert ranges(cut_borders(s, "Y"))[0] == ("serial", 0, 3)


def test_conditions_on_other_loops_are_left_alone():
    x = lang.placeholder((16,), "f32", "X")
    padded = lang.boundary(x, value=0)
    k, c = lang.reduce_axis(3, "k"), lang.reduce_axis(2, "c")
    y = lang.compute((16,), lambda i: lang.sum(padded[i + k - 1] * (c + 1), axis=[k, c]), name="Y")
    s = Schedule(lang.program([x], [y])).skip_padding("Y")
    assert cut_borders(s, "Y") is s


def test_padding_is_skipped_beside_terms_that_are_left_out_already():
    """A phase of a transposed convolution: taps that are none, and inputs that are none."""
    x, w = lang.placeholder((9,), "f32", "X"), lang.placeholder((4,), "f32", "W")
    padded = lang.boundary(x, value=0)
    t = lang.reduce_axis(3, "t")

    def of(q, r):
        tap = r + 2 * t - 1
        return lang.sum(padded[q - t + 1] * w[tap], axis=t, where=(tap >= 0) & (tap < 4))

    s = Schedule(lang.program([x, w], [lang.compute((9, 2), of, name="Y")])).skip_padding("Y")
    assert "select" not in str(s) and "if r + 2*t - 1 >= 0 and " in str(s)
    assert_equal_results(s)
