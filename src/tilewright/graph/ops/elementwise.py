"""Arithmetic, comparisons, logic, conversions: one element in from each operand, one element out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial, reduce
from types import MappingProxyType
from typing import Final

import numpy as np

from tilewright import lang
from tilewright.graph.operand import Ix, Operand, compute
from tilewright.graph.ops.common import (
    Scalar,
    broadcast_shape,
    cast,
    elementwise,
    is_float,
    is_signed,
    number,
    read,
    stem,
    wide,
)
from tilewright.graph.registry import OWN, Context, Kind, operator
from tilewright.ir import dtype_of

_ELEMENTWISE = Kind.ELEMENTWISE

_FUNCTIONS: Final[Mapping[str, Callable[[Scalar], Scalar]]] = MappingProxyType(
    {
        "Exp": lang.exp,
        "Log": lang.log,
        "Sqrt": lang.sqrt,
        "Floor": lang.floor,
        "Ceil": lang.ceil,
        "Round": lang.round,
        "Sin": lang.sin,
        "Cos": lang.cos,
        "Tan": lang.tan,
        "Asin": lang.asin,
        "Acos": lang.acos,
        "Atan": lang.atan,
        "Sinh": lang.sinh,
        "Cosh": lang.cosh,
        "Asinh": lang.asinh,
        "Acosh": lang.acosh,
        "Atanh": lang.atanh,
        "Tanh": lang.tanh,
        "Erf": lang.erf,
        "Sigmoid": lang.sigmoid,
        "Reciprocal": lambda x: 1.0 / x,
    }
)

_FINITE: Final = frozenset({"Atan", "Ceil", "Cos", "Erf", "Floor", "Round", "Sigmoid", "Sin", "Tanh"})

#: Functions that the standard composes of others, at a loss of digits or of signs.
_OWN_FUNCTIONS: Final[Mapping[str, Callable[[Scalar], Scalar]]] = MappingProxyType(
    {
        "Trunc": lang.trunc,
        "Expm1": lang.expm1,
        "Log1p": lang.log1p,
        "Log2": lang.log2,
        "Exp2": lang.exp2,
        "Rsqrt": lang.rsqrt,
    }
)


@operator(*_FUNCTIONS, kind=_ELEMENTWISE, finite=_FINITE)
@operator(*_OWN_FUNCTIONS, kind=_ELEMENTWISE, domain=OWN)
def function(ctx: Context, x: Operand) -> Operand:
    """A function of one floating-point argument."""
    op = ctx.node.op
    if (op == "Erf" or ctx.node.domain) and not is_float(x.dtype):
        raise ctx.unsupported(f"{op} of {x.dtype}")
    return elementwise(ctx, _OWN_FUNCTIONS[op] if ctx.node.domain else _FUNCTIONS[op], x)


_OWN_PAIRS: Final[Mapping[str, Callable[[Scalar, Scalar], Scalar]]] = MappingProxyType(
    {"Atan2": lang.atan2, "CopySign": lang.copysign, "FloorDiv": lambda x, y: x // y}
)


@operator(*_OWN_PAIRS, kind=_ELEMENTWISE, domain=OWN)
def function_of_two(ctx: Context, x: Operand, y: Operand) -> Operand:
    """A function of two numbers of one type; quotients of integers are rounded down."""
    ctx.require(x.dtype == y.dtype, f"its inputs have the dtypes {x.dtype} and {y.dtype}")
    if is_float(x.dtype) == (ctx.node.op == "FloorDiv"):
        raise ctx.unsupported(f"{ctx.node.op} of {x.dtype}")
    return elementwise(ctx, _OWN_PAIRS[ctx.node.op], x, y)


@operator("Abs", kind=_ELEMENTWISE, finite=True)
def absolute(ctx: Context, x: Operand) -> Operand:
    """|x|."""
    return elementwise(ctx, lang.absolute if is_signed(x.dtype) else lambda a: a, x)


@operator("Neg", kind=_ELEMENTWISE, finite=True)
def negate(ctx: Context, x: Operand) -> Operand:
    """-x."""
    return elementwise(ctx, lambda a: -a, x)


@operator("Sign", kind=_ELEMENTWISE, finite=True)
def sign(ctx: Context, x: Operand) -> Operand:
    """-1, 0 or 1."""
    zero, one = number(0, x.dtype), number(1, x.dtype)
    below = number(-1, x.dtype) if is_signed(x.dtype) else zero

    def of(a: Scalar) -> Scalar:
        # A NaN stays what it is: it is neither above nor below zero. -0.0 becomes 0.0.
        return lang.select(a > zero, one, lang.select(a < zero, below, a + zero))

    return elementwise(ctx, of, x)


@operator("Not", "BitwiseNot", kind=_ELEMENTWISE)
def negation(ctx: Context, x: Operand) -> Operand:
    """Logical negation of a bool, the complement of every bit of an integer."""
    return elementwise(ctx, lambda a: ~a, x)


@operator("IsNaN", kind=_ELEMENTWISE)
def is_nan(ctx: Context, x: Operand) -> Operand:
    """Whether an element is not a number."""
    return elementwise(ctx, lang.isnan, x)


@operator("IsInf", kind=_ELEMENTWISE)
def is_inf(ctx: Context, x: Operand) -> Operand:
    """Whether an element is infinite, of the signs that the attributes ask for."""
    positive, negative = ctx.integer("detect_positive", 1), ctx.integer("detect_negative", 1)
    infinity = number(math.inf, x.dtype)

    def of(a: Scalar) -> Scalar:
        if positive and negative:
            return lang.isinf(a)
        if positive or negative:
            return a == (infinity if positive else number(-math.inf, x.dtype))
        return lang.const(False, "bool")

    return elementwise(ctx, of, x, dtype="bool")


def _divide(x: Scalar, y: Scalar, dtype: str) -> Scalar:
    # Integer division of the standard truncates, as C's does.
    return x / y if is_float(dtype) else lang.truncdiv(x, y)


_ARITHMETIC: Final[Mapping[str, Callable[[Scalar, Scalar], Scalar]]] = MappingProxyType(
    {
        "Add": lambda x, y: x + y,
        "Sub": lambda x, y: x - y,
        "Mul": lambda x, y: x * y,
        "BitwiseAnd": lambda x, y: x & y,
        "BitwiseOr": lambda x, y: x | y,
        "BitwiseXor": lambda x, y: x ^ y,
        "And": lambda x, y: x & y,
        "Or": lambda x, y: x | y,
        "Xor": lambda x, y: x ^ y,
    }
)


@operator(*_ARITHMETIC, kind=_ELEMENTWISE, finite={"Add", "Mul", "Sub"})
def arithmetic(ctx: Context, x: Operand, y: Operand) -> Operand:
    """A binary operation whose operands and result have one dtype."""
    ctx.require(x.dtype == y.dtype, f"its inputs have the dtypes {x.dtype} and {y.dtype}")
    return elementwise(ctx, _ARITHMETIC[ctx.node.op], x, y)


@operator("Div", kind=_ELEMENTWISE)
def divide(ctx: Context, x: Operand, y: Operand) -> Operand:
    """`x / y`; integers round towards zero."""
    ctx.require(x.dtype == y.dtype, f"its inputs have the dtypes {x.dtype} and {y.dtype}")
    return elementwise(ctx, partial(_divide, dtype=x.dtype), x, y)


@operator("Mod", kind=_ELEMENTWISE)
def modulo(ctx: Context, x: Operand, y: Operand) -> Operand:
    """The remainder, with the sign of y, or of x where `fmod` is set."""
    ctx.require(x.dtype == y.dtype, f"its inputs have the dtypes {x.dtype} and {y.dtype}")
    truncated = ctx.flag("fmod", False)
    if not is_float(x.dtype):
        return elementwise(ctx, lang.rem if truncated else lambda a, b: a % b, x, y)
    inner = wide(x.dtype)

    def of(a: Scalar, b: Scalar) -> Scalar:
        a, b = cast(a, x.dtype, inner), cast(b, x.dtype, inner)
        rest = lang.rem(a, b)
        if not truncated:
            opposed = (rest < 0.0) != (b < 0.0)
            rest = lang.select(rest == 0.0, lang.copysign(rest, b), lang.select(opposed, rest + b, rest))
        return cast(rest, inner, x.dtype)

    return elementwise(ctx, of, x, y)


@operator("Pow", kind=_ELEMENTWISE)
def power(ctx: Context, x: Operand, y: Operand) -> Operand:
    """`x ** y`, in the dtype of x. Small constant whole powers become products."""
    exponent = ctx.values[1]
    if exponent is not None and exponent.size == 1:
        whole = float(exponent.reshape(()))
        if whole in (1.0, 2.0, 3.0, 4.0):
            shape = broadcast_shape(ctx, x.shape, y.shape)

            def product(*i: Ix) -> Scalar:
                return reduce(lambda p, q: p * q, [read(x, i)] * int(whole))

            return compute(shape, product, name=stem(ctx))
        if whole == 0.5 and is_float(x.dtype):
            return elementwise(ctx, lambda a, b: lang.sqrt(a), x, y)
    inner = x.dtype if is_float(x.dtype) else "f64"

    def of(a: Scalar, b: Scalar) -> Scalar:
        result = lang.pow(cast(a, x.dtype, inner), cast(b, y.dtype, inner))
        return cast(result, inner, x.dtype)

    return elementwise(ctx, of, x, y)


_COMPARISONS: Final[Mapping[str, Callable[[Scalar, Scalar], Scalar]]] = MappingProxyType(
    {
        "Equal": lambda x, y: x == y,
        "Less": lambda x, y: x < y,
        "Greater": lambda x, y: x > y,
        "LessOrEqual": lambda x, y: x <= y,
        "GreaterOrEqual": lambda x, y: x >= y,
    }
)


@operator(*_COMPARISONS, kind=_ELEMENTWISE)
def compare(ctx: Context, x: Operand, y: Operand) -> Operand:
    """A comparison: bool."""
    ctx.require(x.dtype == y.dtype, f"its inputs have the dtypes {x.dtype} and {y.dtype}")
    return elementwise(ctx, _COMPARISONS[ctx.node.op], x, y, dtype="bool")


_FOLDS: Final[Mapping[str, Callable[[Scalar, Scalar], Scalar]]] = MappingProxyType(
    {
        "Sum": lambda x, y: x + y,
        "Mean": lambda x, y: x + y,
        "Max": lang.maximum,
        "Min": lang.minimum,
    }
)


@operator(*_FOLDS, kind=_ELEMENTWISE, finite={"Max", "Min"})
def fold(ctx: Context, first: Operand, *others: Operand) -> Operand:
    """Sum, mean, maximum or minimum of any number of operands."""
    combine, xs = _FOLDS[ctx.node.op], (first, *others)
    known = [v for v in ctx.values if v is not None and v.size == 1]
    # machines give either of two zeros: where the outer one is known to be there, it is the result
    outer = {"Max": 0.0, "Min": -0.0}.get(ctx.node.op, math.nan)
    settled = is_float(first.dtype) and any(v == outer and np.signbit(v) == np.signbit(outer) for v in known)

    def of(*scalars: Scalar) -> Scalar:
        terms = list(scalars)
        while len(terms) > 1:
            # in pairs: expressions of thousands of operands nest a dozen levels deep
            terms = [reduce(combine, terms[at : at + 2]) for at in range(0, len(terms), 2)]
        total = terms[0]
        if settled:
            zero = number(outer, first.dtype)
            total = lang.select(total == zero, zero, total)
        return total / number(len(scalars), first.dtype) if ctx.node.op == "Mean" else total

    return elementwise(ctx, of, *xs)


@operator("BitShift", kind=_ELEMENTWISE)
def bit_shift(ctx: Context, x: Operand, y: Operand) -> Operand:
    """Bits of x shifted by y places; y below zero or from the dtype's width on shifts all of them out."""
    left = ctx.choice("direction", ("LEFT", "RIGHT")) == "LEFT"
    bits, signed = dtype_of(x.dtype).bits, is_signed(x.dtype)
    zero, last = number(0, x.dtype), number(bits - 1, x.dtype)

    def of(a: Scalar, b: Scalar) -> Scalar:
        inside = (b >= zero) & (b <= last) if signed else b <= last
        places = lang.select(inside, b, last)
        if signed and not left:
            # Copies of the sign come in: shifting by all bits but one leaves nothing else.
            return a >> places
        return lang.select(inside, a << places if left else a >> places, zero)

    return elementwise(ctx, of, x, y)


