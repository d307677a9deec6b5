"""TF32: numbers of f32 rounded to the 11 significant bits that matrix units of devices multiply.

To the nearest, ties away from zero (PTX ISA, ``cvt.rna.tf32.f32``): a factor errs by at most
2**-11 of itself.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir.dtypes import F32, U32
from tilewright.ir.expr import Binary, Cast, Compare, Const, Expr, Select

_DROPPED: Final = 13
"""Bits of an f32 significand that TF32 does not have."""


def tf32_rounded(x: Expr) -> Expr:
    """An f32 value rounded to TF32; NaN stays NaN.

    >>> from tilewright.ir import Load, var
    >>> x = Load("x", (var("i"),), F32)
    >>> tf32_argument(tf32_rounded(x)) == x
    True
    """
    bits = Binary("add", Cast(x, U32, "bits"), Const(1 << (_DROPPED - 1), U32))
    kept = Binary("and", bits, Const((1 << 32) - (1 << _DROPPED), U32))
    return Select(Compare("eq", x, x), Cast(kept, F32, "bits"), x)


def tf32_argument(e: Expr) -> Expr | None:
    """What an expression rounds to TF32; ``None`` where it is another one."""
    return e.b if isinstance(e, Select) and e.b.dtype == F32 and e == tf32_rounded(e.b) else None
