"""Formulas of cycles."""

import pytest

from tilewright.mapping.system.cycles import Cycles
from tilewright.support import TargetError


def test_formulas():
    sizes = {"m": (1, 32), "k": (1, 32)}
    assert Cycles.of("((m + 15)//16) * (k - 1) + max(m, 3, 2)", sizes, "x").at({"m": 17, "k": 4}) == 23
    assert Cycles.of(7, {}, "x").at({}) == 7


@pytest.mark.parametrize("text", ["", "m +", "n", "m ** 2", "__import__('os')", "1.5", "min(m)", "True"])
def test_what_is_none(text):
    with pytest.raises(TargetError, match=r"x: .* is no formula of cycles"):
        Cycles.of(text, {"m": (1, 8)}, "x")


def test_a_long_one():
    with pytest.raises(TargetError, match="more than 200 characters"):
        Cycles.of("m + " * 100 + "m", {"m": (1, 8)}, "x")


@pytest.mark.parametrize(
    ("text", "with_"),
    [
        ("m - 5", "m = 1, n = 1"),
        ("n - m", "m = 8, n = 1"),
        ("100//(m - 8)", "m = 1, n = 1"),
        ("8//(8 - m)", "m = 8, n = 1"),
        ("m // 0", "m = 1, n = 1"),
        ("*".join(["m"] * 30), "m = 8, n = 1"),
    ],
)
def test_what_is_no_number_of_cycles_with_some_sizes(text, with_):
    with pytest.raises(TargetError, match=rf"x: .* gives no number of cycles with {with_}") as e:
        Cycles.of(text, {"m": (1, 8), "n": (1, 8)}, "x")
    assert "neither less than 0 nor more than 2**40" in str(e.value)


def test_what_is_none_between_the_bounds():
    formula = Cycles.of("8//((m - 4)*(m - 4)) + 1", {"m": (1, 8)}, "x")
    assert formula.at({"m": 5}) == 9
    with pytest.raises(TargetError, match=r"gives no number of cycles with m = 4"):
        formula.at({"m": 4})