@operator("Where", kind=_ELEMENTWISE)
def where(ctx: Context, condition: Operand, x: Operand, y: Operand) -> Operand:
    """The elements of x where the condition holds, those of y elsewhere."""
    ctx.require(x.dtype == y.dtype, f"its inputs have the dtypes {x.dtype} and {y.dtype}")
    return elementwise(ctx, lang.select, condition, x, y)


@operator("Clip", kind=_ELEMENTWISE, finite=True)
def clip(ctx: Context, x: Operand, low: Operand | None = None, high: Operand | None = None) -> Operand:
    """The elements limited to [low, high]; where low > high, high wins."""

    def of(*index: Ix) -> Scalar:
        result = x[index]
        if low is not None:
            result = lang.maximum(result, read(low, index))
        elif ctx.has("min"):
            result = lang.maximum(result, number(ctx.real("min"), x.dtype))
        if high is not None:
            result = lang.minimum(result, read(high, index))
        elif ctx.has("max"):
            result = lang.minimum(result, number(ctx.real("max"), x.dtype))
        return result

    return compute(x.shape, of, name=stem(ctx))


def convert(ctx: Context, a: Scalar, source: str, target: str, saturate: bool = False) -> Scalar:
    """The conversion of the standard: to bool by comparison with zero, to integers towards zero.

    Small floats are limited to their range where the attribute `saturate` says so, as it does by default;
    integers of few bits keep their lowest ones.
    """
    if source == target:
        return a
    if target == "f8e8m0":
        return _power(ctx, cast(a, source, "f32"))
    if dtype_of(target).small and target.startswith("f"):
        return lang.cast(a, target, "saturate" if ctx.flag("saturate", True) else "wrap")
    if dtype_of(target).small and is_float(source):
        return lang.cast(lang.cast(a, "i32"), target)
    if target == "bool":
        return a != number(0, source)
    if source == "bool":
        return lang.select(a, number(1, target), number(0, target))
    return lang.cast(a, target, "saturate") if saturate else lang.cast(a, target)


