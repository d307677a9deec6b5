"""Formulas of cycles."""

import pytest

from tilewright.mapping.system.cycles import Cycles
from tilewright.support import TargetError


def test_formulas():
    assert Cycles.of("((m + 15)//16) * (k - 1) + max(m, 3, 2)", ("m", "k"), "x").at({"m": 17, "k": 4}) == 23
    assert Cycles.of(7, (), "x").at({}) == 7


@pytest.mark.parametrize(
    "text", ["", "m +", "n", "m ** 2", "__import__('os')", "1.5", "m // 0", "min(m)", "True"]
)
def test_what_is_none(text):
    with pytest.raises(TargetError, match=r"x: .* is no formula of cycles"):
        Cycles.of(text, ("m",), "x")


def test_a_long_one():
    with pytest.raises(TargetError, match="more than 200 characters"):
        Cycles.of("m + " * 100 + "m", ("m",), "x")
