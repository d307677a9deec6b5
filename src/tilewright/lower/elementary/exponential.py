"""exp, exp2, expm1, and half the exponential (which does not overflow where its user does not).

exp: ``x = 2 j ln 2 + r``, ``e**x = (p(r) * 2**j) * 2**j``. Halving the exponent keeps both factors normal, so
that subnormal results are rounded once and large ones overflow by themselves; it costs two terms of the
polynomial, less than any other treatment of the ends. ``2**j`` comes from the bits of ``x / (2 ln 2) + 1.5 *
2**m + bias``.

Machines that scale by powers of two in one instruction (``ldexp``) need no such care, and half the range of
``r``; those that also choose among 32 numbers in registers (``exp2_fraction``) a 32nd of it, for f32.

Polynomials: least maximal relative error by Lawson's iteration in 45 digits; errors beside each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.lower.elementary.num import INF, Num, call, fma, poly, rounded_product, select, with_sign

LN2: Final = 0.6931471805599453
LOG2E: Final = 1.4426950408889634
#: Arguments are limited to this where ``ldexp`` is an instruction. Results just below the smallest number
#: take 200 cycles on Intel's cores (Emerald Rapids, ns a vector: 2**-126 0.4, 2**-130 75, 2**-400 75, but
#: 2**-14427 0.4): a tighter limit would make such results of what masks leave to a softmax, -10000 or less.
LOWEST: Final = -1.0e4

#: Powers of two that the function ``exp2_fraction`` of a machine tells apart.
TABLE: Final = 32
#: Of ``(e**r - 1) / r`` on ``|r| <= ln 2 / 64``, weighted by ``r``: 2**-24.2.
EXP_TABLE_TERMS: Final = (1.0000146627426147, 0.49999998)


@dataclass(frozen=True, slots=True)
class _Format:
    """What depends on the floating-point format."""

    mantissa: int  # bits stored
    bias: int
    log2e: float
    ln2: tuple[float, float]  # high part, low part
    exp_bounds: tuple[float, float]  # beyond: zero, infinity
    exp_normal: float  # from here on results are normal numbers
    exp2_bounds: tuple[float, float]
    expm1_lowest: float  # below: -1
    exp_terms: tuple[float, ...]  # of e**r on |r| <= ln 2
    exp_half_terms: tuple[float, ...]  # of e**r on |r| <= ln 2 / 2
    exp2_terms: tuple[float, ...]  # of 2**r on |r| <= 1
    expm1_terms: tuple[float, ...]  # of (e**r - 1 - r) / r**2 on |r| <= ln 2 / 2

    @property
    def magic(self) -> float:
        """Adding it leaves an integer in the lowest bits of the mantissa."""
        return 1.5 * 2.0**self.mantissa


_SINGLE: Final = _Format(
    mantissa=23,
    bias=127,
    log2e=float.fromhex("0x1.715476p+0"),
    ln2=(float.fromhex("0x1.62e43p-1"), float.fromhex("-0x1.05c61p-29")),
    exp_bounds=(-105.0, 89.0),
    exp_normal=-87.3,
    exp2_bounds=(-151.0, 129.0),
    expm1_lowest=-18.0,
    exp_terms=(  # 2**-26.1
        1.0, 1.0, 0.5000003455933445, 0.16666614298210436, 0.04166127740456649, 0.008336097577845196,
        0.0014104281569326763, 0.00019611882853907834,
    ),
    exp_half_terms=(  # 2**-23.3
        1.0, 0.9999997019767761, 0.4999915063381195, 0.1666763722896576, 0.0418979786336422,
        0.008290302008390427,
    ),
    exp2_terms=(  # 2**-26.4
        1.0, 0.6931472166091975, 0.24022672887831936, 0.05550379492491207, 0.009616719905606948,
        0.0013339492835515116, 0.000156536699616978, 1.5030470564327918e-05,
    ),
    expm1_terms=(  # 2**-26.2
        0.4999999815416573, 0.16666543655957647, 0.041667200006583416, 0.00836651529740458,
        0.0013882497982694048,
    ),
)  # fmt: skip
_DOUBLE: Final = _Format(
    mantissa=52,
    bias=1023,
    log2e=float.fromhex("0x1.71547652b82fep+0"),
    ln2=(float.fromhex("0x1.62e42fefa3800p-1"), float.fromhex("0x1.ef35793c76730p-45")),
    exp_bounds=(-750.0, 710.0),
    exp_normal=-708.3,
    exp2_bounds=(-1077.0, 1025.0),
    expm1_lowest=-40.0,
    exp_terms=(  # 2**-56.5
        1.0, 1.0, 0.4999999999999993, 0.16666666666666935, 0.04166666666670203, 0.008333333333270038,
        0.0013888888883583402, 0.00019841269892693922, 2.4801590826802483e-05, 2.7557300675305857e-06,
        2.755615873281745e-07, 2.5055030612608666e-08, 2.106227601152507e-09, 1.59356679417801e-10,
    ),
    exp_half_terms=(  # 2**-56.2
        1.0, 1.0, 0.5000000000000012, 0.16666666666666216, 0.0416666666665177, 0.008333333333549887,
        0.0013888888946388853, 0.00019841269436525212, 2.4801490596499086e-05, 2.7557626833974603e-06,
        2.763104916009435e-07, 2.4991419171736876e-08,
    ),
    exp2_terms=(  # 2**-56.7
        1.0, 0.6931471805599453, 0.24022650695910022, 0.055504108664823214, 0.00961812910763837,
        0.0013333558146291355, 0.00015403530386784095, 1.5252733851506253e-05, 1.3215488801455012e-06,
        1.0178078300716935e-07, 7.054603058336145e-09, 4.4460999087013216e-10, 2.591035292519824e-11,
        1.3578810017386365e-12,
    ),
    expm1_terms=(  # 2**-61.7
        0.5, 0.16666666666666677, 0.04166666666666651, 0.008333333333321695, 0.0013888888888962433,
        0.0001984126988595263, 2.4801587172388312e-05, 2.7557244391771645e-06, 2.7557402795955695e-07,
        2.5108971480090215e-08, 2.0875274553043752e-09,
    ),
)  # fmt: skip


def _format(x: Num) -> _Format:
    return _SINGLE if x.single else _DOUBLE


def exp(x: Num) -> Num:
    """``e**x``; error below 1.5 ulp."""
    return _scaled_exp(x, _format(x), 1.0)


def exp_nonpositive(x: Num) -> Num:
    """``e**x`` for ``x`` that is not positive, zero where that is below the least normal number."""
    f = _format(x)
    return select(x < f.exp_normal, x.const(0.0), _by_halves(x.at_least(f.exp_normal), f, 1.0))


def exp_by_ldexp(x: Num) -> Num:
    """``e**x`` where the machine has ``ldexp``; error below 2.5 ulp."""
    return _by_ldexp(x.at_most(_format(x).exp_bounds[1]).at_least(LOWEST))


def exp_nonpositive_by_ldexp(x: Num) -> Num:
    """The same for ``x`` that is not positive, zero where that is below the least normal number."""
    return _by_ldexp(_normal(x))


def _normal(x: Num) -> Num:
    """``x``, or what ``ldexp`` makes zero of at once where ``e**x`` is below the least normal number."""
    return select(x < _format(x).exp_normal, x.const(LOWEST), x)


def _by_ldexp(x: Num) -> Num:
    """``x = j ln 2 + r``, ``e**x = p(r) 2**j``: half the range of ``r``, so two terms less."""
    f = _format(x)
    j = fma(x, f.log2e, f.magic) - f.magic
    r = fma(j, -f.ln2[1], fma(j, -f.ln2[0], x))
    return call("ldexp", poly(r, f.exp_half_terms), j)


def exp_by_table(x: Num) -> Num:
    """``e**x`` where the machine has ``ldexp`` and a table of ``2**(k/32)``; error below 2.5 ulp."""
    return _by_table(x.at_most(_format(x).exp_bounds[1]).at_least(LOWEST))


def exp_nonpositive_by_table(x: Num) -> Num:
    """The same for ``x`` that is not positive, zero where that is below the least normal number."""
    return _by_table(_normal(x))


def _by_table(x: Num) -> Num:
    """``x = j ln 2 + r`` with ``j`` in 32nds: ``e**x = t (1 + p(r)) 2**floor(j)``, ``t`` from the table."""
    if not x.single:
        return _by_ldexp(x)
    f = _SINGLE
    shifted = fma(x, f.log2e, f.magic / TABLE)
    j = shifted - f.magic / TABLE
    r = fma(j, -f.ln2[1], fma(j, -f.ln2[0], x))
    t = call("exp2_fraction", shifted)
    return call("ldexp", fma(t, poly(r, EXP_TABLE_TERMS) * r, t), j)


def exp2_fraction(x: Num) -> Num:
    """``2**(x - floor(x))``."""
    return exp2(x - call("floor", x))


def ldexp(x: Num, n: Num) -> Num:
    """``x * 2**floor(n)``, rounded once.

    Steps that leave normal numbers normal first, as in musl's ``scalbn``; then the power by its bits.
    """
    f = _format(x)
    up, down = float(f.bias), float(f.mantissa + 1 - f.bias + 1)
    power = call("floor", n).at_most(3 * up).at_least(2 * down + 1.0 - up)
    value = x
    for _ in range(2):
        large, small = power > up, power < 1.0 - up
        value = select(large, value * 2.0**up, select(small, value * 2.0**down, value))
        power = select(large, power - up, select(small, power - down, power))
    scale = ((power + (f.magic + f.bias)).bits() << f.mantissa).from_bits()
    infinite = select(n > 0.0, n.const(INF), 0.0)
    scaled = select(abs(n).equals(INF), rounded_product(x, infinite), rounded_product(value, scale))
    return select(n.differs(n), n, scaled)


def half_exp(x: Num) -> Num:
    """``e**x / 2``, which is finite for slightly larger ``x`` than ``e**x``."""
    return _scaled_exp(x, _format(x), 0.5)


def _scaled_exp(x: Num, f: _Format, factor: float) -> Num:
    low, high = f.exp_bounds
    return _by_halves(x.at_most(high + 1.0 if factor < 1 else high).at_least(low), f, factor)


def _by_halves(x: Num, f: _Format, factor: float) -> Num:
    """The same for ``x`` within bounds: ``2**j`` twice, so that both factors are normal."""
    shifted = fma(x, f.log2e / 2, f.magic + f.bias)
    j = shifted - (f.magic + f.bias)
    r = fma(j, -2 * f.ln2[1], fma(j, -2 * f.ln2[0], x))
    scale = (shifted.bits() << f.mantissa).from_bits()
    p = poly(r, f.exp_terms)
    if factor != 1.0:
        p = p * factor
    return (p * scale) * scale


def exp2(x: Num) -> Num:
    """``2**x``; error below 1.5 ulp."""
    f = _format(x)
    low, high = f.exp2_bounds
    x = x.at_most(high).at_least(low)
    shifted = fma(x, 0.5, f.magic + f.bias)
    j = shifted - (f.magic + f.bias)
    scale = (shifted.bits() << f.mantissa).from_bits()
    return (poly(fma(j, -2.0, x), f.exp2_terms) * scale) * scale


def expm1(x: Num) -> Num:
    """``e**x - 1``; error below 2 ulp.

    ``x = k ln 2 + r``; half the result is ``2**(k-1) * (e**r - 1) + (2**(k-1) - 1/2)``, which cannot
    overflow.
    """
    f = _format(x)
    limited = x.at_most(f.exp_bounds[1]).at_least(f.expm1_lowest)
    magic = f.magic + (f.bias - 1)
    shifted = fma(limited, f.log2e, magic)
    k = shifted - magic
    r = fma(k, -f.ln2[1], fma(k, -f.ln2[0], limited))
    half_scale = (shifted.bits() << f.mantissa).from_bits()
    p = fma(r * r, poly(r, f.expm1_terms), r)
    return with_sign(2.0 * fma(half_scale, p, half_scale - 0.5), x)


def whole_power_of_two(x: Num, factor: float) -> tuple[Num, Num]:
    """``k``, the whole number nearest to ``x * factor``, and ``2**k``; for ``|k|`` up to 100."""
    f = _format(x)
    shifted = fma(x, factor, f.magic + f.bias)
    return shifted - (f.magic + f.bias), (shifted.bits() << f.mantissa).from_bits()