def _power(ctx: Context, a: Scalar) -> Scalar:
    """An f32 number, less its sign, as the power of two above, below, or nearest, as `round_mode` says."""
    way = ctx.choice("round_mode", ("up", "down", "nearest"), "up")
    bits = lang.cast(a, "i32", "bits") & 0x7FFFFFFF
    exponent, fraction = bits >> 23, bits & 0x7FFFFF
    above = fraction > 0
    if way == "nearest":
        # of two as near the larger one, but for the least
        above = (fraction > 0x400000) | ((fraction == 0x400000) & (exponent > 0))
    if way == "down":
        above = lang.const(False, "bool")
    if ctx.flag("saturate", True):
        above = above & (exponent != 0xFE)
    code = exponent + lang.select(above & (exponent != 0xFF), number(1, "i32"), number(0, "i32"))
    return lang.cast(lang.cast(code, "u8"), "f8e8m0", "bits")


@operator("Cast", kind=_ELEMENTWISE)
def cast_to(ctx: Context, x: Operand) -> Operand:
    """The elements converted to the dtype that the attribute `to` names."""
    target = ctx.text("to")
    return elementwise(ctx, lambda a: convert(ctx, a, x.dtype, target), x, dtype=target)


@operator("CastLike", kind=_ELEMENTWISE)
def cast_like(ctx: Context, x: Operand, like: Operand) -> Operand:
    """The elements converted to the dtype of another tensor."""
    return elementwise(ctx, lambda a: convert(ctx, a, x.dtype, like.dtype), x, dtype=like.dtype)


