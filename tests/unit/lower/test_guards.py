"""trim_guards: what moves out of loops, what trims them, and what stays as a mask."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import For, run_function, stmt_children, verify
from tilewright.lower import lower
from tilewright.schedule import Schedule


def loops(s):
    own = {s.var: s} if isinstance(s, For) else {}
    for child in stmt_children(s):
        own |= loops(child)
    return own


def doubled(tile, lanes):
    """Tiles of a vector of symbolic length, each ``tile // lanes`` vectors."""
    n = lang.param("n")
    X = lang.placeholder((n,), name="X")
    C = lang.compute((n,), lambda i: X[i] * 2, name="C")
    s = Schedule(lang.program([X], [C])).split("i", tile)
    return s.split("i_i", lanes).vectorize("i_i_i")


def test_a_serial_loop_skips_the_vectors_that_are_masked_out():
    func = lower(doubled(12, 4).func)
    found = loops(func.body)
    # as many vectors as the tile has elements left
    assert str(found["i_i_o"].hi) == "min(3, -3*i_o + (n + 3)//4)"
    assert str(found["i_i_i"].hi) == "4"


@pytest.mark.parametrize("n", [1, 3, 4, 5, 11, 12, 13, 25])
def test_skipping_changes_nothing(n):
    func = lower(doubled(12, 4).func)
    verify(func)
    X = np.arange(n, dtype=np.float32)
    np.testing.assert_array_equal(run_function(func, {"X": X}, {"n": n})["C"], 2 * X)
