"""asin, acos, atan, atan2.

Polynomials and quotients: least maximal relative error by Lawson's iteration in 45 digits; errors beside
each.
"""

from __future__ import annotations

from typing import Final

from tilewright.lower.elementary.num import Num, call, fma, poly, select, with_sign

HALF_PI_SINGLE: Final = (float.fromhex("0x1.921fb6p+0"), float.fromhex("-0x1.777a5cp-25"))
HALF_PI_DOUBLE: Final = (float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54"))

_ATAN_SINGLE: Final = (  # of (atan(x)/x - 1) / x**2 in x**2 up to 1; 2**-28.5
    -0.33333299062013494, 0.1999854745464861, -0.1426423278299553, 0.10952139085202024, -0.08403313908032374,
    0.057955261862522284, -0.031175528345573793, 0.010913365285312983, -0.0017933452925844322,
)  # fmt: skip
_ATAN_ABOVE: Final = (  # the same as a quotient, with _ATAN_BELOW; 2**-57.2
    -0.3333333333333315, -0.7466373758667791, -0.5854123416901527, -0.19086064395252253,
    -0.023699665387913904,
    -0.0007486817463480224,
)  # fmt: skip
_ATAN_BELOW: Final = (
    1.0, 2.839912127599803, 3.0316128730765826, 1.5077777911989592, 0.3504131170805494, 0.03308877987667815,
    0.0008297317811683406,
)  # fmt: skip
_ASIN_SINGLE: Final = (  # of (asin(x)/x - 1) / x**2 in x**2 up to 1/4; 2**-27.6
    0.16666752483056826, 0.07495297732091097, 0.045470356637619065, 0.024179632386292043,
    0.042166086254672025,
)  # fmt: skip
_ASIN_ABOVE: Final = (  # the same as a quotient, with _ASIN_BELOW; 2**-62.6
    0.1666666666666666, -0.3267883787859934, 0.20295026560153598, -0.040672512638385935,
    0.0008143159431044659,
    3.6307853800932166e-05,
)  # fmt: skip
_ASIN_BELOW: Final = (1.0, -2.41073027271604, 2.03467307347907, -0.6961983026548204, 0.07839650286107526)


def _half_pi(x: Num) -> tuple[float, float]:
    return HALF_PI_SINGLE if x.single else HALF_PI_DOUBLE


def _atan_core(t: Num) -> Num:
    """The arc tangent for ``0 <= t <= 1``."""
    z = t * t
    shape = poly(z, _ATAN_SINGLE) if t.single else poly(z, _ATAN_ABOVE) / poly(z, _ATAN_BELOW)
    return fma(t * z, shape, t)


def atan(x: Num) -> Num:
    """The arc tangent; error below 2.5 ulp."""
    a = abs(x)
    large = a > 1.0
    angle = _atan_core(select(large, 1.0 / a, a))
    high, low = _half_pi(x)
    return with_sign(select(large, (high - angle) + low, angle), x)


def atan2(y: Num, x: Num) -> Num:
    """The angle of the point ``(x, y)``, with the cases of C's Annex F; error below 3.5 ulp."""
    a, b = abs(x), abs(y)
    steep = b > a
    above, below = select(steep, a, b), select(steep, b, a)
    # equal: both infinite, both zero, or the quotient is 1 anyway
    quotient = select(a.equals(b), select(a.equals(0.0), a, 1.0), above / below)
    angle = _atan_core(quotient)
    high, low = _half_pi(x)
    angle = select(steep, (high - angle) + low, angle)
    behind = x.bits() < 0.0
    angle = select(behind, (2.0 * high - angle) + 2.0 * low, angle)
    nan = x.differs(x) | y.differs(y)
    return select(nan, x + y, with_sign(angle, y))


def _asin_core(t: Num, z: Num) -> Num:
    """The arc sine of ``t`` for ``0 <= t <= 1/2``, ``z = t**2``."""
    shape = poly(z, _ASIN_SINGLE) if t.single else poly(z, _ASIN_ABOVE) / poly(z, _ASIN_BELOW)
    return fma(t * z, shape, t)


def _folded(x: Num) -> tuple[Num, Num]:
    """Whether ``|x| > 1/2``, and the arc sine of ``|x|``, or of ``sqrt((1 - |x|) / 2)`` then."""
    a = abs(x)
    large = a > 0.5
    z = select(large, (1.0 - a) * 0.5, a * a)
    return large, _asin_core(select(large, call("sqrt", z), a), z)


def asin(x: Num) -> Num:
    """The arc sine, NaN beyond 1; error below 3 ulp."""
    large, angle = _folded(x)
    high, low = _half_pi(x)
    return with_sign(select(large, fma(angle, -2.0, high) + low, angle), x)


def acos(x: Num) -> Num:
    """The arc cosine, NaN beyond 1; error below 3 ulp."""
    large, angle = _folded(x)
    high, low = _half_pi(x)
    twice = 2.0 * angle
    outer = select(x > 0.0, twice, (2.0 * high - twice) + 2.0 * low)
    return select(large, outer, (high - with_sign(angle, x)) + low)
