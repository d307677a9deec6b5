"""Remainders in f32, exactly, in f64.

``r - round(r / b) b`` by ``fma`` is a number of f64, of 26 bits at most: the reciprocal and its product err
by a part of 2**-51 of the quotient. Each step takes so many bits off it; at most half of ``b`` is left.
"""

from __future__ import annotations

from math import inf
from typing import Final

from tilewright.ir import F32, F64
from tilewright.lower.elementary.num import Num, call, fma, select, with_sign

QUOTIENT: Final = 51
"""Bits of a quotient that one step takes off."""
RANGE: Final = 128 + 149
"""Bits of the largest number of f32 over the smallest."""


def remainder(a: Num, b: Num) -> Num:
    """``a - trunc(a / b) b``, with the sign of ``a``, of f32."""
    whole, divisor = a.to(F64), b.to(F64)
    rest, inverse = whole, 1.0 / divisor
    for _ in range(-(-RANGE // QUOTIENT)):
        rest = fma(-call("round", rest * inverse), divisor, rest)
    beyond = (rest < 0.0).differs(whole < 0.0) & rest.differs(0.0)
    size = select(beyond, abs(divisor) - abs(rest), abs(rest))
    # nothing is taken off for an infinite divisor, and an infinite number has no remainder
    size = select(abs(divisor).equals(inf), fma(whole, 0.0, whole), size)
    return with_sign(size, whole).to(F32)
