"""pow, as ``2**(y log2 |x|)`` in more than the working precision, with the cases of C's Annex F.

f32: in f64. f64: in unevaluated sums of two numbers, ``log2`` good to 2**-65.

Polynomials: least maximal relative error by Lawson's iteration in 45 digits; errors beside each.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import F32, F64
from tilewright.lower.elementary.logarithm import LOG2E_DOUBLE, normal_and_shift, split_exponent
from tilewright.lower.elementary.num import (
    INF,
    NAN,
    Num,
    Pair,
    call,
    exact_product,
    fast_two_sum,
    fma,
    poly,
    rounded_product,
    select,
    two_sum,
)

_LOG2_OVER_S: Final = (  # of log2(m) / s in s**2, s = (m - 1) / (m + 1); 2**-45.1
    2.88539008177785, 0.9617966941132993, 0.5770779423787696, 0.412209250867352, 0.31990576229718654,
    0.28289918411758774,
)  # fmt: skip
_EXP2_SHORT: Final = (  # of 2**r on |r| <= 1/2; 2**-34.3
    1.0, 0.6931471807045837, 0.24022651066623402, 0.05550410365845812, 0.009618038124889747,
    0.0013333935161839755, 0.00015466758237877968, 1.519613384071467e-05,
)  # fmt: skip
_EXP2_TAIL: Final = (  # of (2**r - 1 - r ln 2) / r**2 on |r| <= 1/2; 2**-57.9
    0.24022650695910122, 0.05550410866482074, 0.009618129107596967, 0.0013333558146686,
    0.00015403530454085107,
    1.525273354705291e-05, 1.3215436601072318e-06, 1.0178184561134985e-07, 7.07358052647668e-09,
    4.4363187989660283e-10,
)  # fmt: skip
_ATANH_TAIL: Final = (  # of (atanh(s)/s - 1 - s**2/3) / s**4; 2**-73.6
    0.1999999999999999, 0.1428571428572253, 0.11111111108773701, 0.0909090943451483, 0.07692278477563924,
    0.06668157152716045, 0.0583743972613531, 0.05994261309285794,
)  # fmt: skip
_THIRD: Final = (0.3333333333333333, float.fromhex("0x1.5555555555555p-56"))
_LN2: Final = (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56"))
EXPONENT_BOUND: Final = 1100.0
"""Beyond, 2**z is zero or infinite in f64."""


def pow(x: Num, y: Num) -> Num:
    """``x**y``; error below 1 ulp, so that powers which are numbers of the format come out exactly."""
    magnitude = _magnitude_single(x, y) if x.single else _magnitude_double(x, y)
    whole = call("trunc", y).equals(y)
    half_y = 0.5 * y
    odd = whole & call("trunc", half_y).differs(half_y)
    finite = abs(x) < INF
    negative = x.bits() < 0.0
    # of a negative base: a whole power has a sign, another power none (zero and infinity are not negative
    # here)
    undefined = (x < 0.0) & finite & _not(whole)
    signed = select(negative & odd, -magnitude, magnitude)
    result = select(undefined, x.const(NAN), signed)
    return select(y.equals(0.0) | x.equals(1.0), x.const(1.0), result)


def _not(cond: Num) -> Num:
    return cond ^ True


def _magnitude_single(x: Num, y: Num) -> Num:
    a, y = abs(x).to(F64), y.to(F64)
    # every f32 is normal in f64
    e, m = split_exponent(a)
    s = (m - 1.0) / (m + 1.0)
    log2 = fma(s, poly(s * s, _LOG2_OVER_S), e)
    log2 = select(a < INF, log2, a)
    log2 = select(a.equals(0.0), a.const(-INF), log2)
    # 1 to an infinite power
    z = select(log2.equals(0.0) & y.equals(y), a.const(0.0), y * log2)
    z = z.at_most(EXPONENT_BOUND / 2).at_least(-EXPONENT_BOUND / 2)
    magic = 1.5 * 2.0**52 + 1023
    shifted = z + magic
    scale = (shifted.bits() << 52).from_bits()
    # rounding to f32 makes what is too large infinite, and rounds what is subnormal once
    return (poly(z - (shifted - magic), _EXP2_SHORT) * scale).to(F32)


def _log2_pair(a: Num) -> Pair:
    """The logarithm to base 2 of a positive finite number, as a sum of two."""
    normal, shift = normal_and_shift(a)
    e, m = split_exponent(normal)
    e = e + shift
    f = m - 1.0  # exact
    g, g_low = fast_two_sum(m.const(2.0), f)
    s = f / g
    s_low = fma(-s, g_low, fma(-s, g, f)) / g
    # atanh(s) = s + s**3 (1/3 + tail), the square and its product with 1/3 as pairs
    z, z_low = exact_product(s, s)
    z_low = fma(2.0 * s, s_low, z_low)
    third, third_low = exact_product(z, z.const(_THIRD[0]))
    third_low = fma(z, _THIRD[1], fma(z_low, _THIRD[0], third_low))
    tail = rounded_product(z * z, poly(z, _ATANH_TAIL))
    ratio, ratio_low = fast_two_sum(third, tail)
    ratio_low = ratio_low + third_low
    cubic, cubic_low = exact_product(s, ratio)
    cubic_low = fma(s, ratio_low, fma(s_low, ratio, cubic_low))
    half, half_low = fast_two_sum(s, cubic)
    half_low = half_low + (s_low + cubic_low)
    # log2(m) = 2 atanh(s) / ln 2
    scaled, scaled_low = exact_product(half, half.const(2.0 * LOG2E_DOUBLE[0]))
    scaled_low = fma(half, 2.0 * LOG2E_DOUBLE[1], fma(half_low, 2.0 * LOG2E_DOUBLE[0], scaled_low))
    total, low = two_sum(e, scaled)
    return fast_two_sum(total, low + scaled_low)


def _magnitude_double(x: Num, y: Num) -> Num:
    a = abs(x)
    ordinary = (a > 0.0) & (a < INF)
    log2, log2_low = _log2_pair(select(ordinary, a, 1.0))
    z, z_low = exact_product(y, log2)
    z_low = fma(y, log2_low, z_low)
    end = select(a.equals(0.0), a.const(-INF), a)  # an infinity or NaN
    plain = select(ordinary, rounded_product(y, log2), rounded_product(y, end))
    plain = select(a.equals(1.0) & y.equals(y), a.const(0.0), plain)
    # elsewhere the pair holds a NaN made of an infinity
    paired = ordinary & a.differs(1.0) & (abs(plain) < EXPONENT_BOUND)
    z = select(paired, z, plain).at_most(EXPONENT_BOUND).at_least(-EXPONENT_BOUND)
    z_low = select(paired, z_low, 0.0)
    # z = k + r; 2**r = 1 + r ln 2 + ..., the leading terms and what is lost of them as a pair
    magic = 1.5 * 2.0**52
    k = (z + magic) - magic
    r = z - k
    step, step_low = exact_product(r, r.const(_LN2[0]))
    power, lost = fast_two_sum(r.const(1.0), step)
    tail = fma(r * r, poly(r, _EXP2_TAIL), fma(r, _LN2[1], step_low) + lost)
    power = power + fma((power + tail) * _LN2[0], z_low, tail)
    # 2**k in two factors, since k reaches beyond the exponents of normal numbers
    magic = magic + 1023
    first = fma(k, 0.5, magic)
    second = (k - (first - magic)) + magic
    return (power * (first.bits() << 52).from_bits()) * (second.bits() << 52).from_bits()
