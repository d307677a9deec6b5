"""Vectors whose lanes all take one side of a selection: no masks, and nothing is read for the other."""

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.schedule import Schedule


def joined(first, second, lanes=16):
    """Z[b, p, c] = the channels of X and then those of Y, all in blocks, in vectors along a block."""
    X = lang.placeholder((first // lanes, 5, lanes), name="X")
    Y = lang.placeholder((second // lanes, 5, lanes), name="Y")
    blocks = (first + second) // lanes

    def element(b, p, c):
        j = b * lanes + c
        return lang.select(
            j < first, X[j // lanes, p, j % lanes], Y[(j - first) // lanes, p, (j - first) % lanes]
        )

    Z = lang.compute((blocks, 5, lanes), element, name="Z")
    s = Schedule(lang.program([X, Y], [Z]))
    return s.vectorize(s.loops("Z")[-1])


@pytest.mark.parametrize(("first", "second"), [(16, 16), (32, 16), (16, 48)])
def test_conditions_on_which_all_lanes_agree_are_scalars(first, second):
    run = Native(joined(first, second).func)
    x = np.random.default_rng(0).standard_normal((first // 16, 5, 16)).astype(np.float32)
    y = np.random.default_rng(1).standard_normal((second // 16, 5, 16)).astype(np.float32)
    np.testing.assert_array_equal(run({"X": x, "Y": y})["Z"], np.concatenate([x, y]))
    assert "masked" not in run.text.text


@pytest.mark.few(26)
@pytest.mark.parametrize("width", [3, 8, 16])
@pytest.mark.parametrize("bound", range(-3, 36, 3))
@pytest.mark.parametrize("sign", [1, -1])
def test_lanes_that_do_not_agree_are_told_apart(width, bound, sign):
    """Every bound against blocks of every width: those at the edge of a block, and those within."""
    Y = lang.compute(
        (4, width), lambda b, c: lang.select(sign * (b * width + c) < sign * bound, 1.0, 2.0), name="Y"
    )
    s = Schedule(lang.program([], [Y]))
    run = Native(s.vectorize(s.loops("Y")[-1]).func)
    j = np.arange(4 * width).reshape(4, width)
    wanted = np.where(sign * j < sign * bound, np.float32(1), np.float32(2))
    np.testing.assert_array_equal(run({})["Y"], wanted)


def test_sides_are_not_read_where_a_loop_around_decides_against_them():
    """X ends long before what the other side would read."""
    X = lang.placeholder((16,), name="X")
    Y = lang.compute((3, 16), lambda b, c: lang.select(b < 1, X[b * (1 << 24) + c], 3.0), name="Y")
    s = Schedule(lang.program([X], [Y]))
    run = Native(s.vectorize(s.loops("Y")[-1]).func)
    x = np.arange(16, dtype=np.float32)
    np.testing.assert_array_equal(run({"X": x})["Y"], np.stack([x, np.full(16, 3), np.full(16, 3)]))
    assert "masked" not in run.text.text
