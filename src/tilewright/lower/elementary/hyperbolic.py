"""tanh, sinh, cosh and their inverses.

Polynomials and quotients: least maximal relative error by Lawson's iteration in 45 digits; errors beside
each.
"""

from __future__ import annotations

from typing import Final

from tilewright.lower.elementary.exponential import LN2, LOG2E, half_exp, whole_power_of_two
from tilewright.lower.elementary.logarithm import log1p
from tilewright.lower.elementary.num import INF, NAN, Num, call, fma, poly, select, with_sign

TANH_IS_ONE_SINGLE: Final = 10.0
TANH_IS_ONE_DOUBLE: Final = 20.0

_TANH_SINGLE: Final = (  # of (tanh(r)/r - 1) / r**2 in r**2 on |r| <= ln 2 / 4; 2**-24.1 of tanh
    -0.3333127130499759, 0.13110584356974064,
)  # fmt: skip
_TANH_DOUBLE: Final = (  # 2**-57.8
    -0.3333333333333249, 0.13333333332784114, -0.05396825278251215, 0.021869370739944945,
    -0.008857309248054427, 0.003444839870211816,
)  # fmt: skip
_SINH_SINGLE: Final = (  # of (sinh(x)/x - 1) / x**2 in x**2 up to 1; 2**-34.2
    0.16666666497459573, 0.008333350063517226, 0.00019836158932632128, 2.8169553732331036e-06,
)  # fmt: skip
_SINH_DOUBLE: Final = (  # 2**-73.8
    0.16666666666666666, 0.008333333333333333, 0.000198412698412696, 2.75573192241163e-06,
    2.505210834650673e-08,
    1.6059050601527674e-10, 7.646482879448859e-13, 2.8482334160962152e-15,
)  # fmt: skip


def tanh(x: Num) -> Num:
    """The hyperbolic tangent; error below 3 ulp.

    With ``x = k ln 2 / 2 + r``, ``s = 2**k`` and ``t = tanh r`` it is
    ``(s - 1 + (s + 1) t) / (s + 1 + (s - 1) t)``. Odd as it stands, zeros included. One step reduces the
    range: the error of ``k`` times the rounding of ``ln 2`` fades towards 1.
    """
    end = TANH_IS_ONE_SINGLE if x.single else TANH_IS_ONE_DOUBLE
    limited = x.at_most(end).at_least(-end)
    k, s = whole_power_of_two(limited, 2 * LOG2E)
    r = fma(k, -0.5 * LN2, limited)
    square = r * r
    t = r * poly(square, (1.0, *(_TANH_SINGLE if x.single else _TANH_DOUBLE)))
    # with 1 - s, not s - 1: of k = 0 a negative zero remains what it is
    more, less = s + 1.0, 1.0 - s
    return fma(t, more, -less) / fma(-t, less, more)


def sinh(x: Num) -> Num:
    """The hyperbolic sine; error below 3 ulp."""
    a = abs(x)
    z = a * a
    small = fma(a * z, poly(z, _SINH_SINGLE if x.single else _SINH_DOUBLE), a)
    half = half_exp(a)
    return with_sign(select(a < 1.0, small, half - 0.25 / half), x)


def cosh(x: Num) -> Num:
    """The hyperbolic cosine; error below 3 ulp."""
    half = half_exp(abs(x))
    return half + 0.25 / half


def asinh(x: Num) -> Num:
    """The inverse hyperbolic sine; error below 4 ulp.

    ``log1p(a + a**2 / (1 + sqrt(1 + a**2)))``, and ``log(2 a)`` where the square would overflow.
    """
    a = abs(x)
    large = a > (2.0**13 if x.single else 2.0**28)
    b = select(large, a.const(1.0), a)
    square = b * b
    inner = b + square / (1.0 + call("sqrt", 1.0 + square))
    result = log1p(select(large, a - 1.0, inner)) + select(large, a.const(LN2), 0.0)
    return with_sign(result, x)


def acosh(x: Num) -> Num:
    """The inverse hyperbolic cosine, NaN below 1; error below 4 ulp."""
    large = x > (2.0**13 if x.single else 2.0**28)
    t = select(large, x.const(1.0), x - 1.0)
    inner = t + call("sqrt", fma(t, t, 2.0 * t))
    result = log1p(select(large, x - 1.0, inner)) + select(large, x.const(LN2), 0.0)
    return select(x < 1.0, x.const(NAN), result)


def atanh(x: Num) -> Num:
    """The inverse hyperbolic tangent, NaN beyond 1; error below 4 ulp."""
    a = abs(x)
    # at 1 the quotient is infinite, and so is the result
    result = 0.5 * log1p(2.0 * a / (1.0 - a))
    return with_sign(select(a > 1.0, x.const(NAN), select(a.equals(1.0), x.const(INF), result)), x)
