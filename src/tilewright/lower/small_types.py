"""Small types become bytes: integers of fewer than 8 bits, floats of fewer than 16.

No machine has them. Values are held as ``DType.held`` says; conversions become arithmetic on bit patterns, so
that all back ends have them and lanes stay lanes. What a format is like is read off what :mod:`ml_dtypes`
makes of a few numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import ml_dtypes
import numpy as np

from tilewright.ir import (
    F32,
    I8,
    I32,
    I64,
    U8,
    Buffer,
    Cast,
    Compare,
    Const,
    DType,
    Expr,
    Index,
    Load,
    LoopFunction,
    OfIndex,
    children,
    indices_of,
    map_buffers,
    map_exprs,
    map_indices,
    small_floats,
    substitute_index,
    with_children,
)
from tilewright.lower.elementary.num import INF, NAN, Num, select

_FRACTION: Final = 23
_BIAS: Final = 127
"""f32: bits of the fraction, and bias of the exponent (IEEE 754-2019, table 3.5)."""


@dataclass(frozen=True, slots=True)
class Format:
    """A small float: bits of its fraction, exponent bias, and the bit patterns of numbers that are special.

    ``beyond`` is what numbers become that are too large; ``nan`` are the patterns of both signs. Without
    ``signed_zero`` the pattern of -0 is NaN. ``zero`` is False where there are neither zero nor signs.
    """

    bits: int
    fraction: int
    bias: int
    largest: int
    beyond: int
    nan: tuple[int, int]
    infinite: bool
    signed_zero: bool
    zero: bool

    @property
    def sign(self) -> int:
        """The pattern of the sign alone."""
        return 1 << self.bits - 1


@cache
def format_of(dtype: DType) -> Format:
    """The format of a small float type."""

    def code(value: float) -> int:
        return int(small_floats(np.float64(value), dtype).view(np.uint8))

    info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # the package's own stubs
    zero = code(0.0) == 0
    return Format(
        bits=dtype.bits,
        fraction=info.nmant,
        bias=1 - int(info.minexp) if zero else int(-np.log2(float(info.smallest_normal))),
        largest=code(float(info.max)),
        beyond=code(np.inf),
        nan=(code(np.nan), code(-np.nan)),
        infinite=bool(np.isinf(float(small_floats(np.float64(np.inf), dtype)))),
        signed_zero=code(-0.0) != 0,
        zero=zero,
    )


def hold_small(func: LoopFunction) -> LoopFunction:
    """The function with bytes in place of small types; itself where it has none."""
    memo: dict[int, tuple[Expr, Expr]] = {}

    def of_index(i: Index) -> Index:
        return substitute_index(i, {}, of_expr)

    def of_expr(e: Expr) -> Expr:
        known = memo.get(id(e))
        if known is None:
            e_held = _held(e, tuple(of_expr(k) for k in children(e)))
            # the key's object is kept, so that its identity is not used again
            memo[id(e)] = known = (e, map_indices(e_held, of_index) if indices_of(e_held) else e_held)
        return known[1]

    def of_buffer(b: Buffer) -> Buffer:
        return b.with_(dtype=b.dtype.held) if b.dtype.small else b

    body = map_buffers(map_exprs(func.body, of_index, of_expr), of_buffer)
    buffers = tuple(map(of_buffer, func.buffers))
    if all(a is b for a, b in zip(buffers, func.buffers, strict=True)):
        return func.with_body(body)
    return replace(func, body=body, buffers=buffers)


def _held(e: Expr, kids: tuple[Expr, ...]) -> Expr:
    """The expression, its operands held already, as one of types that machines have."""
    match e:
        case Cast(a, dtype, mode) if a.dtype.small or dtype.small:
            return _converted(Num(kids[0]), a.dtype, dtype, mode).e
        case Compare(op, a, _) if a.dtype.small and a.dtype.is_float:
            return Compare(op, *(_widened(Num(k), a.dtype).e for k in kids))
        case Load() if e.dtype.small:
            byte = Num(Load(e.buffer, e.indices, e.dtype.held))
            # arrays of ml_dtypes leave open what is in a byte above the number
            return (_wrapped(byte, e.dtype) if e.dtype.bits < 8 else byte).e
        case OfIndex() if e.dtype.small:
            return _converted(Num(OfIndex(e.index, I64)), I64, e.dtype, "wrap").e
        case Const() if e.dtype.small:
            if not e.dtype.is_float:
                return Const(e.value, e.dtype.held)
            return Const(int(small_floats(np.float64(e.value), e.dtype).view(np.uint8)), U8)
        case _:
            return with_children(e, kids)


def _converted(a: Num, source: DType, target: DType, mode: str) -> Num:
    """What is held of a value of ``source``, converted to ``target``."""
    if mode == "bits":
        return a.to(target.held) if target.bits == 8 else _wrapped(a, target)
    value = _widened(a, source)
    if not target.small:
        return value if value.dtype == target else Num(Cast(value.e, target, mode))
    if target.is_float:
        rounded = value if value.dtype == F32 else value.to(F32)
        return _rounded(rounded, format_of(target), mode == "saturate")
    if mode == "saturate":
        low, high = int(target.min_value), int(target.max_value)
        if value.dtype != target.held:
            value = Num(Cast(value.e, target.held, mode))
        return value.at_least(low).at_most(high)
    # floats out of range have no meaning, in the wider type as in this
    return _wrapped(value.to(I32) if value.dtype.is_float else value, target)


def _wrapped(a: Num, target: DType) -> Num:
    """The low bits of an integer, as the small integers ``target``, or as a pattern of so many bits."""
    low = a.to(U8) & (1 << target.bits) - 1
    if target.held == U8:
        return low
    sign = 1 << target.bits - 1
    return (low.to(I8) ^ sign) - sign


def _widened(a: Num, source: DType) -> Num:
    """A held value as a number that machines compute with: integers as they are, floats in f32."""
    if not (source.small and source.is_float):
        return a
    f = format_of(source)
    code = a.to(I32)
    if not f.zero:
        # exponents alone: that of f32, whose pattern 0 is a number of its own
        least = select(code.equals(0), code.const(1 << _FRACTION - 1), code << _FRACTION)
        return select(code.equals(f.nan[0]), Num(Const(NAN, F32)), least.from_bits())
    magnitude = code & f.sign - 1
    value = (magnitude << _FRACTION - f.fraction).from_bits() * 2.0 ** (_BIAS - f.bias)
    if f.infinite:
        value = select(magnitude.equals(f.beyond), value.const(INF), value)
    if not f.signed_zero:
        value = select(code.equals(f.sign), value.const(NAN), value)
    elif f.nan[0] & f.sign - 1 > f.largest:
        value = select(magnitude > (f.beyond if f.infinite else f.largest), value.const(NAN), value)
    return select(code >= f.sign, -value, value)


def _rounded(x: Num, f: Format, saturate: bool) -> Num:
    """The pattern of the number of the format that is nearest to one of f32; see ``small_floats``."""
    bits = x.bits()
    magnitude = bits & 0x7FFFFFFF
    drop = _FRACTION - f.fraction
    # half of what is dropped, less where the last bit that stays is even; carries go on into the exponent
    kept = magnitude - (_BIAS - f.bias << _FRACTION)
    if f.zero:
        code = (kept + ((1 << drop - 1) - 1) + (kept >> drop & 1)) >> drop
        # below the normal numbers: beside this one, f32 counts in steps of the least number of the format
        base = x.const(2.0 ** (1 - f.bias - f.fraction + _FRACTION))
        below = (abs(x) + base).bits() - base.bits()
        code = select(magnitude < (_BIAS - f.bias + 1 << _FRACTION), below, code)
    else:
        normal = select(magnitude < 1 << _FRACTION, kept.const(0), kept.const(1))
        code = (kept + ((1 << drop - 1) - 1) + normal) >> drop
    code = select(code > f.largest, code.const(f.largest if saturate else f.beyond), code)
    negative = bits < 0
    if not f.zero:
        code = select(bits > 0, code, code.const(f.nan[0]))
    elif f.signed_zero:
        code = select(negative, code | f.sign, code)
    else:
        code = select(negative & code.differs(0), code | f.sign, code)
    nan = select(negative, code.const(f.nan[1]), code.const(f.nan[0]))
    return select(magnitude > 0xFF << _FRACTION, nan, code).to(U8)
