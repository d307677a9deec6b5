"""log, log2, log1p.

``x = 2**e * m`` with ``sqrt(1/2) <= m < sqrt(2)``, from the bits; ``f = m - 1``. In f32 ``log(1 + f)`` is a
polynomial in ``f``; in f64 a series in ``s = f / (2 + f)``, where ``log(1 + f) = f - f**2/2 + s (f**2/2 +
R(s**2))``.

Polynomials: least maximal relative error by Lawson's iteration in 45 digits; errors beside each.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import F32
from tilewright.lower.elementary.num import INF, NAN, Num, fma, poly, select, with_sign

SQRT_HALF_SINGLE: Final = 0x3F3504F3
"""Bits of sqrt(1/2) in f32."""
SQRT_HALF_DOUBLE: Final = 0x3FE6A09E667F3BCD
"""Bits of sqrt(1/2) in f64."""
MAGIC_BITS: Final = 0x4338000000000000
"""Bits of 1.5 * 2**52 in f64."""
LN2_SINGLE: Final = (float.fromhex("0x1.62e43p-1"), float.fromhex("-0x1.05c61p-29"))
LN2_DOUBLE: Final = (float.fromhex("0x1.62e42fefa3800p-1"), float.fromhex("0x1.ef35793c76730p-45"))
LOG2E_DOUBLE: Final = (float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56"))

_LOG_SINGLE: Final = (  # of (log(1 + f) - f + f**2/2) / f**3; 2**-27.4
    0.33333331727831755, -0.2500082124773998, 0.2000122477652121, -0.16623348864368698, 0.14201802908817482,
    -0.131603076430872, 0.12761308548087325, -0.07633832023549683,
)  # fmt: skip
_LOG2_SINGLE: Final = (  # of log2(1 + f) / f, the first a sum; 2**-27.9
    1.4426950408250743, -0.7213473515008493, 0.48089824267838893, -0.3606966502541626, 0.28856732329530654,
    -0.2396173173880824, 0.20460207246768305, -0.19106485880684831, 0.18616707233401497, -0.10993521268408403,
)  # fmt: skip
_LOG_DOUBLE: Final = (  # of (log(1 + f) / s - 2) / s**2; 2**-59.5
    0.6666666666666734, 0.3999999999941586, 0.28571428742110744, 0.22222198602278356, 0.18183562800056133,
    0.15314089641017875, 0.1479556001542895,
)  # fmt: skip
_LOG2E_TAIL_SINGLE: Final = _LOG2_SINGLE[0] - float.fromhex("0x1.715476p+0")


def split_exponent(x: Num) -> tuple[Num, Num]:
    """``(e, m)`` with ``x = 2**e * m`` and ``sqrt(1/2) <= m < sqrt(2)``, for positive normal ``x``."""
    mantissa = 23 if x.single else 52
    least = SQRT_HALF_SINGLE if x.single else SQRT_HALF_DOUBLE
    bits = x.bits()
    e = (bits - least) >> mantissa
    m = (bits - (e << mantissa)).from_bits()
    if x.single:
        return e.to(F32), m
    # integers of 64 bits convert slowly before AVX-512: add them to the bits of 1.5 * 2**52 instead
    return (e + MAGIC_BITS).from_bits() - 1.5 * 2.0**52, m


def normal_and_shift(x: Num) -> tuple[Num, Num]:
    """``x`` multiplied by a power of two where it is subnormal, and the exponent to add to make up for it."""
    smallest = 2.0**-126 if x.single else 2.0**-1022
    digits = 24 if x.single else 54
    subnormal = x < smallest
    return select(subnormal, x * 2.0**digits, x), select(subnormal, x.const(-float(digits)), 0.0)


def _ends(x: Num, result: Num, zero: float = 0.0) -> Num:
    """The result for ``zero < x < inf``; ``-inf`` at ``zero``, NaN below, infinity and NaN as they are."""
    inside = select(x < INF, result, x)
    return select(x > zero, inside, select(x.equals(zero), x.const(-INF), NAN))


def log(x: Num) -> Num:
    """The natural logarithm; error below 1.5 ulp."""
    normal, shift = normal_and_shift(x)
    e, m = split_exponent(normal)
    return _ends(x, _log_of_parts(e + shift, m - 1.0, None))


def _log_of_parts(e: Num, f: Num, correction: Num | None) -> Num:
    """``e ln 2 + log(1 + f) + correction``, where the correction is tiny beside the rest."""
    high, low = LN2_SINGLE if e.single else LN2_DOUBLE
    if e.single:
        tail = e * low if correction is None else fma(e, low, correction)
        cubic = fma(f * f * f, poly(f, _LOG_SINGLE), tail)
        return fma(e, high, f + fma(-0.5 * f, f, cubic))
    s = f / (2.0 + f)
    z = s * s
    half_square = 0.5 * f * f
    inner = s * (half_square + z * poly(z, _LOG_DOUBLE))
    tail = fma(e, low, inner) if correction is None else fma(e, low, inner + correction)
    return fma(e, high, f - (half_square - tail))


def log2(x: Num) -> Num:
    """The logarithm to base 2; error below 2 ulp."""
    normal, shift = normal_and_shift(x)
    e, m = split_exponent(normal)
    f = m - 1.0
    if x.single:
        inner = fma(f, poly(f, _LOG2_SINGLE[1:]), _LOG2E_TAIL_SINGLE)
        fraction = fma(f, float.fromhex("0x1.715476p+0"), f * inner)
    else:
        s = f / (2.0 + f)
        z = s * s
        half_square = 0.5 * f * f
        below = half_square - s * (half_square + z * poly(z, _LOG_DOUBLE))
        high = f - below
        low = (f - high) - below
        fraction = fma(high, LOG2E_DOUBLE[0], fma(high, LOG2E_DOUBLE[1], low * LOG2E_DOUBLE[0]))
    return _ends(x, (e + shift) + fraction)


def log1p(x: Num) -> Num:
    """``log(1 + x)``; error below 2.5 ulp.

    ``u = 1 + x`` loses the end of ``x``; what is lost, divided by ``u``, is added to ``log(u)``.
    """
    u = 1.0 + x
    e, m = split_exponent(u)
    lost = select(x > 1.0, 1.0 - (u - x), x - (u - 1.0))
    near = e.equals(0.0)
    f = select(near, x, m - 1.0)
    result = _log_of_parts(e, f, select(near, x.const(0.0), lost / u))
    return with_sign(_ends(x, result, -1.0), x)
