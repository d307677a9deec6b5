"""Reads with zeros around them: taken apart, and held against the shapes that they read."""

import pytest

from tilewright.analysis import only_inside, padded_read
from tilewright.ir import F32, I64, Binary, Compare, Const, Index, Load, OfIndex, Select, floordiv, var

ROW, COL = var("i"), var("j")
LOAD = Load("A", (ROW, COL), F32)


def at_least_0(x, value, other=0.0):
    return Select(Compare("ge", OfIndex(x, I64), Const(0, I64)), value, Const(other, F32))


def test_conditions_are_taken_off():
    assert padded_read(LOAD) == (LOAD, ())
    assert padded_read(at_least_0(7 - ROW, at_least_0(COL, LOAD))) == (LOAD, (7 - ROW, COL))
    for other in (
        at_least_0(7 - ROW, LOAD, 1.0),
        Binary("add", LOAD, LOAD),
        Select(Compare("lt", OfIndex(ROW, I64), Const(7, I64)), LOAD, Const(0.0, F32)),
        Select(Compare("ge", LOAD, Const(0.0, F32)), LOAD, Const(0.0, F32)),
    ):
        assert padded_read(other) is None


@pytest.mark.parametrize(
    ("indices", "conditions", "inside"),
    [
        ((ROW, COL), (), True),
        ((ROW, COL), (7 - ROW,), True),
        ((ROW, COL), (floordiv(-ROW, 8) + 1 - 1,), False),
        ((ROW, COL), (124 - floordiv(ROW, 8),), False),
        ((ROW, COL), (6 - ROW,), False),
        ((ROW, COL), (8 - ROW,), False),
        ((ROW, COL), (7 - ROW, 7 - COL), False),
        ((ROW - 2, COL), (ROW - 2,), False),
        ((ROW, COL), (7 - ROW - COL,), False),
        ((ROW, COL), (var("n") - ROW,), False),
    ],
)
def test_conditions_that_say_what_shapes_do(indices, conditions, inside):
    assert only_inside(indices, (8, 9), conditions, {"i": (0, 12), "j": (0, 9)}) is inside


def test_too_many_values_are_not_looked_at():
    assert not only_inside((ROW,), (8,), (7 - ROW,), {"i": (0, 1 << 30)})
    assert only_inside((Index(3), ROW), (4, 8), (7 - ROW,), {"i": (0, 9)})
