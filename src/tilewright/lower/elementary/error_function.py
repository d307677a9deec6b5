"""erf.

Below 1 a polynomial (f32) or a quotient (f64). Above, what is missing to 1: in f32 the eighth power of a
reciprocal polynomial, in f64 ``e**(-x**2) q(x)``; it is small, so that its relative errors hardly count.

Polynomials and quotients: least maximal relative error by Lawson's iteration in 45 digits; errors beside
each.
"""

from __future__ import annotations

from typing import Final

from tilewright.lower.elementary.exponential import exp
from tilewright.lower.elementary.num import Num, fma, poly, rounded_product, select, with_sign

ERF_IS_ONE_SINGLE: Final = 3.93
ERF_IS_ONE_DOUBLE: Final = 6.0

_NEAR_SINGLE: Final = (  # of erf(x)/x - 1 in x**2 up to 1; 2**-29.6
    0.12837916572651906, -0.3761262582290746, 0.11283585133558492, -0.026853811305441434,
    0.005188326489193017,
    -0.000801018311550958, 7.853826658835419e-05,
)  # fmt: skip
_FAR_SINGLE: Final = (  # of erfc(x)**(-1/8) from 1 to 3.93; 2**-26.3 of erf
    0.9964888316289578, 0.15920160974098785, 0.049435301729470665, 0.07371608146039949, -0.033017905570235505,
    0.017745708858479606, -0.004001108029077048, 0.0005435745988491535,
)  # fmt: skip
_NEAR_ABOVE: Final = (  # of erf(x)/x in x**2 up to 1, with _NEAR_BELOW; 2**-58.7
    1.1283791670955126, 0.1421492894875925, 0.04530390570801298, 0.0018272941746691083,
    0.00019495601860186043,
)  # fmt: skip
_NEAR_BELOW: Final = (
    1.0, 0.4593098611112161, 0.09325282810369696, 0.010582211031168097, 0.0006812155846350926,
    2.0297403912376204e-05,
)  # fmt: skip
_FAR_ABOVE: Final = (  # of e**(x**2) erfc(x) from 1 to 6, with _FAR_BELOW; 2**-62.4 of erf
    0.9999999621574344, 1.33183096324938, 0.8807447428731234, 0.33430090746392566, 0.072481700972167,
    0.00727799299009384, 1.3078475265834713e-08,
)  # fmt: skip
_FAR_BELOW: Final = (
    1.0, 2.460209714245152, 2.656796315010973, 1.6242102764064872, 0.5991276003018988, 0.1284569331394902,
    0.012900715922732316,
)  # fmt: skip


def erf(x: Num) -> Num:
    """The error function; error below 3 ulp."""
    a = abs(x).at_most(ERF_IS_ONE_SINGLE if x.single else ERF_IS_ONE_DOUBLE)
    z = rounded_product(a, a)
    if x.single:
        near = fma(a, poly(z, _NEAR_SINGLE), a)
        root = poly(a, _FAR_SINGLE)
        root = root * root
        root = root * root
        far = 1.0 - 1.0 / (root * root)
    else:
        near = a * (poly(z, _NEAR_ABOVE) / poly(z, _NEAR_BELOW))
        far = 1.0 - exp(-z) * (poly(a, _FAR_ABOVE) / poly(a, _FAR_BELOW))
    return with_sign(select(a < 1.0, near, far), x)
