"""split_scan: scans in parts have the elements that they had, whatever is combined and however often."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.analysis import scan_of
from tilewright.ir import run_function, run_program
from tilewright.schedule import Schedule

RNG = np.random.default_rng(2)
ROWS, LENGTH = 3, 37


def sums(t, before, x, first):
    return lang.select(first, x, before + x)


def exclusive(t, before, x, first):
    return lang.select(first, 7, before + x)


def sides(t, before, x, first):
    return x + lang.select(first, 0, before)


def products(t, before, x, first):
    return lang.select(first, x, x * before)


def maxima(t, before, x, first):
    return lang.maximum(lang.select(first, -5, before), x)


def program(element, condition, axis=1, reverse=False):
    shape = (ROWS, LENGTH) if axis else (LENGTH, ROWS)
    x = lang.placeholder(shape, "i32", name="X")

    def step(t, i, j):
        k = (j, i)[axis == 0]
        back = -1 if not reverse else 1
        before = t[i, j + back] if axis else t[i + back, j]
        return element(t, before, x[i, j], condition(k if not reverse else LENGTH - 1 - k))

    return lang.program([x], [lang.scan(shape, step, axis=axis, name="S", dtype="i32", reverse=reverse)])


def first(k):
    return k == 0


def check(p, *steps):
    s = Schedule(p)
    for step in steps:
        s = s.split_scan(*step)
    (x,) = p.inputs
    given = {"X": RNG.integers(-2, 3, [e.as_int() for e in x.shape]).astype(np.int32)}
    np.testing.assert_array_equal(run_function(s.func, given)["S"], run_program(p, given)["S"])
    return s


@pytest.mark.parametrize("element", [sums, exclusive, sides, products, maxima], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("axis", "reverse"), [(1, False), (0, False), (1, True)])
def test_elements_are_what_they_were(element, axis, reverse):
    p = program(element, first, axis, reverse)
    s = check(p, ("S", 5, "P"))
    assert [it.kind for it in s.require_program().stage("S").iters] == ["par", "par"]


@pytest.mark.parametrize(
    "condition",
    [lambda k: k < 1, lambda k: k <= 0, lambda k: k < 1, lambda k: k <= 0, lambda k: k == 0],
)
def test_ways_to_say_the_first_element(condition):
    check(program(sums, condition), ("S", 4, "P"))


@pytest.mark.parametrize("condition", [lambda k: k >= 1, lambda k: k > 0, lambda k: k != 0, lambda k: k > 0])
def test_ways_to_say_the_others(condition):
    def swapped(t, before, x, later):
        return lang.select(later, before + x, x)

    check(program(swapped, condition), ("S", 4, "P"))


def test_parts_and_what_is_before_them_are_scans_again():
    """Also where the last part ends early, and parts of it are empty."""
    s = check(program(sums, first), ("S", 16, "P"), ("P", 3, "Q"), ("Q_before", 2, "R"), ("P_before", 1, "Z"))
    assert scan_of(s.require_program().stage("Q")) is not None


def test_what_is_no_scan():
    x = lang.placeholder((9,), name="X")
    for element in (
        lambda t, i: lang.select(i == 1, x[0], t[i - 1] + x[i]),  # not the first
        lambda t, i: lang.select(i == 0, x[0], t[i - 1] * x[i] + x[i]),  # two operations
        lambda t, i: lang.select(i == 0, x[0], t[i - 1] - x[i]),
        lambda t, i: lang.select(i <= 1, x[0], t[i - 2] + x[i]),  # another element
    ):
        p = lang.program([x], [lang.scan((9,), element, name="S")])
        assert scan_of(p.stage("S")) is None
    k = lang.reduce_axis(9, "k")
    p = lang.program([x], [lang.compute((), lambda: lang.sum(x[k], axis=k), name="S")])
    assert scan_of(p.stage("S")) is None
