"""Loop trees of functions whose loops have ranges that other loops, sizes or data say."""

import pytest

from tilewright.cost import tree_of
from tilewright.cost.tree import UNKNOWN_EXTENT
from tilewright.ir import parse_function

TEXT = """function("f", outputs=[x], inouts=[x])
x = f32[100, 100]
k = i32[100]
for i in range(100):
    for j in range({}, {}):
        with block("S"):
            a = par(0, 100, i)
            b = par(0, 100, j)
            x[a, b] = x[a, b] + f32(1.0)
"""


def extents(lo, hi, text=TEXT):
    (nest,) = tree_of(parse_function(text.format(lo, hi))).works()
    return [loop.extent for loop in nest[0]]


@pytest.mark.parametrize(
    ("lo", "hi", "turns"),
    [
        ("0", "40", 40),
        # half of a triangle's square, from both sides
        ("0", "i + 1", 50),
        ("i", "100", 51),
        # tiles of a band, of which most are whole
        ("max(0, 32*i - 3)", "min(2000, 32*i + 29)", 32),
        # what data say is known at run time
        ("0", "int(k[i])", UNKNOWN_EXTENT),
    ],
)
def test_loops_turn_as_often_as_in_the_middle_of_those_around_them(lo, hi, turns):
    assert extents(lo, hi) == [100, turns]