@operator("BitCast", kind=_ELEMENTWISE)
def bit_cast(ctx: Context, x: Operand) -> Operand:
    """The same bits under another dtype of the same width."""
    target = ctx.text("to")
    if dtype_of(target).bits != dtype_of(x.dtype).bits or "bool" in (target, x.dtype):
        raise ctx.unsupported(f"reinterpreting {x.dtype} as {target}")
    if target == x.dtype:
        return elementwise(ctx, lambda a: a, x)
    return elementwise(ctx, lambda a: lang.cast(a, target, "bits"), x, dtype=target)


@operator("Dropout", kind=_ELEMENTWISE, static=(1, 2))
def dropout(
    ctx: Context, x: Operand, ratio: Operand | None = None, training: Operand | None = None
) -> tuple[Operand, ...]:
    """Dropout when inferring: the input itself, and a mask that keeps everything."""
    rate = ctx.values[1] if ratio is not None else None
    nothing_dropped = rate is not None and float(rate.reshape(())) == 0.0
    if training is not None and not nothing_dropped and bool(ctx.static(2).reshape(())):
        raise ctx.unsupported("dropout in training mode")
    same = compute(x.shape, lambda *i: x[i], name=stem(ctx))
    if not ctx.wants(1):
        return (same,)
    mask_dtype = "bool" if ctx.version >= 10 else x.dtype
    mask = compute(
        x.shape, lambda *i: lang.const(True, mask_dtype), name=f"{stem(ctx)}_mask", dtype=mask_dtype
    )
    return same, mask


@operator("BatchNormalization", kind=_ELEMENTWISE)
def batch_normalization(
    ctx: Context, x: Operand, scale: Operand, bias: Operand, mean: Operand, variance: Operand
) -> Operand:
    """`(x - mean) / sqrt(variance + epsilon) * scale + bias, by channel (axis 1)."""
    if ctx.flag("training_mode", False) or any(ctx.wants(output) for output in range(1, 5)):
        raise ctx.unsupported("batch normalisation in training mode")
    epsilon = ctx.real("epsilon", 1e-5)
    given, wanted = (scale, bias, mean, variance), x.shape[1:2] or (1,)
    shapes = ", ".join(str(list(each.shape)) for each in given)
    ctx.require(
        all(each.shape == wanted for each in given),
        f"its factors {shapes} must have the shape {list(wanted)}",
    )

    def of(*i: Ix) -> Scalar:
        c = (i[1],) if len(i) > 1 else (0,)
        factor = scale[c] * lang.rsqrt(variance[c] + number(epsilon, variance.dtype))
        centred = cast(x[i], x.dtype, mean.dtype) - mean[c]
        return cast(centred * factor + bias[c], mean.dtype, x.dtype)

    return compute(x.shape, of, name=stem(ctx), dtype=x.dtype)
