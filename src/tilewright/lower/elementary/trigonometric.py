"""sin, cos, tan.

The argument is reduced to ``x = (q + t) pi/2`` with ``|t| <= 1/2``. f32 works in f64: ``2/pi`` is cut into
pieces so short that each product with ``x`` is exact, and each product is taken modulo 4 before they are
added; that holds for every finite ``x``. f64 subtracts ``q pi/2`` in unevaluated sums of two, which holds up
to ``LARGEST_DOUBLE``.

Polynomials: least maximal relative error by Lawson's iteration in 45 digits; errors beside each.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import F32, F64
from tilewright.lower.elementary.num import (
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

LARGEST_DOUBLE: Final = 2.0**45
"""Beyond, an f64 argument gives NaN: its reduction would need a table of 2/pi, and expressions have no
tables.
"""

_TWO_OVER_PI: Final = tuple(
    float.fromhex(piece)
    for piece in (
        "0x1.45f306d000000p-1", "0x1.9391054000000p-30", "0x1.4fe13ab000000p-59", "0x1.d1f534d000000p-88",
        "0x1.b81b6c5000000p-117", "0x1.5993c40000000p-148", "0x1.c820ff2000000p-175",
    )
)  # fmt: skip
_HALF_PI: Final = tuple(
    float.fromhex(piece)
    for piece in ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54", "-0x1.f1976b7ed8fbcp-110")
)
_SIN_SHORT: Final = (  # of (sin(r)/r - 1) / r**2 in r**2, |r| <= pi/4; 2**-37.5
    -0.16666666640791822, 0.008333329304403222, -0.00019839312158136165, 2.718120749949122e-06,
)  # fmt: skip
_COS_SHORT: Final = (  # of (cos(r) - 1 + r**2/2) / r**4; 2**-33.0
    0.04166664567638861, -0.001388731598478477, 2.4433130336109636e-05,
)  # fmt: skip
_SIN_LONG: Final = (  # 2**-68.7
    -0.16666666666666666, 0.008333333333333323, -0.00019841269841254795, 2.755731921406259e-06,
    -2.5052104881345436e-08, 1.6058363108188006e-10, -7.578537775937771e-13,
)  # fmt: skip
_COS_LONG: Final = (  # 2**-64.0
    0.041666666666666595, -0.0013888888888873047, 2.4801587288846035e-05, -2.755731417783717e-07,
    2.087570066222149e-09, -1.1358527983522404e-11,
)  # fmt: skip


def _reduce_single(x: Num) -> Pair:
    """``(q, r)``: the quadrant as a small whole number, and the rest in radians, both f64; for f64 ``x``."""
    turns: Num | None = None
    for piece in _TWO_OVER_PI:
        product = rounded_product(x, piece)  # exact: 24 and 29 bits
        rest = fma(call("round", product * 0.25), -4.0, product)
        turns = rest if turns is None else turns + rest
    assert turns is not None
    q = call("round", turns)
    return q, (turns - q) * _HALF_PI[0]


def _reduce_double(x: Num) -> tuple[Num, Num, Num]:
    """``(q, r, r_low)``: the quadrant as a whole number, and the rest in radians as a sum of two."""
    q = call("round", rounded_product(x, _TWO_OVER_PI[0] + _TWO_OVER_PI[1]))
    first = fma(q, -_HALF_PI[0], x)  # exact: the leading bits cancel
    product, product_low = exact_product(q, q.const(-_HALF_PI[1]))
    r, r_low = two_sum(first, product)
    r_low = r_low + fma(q, -_HALF_PI[2], product_low)
    high, low = fast_two_sum(r, r_low)
    return q, high, low


def _quadrant(q: Num) -> Num:
    """The lowest bits of a whole number below 2**51 as an integer."""
    return (q + 1.5 * 2.0**52).bits()


def _sin_cos_short(r: Num) -> Pair:
    z = r * r
    return fma(r * z, poly(z, _SIN_SHORT), r), fma(z * z, poly(z, _COS_SHORT), fma(z, -0.5, 1.0))


def _sin_cos_long(r: Num, low: Num) -> Pair:
    z = rounded_product(r, r)
    sine = r + (fma(z * r, poly(z, _SIN_LONG), low))
    half = 0.5 * z
    start = 1.0 - half
    lost = (1.0 - start) - half
    cosine = start + (lost + (fma(z * z, poly(z, _COS_LONG), -(r * low))))
    return sine, cosine


def _wave(x: Num, ahead: int) -> Num:
    """sin(x + ahead * pi/2)."""
    if x.single:
        q, r = _reduce_single(x.to(F64))
        sine, cosine = _sin_cos_short(r)
    else:
        q, r, low = _reduce_double(x)
        sine, cosine = _sin_cos_long(r, low)
    quadrant = _quadrant(q)
    if ahead:
        quadrant = quadrant + ahead
    value = select((quadrant & 1).equals(0), sine, cosine)
    value = (value.bits() ^ ((quadrant & 2) << 62)).from_bits()
    if x.single:
        return value.to(F32)
    return select(abs(x) <= LARGEST_DOUBLE, value, NAN)


def sin(x: Num) -> Num:
    """The sine; error below 1 ulp in f32, 2 ulp in f64 up to ``LARGEST_DOUBLE`` (NaN beyond)."""
    result = _wave(x, 0)
    # zero keeps its sign
    return select(x.equals(0.0), x, result)


def cos(x: Num) -> Num:
    """The cosine; error below 1 ulp in f32, 2 ulp in f64 up to ``LARGEST_DOUBLE`` (NaN beyond)."""
    return _wave(x, 1)


def tan(x: Num) -> Num:
    """The tangent; error below 1 ulp in f32, 4 ulp in f64 up to ``LARGEST_DOUBLE`` (NaN beyond)."""
    if x.single:
        q, r = _reduce_single(x.to(F64))
        sine, cosine = _sin_cos_short(r)
    else:
        q, r, low = _reduce_double(x)
        sine, cosine = _sin_cos_long(r, low)
    odd = (_quadrant(q) & 1).equals(1)
    value = select(odd, -cosine, sine) / select(odd, sine, cosine)
    if x.single:
        value = value.to(F32)
    else:
        value = select(abs(x) <= LARGEST_DOUBLE, value, NAN)
    return select(x.equals(0.0), x, value)
