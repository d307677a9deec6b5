"""Functions of image pipelines, composed of the primitive ones: fixed point, blending, choices, noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright import ir
from tilewright.ir import DType
from tilewright.lang.conversions import common_dtype, dtype_from, to_expr, to_scalar
from tilewright.lang.functions import cast, const, maximum, minimum, select
from tilewright.lang.source import problem
from tilewright.lang.values import IndexLike, Scalar, ValueLike, as_index


def absd(a: ValueLike, b: ValueLike) -> Scalar:
    """``|a - b|`` without overflow: of signed integers as the unsigned type of the same width.

    Raises ProgramError for i64, which has no such type.
    """
    x, y = _pair(a, b, "absd")
    if x.dtype.is_float:
        return abs(x - y)
    if x.dtype.bits > 32:
        raise problem("lang.absd on values of type i64", "no unsigned type is as wide: write abs(a - b)")
    difference = maximum(x, y) - minimum(x, y)
    return cast(difference, f"u{x.dtype.bits}")


def avg_floor(a: ValueLike, b: ValueLike) -> Scalar:
    """``(a + b) // 2`` of integers, as if computed in a wider type (Warren, Hacker's Delight, Sec. 2-5)."""
    x, y = _integers(a, b, "avg_floor")
    return (x & y) + ((x ^ y) >> const(1, x.dtype))


def avg_round(a: ValueLike, b: ValueLike) -> Scalar:
    """``(a + b + 1) // 2`` of integers, as if computed in a wider type (Warren, Sec. 2-5)."""
    x, y = _integers(a, b, "avg_round")
    return (x | y) - ((x ^ y) >> const(1, x.dtype))


def saturating_add(a: ValueLike, b: ValueLike) -> Scalar:
    """``a + b`` of integers, or the nearest value that the type has."""
    x, y = _integers(a, b, "saturating_add")
    if x.dtype.kind == "uint":
        return minimum(x, ~y) + y
    total = x + y
    return _unless((x ^ total) & (y ^ total), x, total)


def saturating_sub(a: ValueLike, b: ValueLike) -> Scalar:
    """``a - b`` of integers, or the nearest value that the type has."""
    x, y = _integers(a, b, "saturating_sub")
    if x.dtype.kind == "uint":
        return maximum(x, y) - y
    total = x - y
    return _unless((x ^ y) & (x ^ total), x, total)


def saturating_cast(x: Scalar, dtype: DType | str) -> Scalar:
    """``x`` converted to the nearest value that ``dtype`` has; NaN to 0."""
    return cast(x, dtype, "saturate")


def _unless(overflow: Scalar, x: Scalar, total: Scalar) -> Scalar:
    """``total``, or where the sign of ``overflow`` is set the end of the range on the side of ``x``."""
    t = x.dtype
    end = select(x < 0, const(t.min_value, t), const(t.max_value, t))
    return select(overflow < 0, end, total)


def lerp(a: ValueLike, b: ValueLike, weight: ValueLike) -> Scalar:
    """From ``a`` at weight 0 to ``b`` at weight 1: ``a * (1 - weight) + b * weight``.

    Of unsigned integers (of 8 or 16 bits) the weight has their type and its greatest value means 1; the
    result is rounded to nearest. Raises ProgramError for other integers, and for a weight of another type.
    """
    t = common_dtype((a, b, weight), "lang.lerp")
    x, y, w = (Scalar(to_expr(v, t, "an operand of lang.lerp")) for v in (a, b, weight))
    if t.is_float:
        return x * (1 - w) + y * w
    if t.kind != "uint" or t.bits > 16:
        raise problem(f"lang.lerp on values of type {t}", "use floats, u8 or u16")
    one = int(t.max_value)
    wide = f"u{2 * t.bits}"
    x, y, w = (cast(v, wide) for v in (x, y, w))
    return cast((x * (one - w) + y * w + one // 2) // one, t)


def mux(choice: ValueLike, values: Sequence[ValueLike]) -> Scalar:
    """``values[choice]``, the last one for greater numbers; only the chosen one is evaluated.

    Raises ProgramError for no values, and a ``choice`` that is no integer.
    """
    if not values:
        raise problem("lang.mux of no values", "list what to choose from")
    t = common_dtype(values, "lang.mux")
    index = as_index(choice)
    number = to_scalar(choice) if index is not None else choice  # type: ignore[arg-type]  # an index
    if not isinstance(number, Scalar) or not number.dtype.is_integer:
        raise problem("the choice of lang.mux is not an integer", "give an index or an integer scalar")
    out = Scalar(to_expr(values[-1], t, "a value of lang.mux"))
    for n in reversed(range(len(values) - 1)):
        out = select(number == n, values[n], out)
    return out


#: Shifts and factors of the finaliser of MurmurHash3 (Appleby, 2011), and 2**32 by the golden ratio.
_MIX: Final = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1))
_STEP: Final = 0x9E3779B9


def random(seed: int, *indices: IndexLike | Scalar, dtype: DType | str = "f32") -> Scalar:
    """A number that looks random and depends on ``seed`` and the integers ``indices`` alone.

    ``f32``: one of ``2**24`` values evenly spread over [0, 1); ``u32`` or ``i32``: any value. Not for
    cryptography.

    Raises ProgramError for another type, and for indices that are no integers.
    """
    t = dtype_from(dtype)
    if t.name not in ("f32", "u32", "i32"):
        raise problem(f"lang.random of type {t}", "f32, u32 or i32")
    h = const(seed % (1 << 32), "u32")
    for i in indices:
        index = as_index(i)
        if index is None and not (isinstance(i, Scalar) and i.dtype.is_integer):
            raise problem("lang.random takes integers besides the seed", "give indices or integer scalars")
        number = Scalar(ir.OfIndex(index, ir.I64)) if index is not None else i
        assert isinstance(number, Scalar)
        h = _mixed(h * _STEP + cast(number, "u32"))
    h = _mixed(h)
    if t.name != "f32":
        return cast(h, t)
    return cast(h >> 8, "f32") * (1 / (1 << 24))


def _mixed(h: Scalar) -> Scalar:
    for shift, factor in _MIX:
        h = (h ^ (h >> shift)) * factor
    return h


def _pair(a: ValueLike, b: ValueLike, name: str) -> tuple[Scalar, Scalar]:
    t = common_dtype((a, b), f"lang.{name}")
    if t.kind == "bool":
        raise problem(f"lang.{name} of conditions", "cast to a number: lang.cast(x, 'i32')")
    x, y = (Scalar(to_expr(v, t, f"an operand of lang.{name}")) for v in (a, b))
    return x, y


def _integers(a: ValueLike, b: ValueLike, name: str) -> tuple[Scalar, Scalar]:
    x, y = _pair(a, b, name)
    if not x.dtype.is_integer:
        raise problem(f"lang.{name} on values of type {x.dtype}", "it is for integers")
    return x, y
