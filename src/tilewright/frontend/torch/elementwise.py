"""Element-wise operators of ATen: arithmetic, comparisons, functions, conversions.

Numbers follow torch: half-precision elements are computed in single precision and rounded once an operator;
integers wrap; what would depend on a division by zero of integers, an error there, is refused.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch

from tilewright.frontend.torch.dtypes import DTYPES
from tilewright.frontend.torch.writer import Made, Number, Operand, Rule, Rules, Value, Writer, wide
from tilewright.graph import OWN
from tilewright.ir import dtype_of

_TORCH: Final = MappingProxyType({name: dtype for dtype, name in DTYPES.items()})


def common_dtype(a: Operand, b: Operand) -> str:
    """The element type that torch compares two operands in; numbers count less than tensors."""

    def probe(x: Operand) -> Any:
        if not isinstance(x, Value):
            return x
        return torch.empty((1,) * min(x.rank, 1), dtype=_TORCH[x.dtype], device="meta")

    if not isinstance(a, Value) and not isinstance(b, Value):
        return "f32"
    return DTYPES[torch.result_type(probe(a), probe(b))]


def function(op: str, domain: str = "") -> Rule:
    """A function of one number, which integers are converted for."""

    def rule(w: Writer, x: Value) -> Made:
        made = w.add(op, w.to(w.to(x, w.out.dtype), w.inner), domain=domain)
        return w.to(made, w.out.dtype)

    return rule


def rounding(op: str, domain: str = "") -> Rule:
    """A function that integers are left by as they are."""
    of = function(op, domain)
    return lambda w, x: of(w, x) if x.is_float else x


def arithmetic(op: str, logical: str = "") -> Rule:
    """An operation on numbers of the result's type, a ``logical`` one on truth values."""

    def rule(w: Writer, self: Operand, other: Operand, alpha: Number = 1) -> Made:
        dtype, inner = w.out.dtype, w.inner
        if dtype == "bool":
            w.require(bool(logical), f"{op} of truth values")
            return w.add(logical, w.to(self, dtype), w.to(other, dtype))
        b = w.to(other, inner)
        if alpha != 1:
            b = w.add("Mul", b, w.number(alpha, inner))
        return w.to(w.add(op, w.to(self, inner), b), dtype)

    return rule


def reverse_subtract(w: Writer, self: Operand, other: Operand, alpha: Number = 1) -> Made:
    """The second operand without the first."""
    return arithmetic("Sub")(w, other, self) if alpha == 1 else w.refuse("its alpha is not 1")


def _nonzero(w: Writer, divisor: Operand) -> None:
    """Refuse a division of integers whose divisor might be zero: torch raises an error there."""
    known = w.walk.constants.get(divisor.name) if isinstance(divisor, Value) else divisor
    w.require(known is not None and bool(np.all(known)), "integers are divided by what may be zero")


def divide(w: Writer, self: Operand, other: Operand, rounding_mode: str | None = None) -> Made:
    """A quotient: true, or rounded to a whole number towards zero or down."""
    dtype, inner = w.out.dtype, w.inner
    a, b = w.to(self, inner), w.to(other, inner)
    if rounding_mode is None:
        return w.to(w.add("Div", a, b), dtype)
    if not dtype_of(dtype).is_float:
        _nonzero(w, other)
        if rounding_mode == "trunc":
            return w.add("Div", a, b)
        return w.add("FloorDiv", a, b, domain=OWN)
    if rounding_mode == "trunc":
        return w.to(w.add("Trunc", w.add("Div", a, b), domain=OWN), dtype)
    return w.to(_floor_quotient(w, a, b), dtype)


def _floor_quotient(w: Writer, a: Value, b: Value) -> Value:
    """The quotient rounded down, as Python has it: what the remainder leaves, exactly divided."""
    w.require(a.dtype != "f64", "quotients of double precision are rounded by exact remainders")
    zero, half, one = (w.number(value, a.dtype) for value in (0.0, 0.5, 1.0))
    rest = w.add("Mod", a, b, fmod=1)
    quotient = w.add("Div", w.add("Sub", a, rest), b)
    opposed = w.add("Xor", w.add("Less", b, zero), w.add("Less", rest, zero))
    lower = w.add("And", w.add("Not", w.add("Equal", rest, zero)), opposed)
    quotient = w.add("Where", lower, w.add("Sub", quotient, one), quotient)
    down = w.add("Floor", quotient)
    far = w.add("Greater", w.add("Sub", quotient, down), half)
    down = w.add("Where", far, w.add("Add", down, one), down)
    plain = w.add("Div", a, b)
    nothing = w.add("CopySign", w.expand(zero, plain.shape), plain, domain=OWN)
    down = w.add("Where", w.add("Equal", quotient, zero), nothing, down)
    return w.add("Where", w.add("Equal", b, zero), plain, down)


def remainder(truncated: bool) -> Rule:
    """What a division leaves, with the sign of the divisor, or ``truncated`` of the dividend."""

    def rule(w: Writer, self: Operand, other: Operand) -> Made:
        dtype, inner = w.out.dtype, w.inner
        a, b = w.to(self, inner), w.to(other, inner)
        if not dtype_of(dtype).is_float:
            _nonzero(w, other)
            return w.add("Mod", a, b, fmod=int(truncated))
        w.require(inner != "f64", "remainders of double precision are not exact")
        rest = w.add("Mod", a, b, fmod=1)
        if truncated:
            return w.to(rest, dtype)
        zero = w.number(0.0, inner)
        opposed = w.add("Xor", w.add("Less", b, zero), w.add("Less", rest, zero))
        moved = w.add("And", w.add("Not", w.add("Equal", rest, zero)), opposed)
        return w.to(w.add("Where", moved, w.add("Add", rest, b), rest), dtype)

    return rule


def power(w: Writer, self: Operand, exponent: Operand) -> Made:
    """A power. Integers have small constant exponents."""
    dtype, inner = w.out.dtype, w.inner
    if not isinstance(exponent, Value):
        x = w.to(self, inner)
        if exponent == 0:
            return w.full(w.out.sizes, 1, dtype)
        if exponent == 1:
            return w.to(x, dtype)
        if exponent == 0.5:
            return w.to(w.add("Sqrt", x), dtype)
        if exponent in (2, 3):
            made = w.add("Mul", x, x)
            return w.to(made if exponent == 2 else w.add("Mul", made, x), dtype)
        if exponent in (-1, -2, -0.5) and dtype_of(dtype).is_float:
            base = {-1: lambda: x, -2: lambda: w.add("Mul", x, x), -0.5: lambda: w.add("Sqrt", x)}
            return w.to(w.add("Reciprocal", base[exponent]()), dtype)
    w.require(dtype_of(dtype).is_float, "a power of integers")
    return w.to(w.add("Pow", w.to(self, inner), w.to(exponent, inner)), dtype)


def comparison(op: str, negated: bool = False) -> Rule:
    """A comparison, in the type that both operands have in common."""

    def rule(w: Writer, self: Operand, other: Operand) -> Made:
        dtype = common_dtype(self, other)
        kind = dtype_of(dtype)
        if not isinstance(other, Value) and kind.is_integer:
            w.require(kind.min_value <= other <= kind.max_value, f"{other} is no number of {dtype}")
        if dtype == "bool" and op != "Equal":
            dtype = "u8"
        a, b = (w.to(w.to(x, dtype), wide(dtype)) for x in (self, other))
        made = w.add(op, a, b)
        return w.add("Not", made) if negated else made

    return rule


def logical(op: str) -> Rule:
    """An operation on what operands are as truth values."""
    return lambda w, self, other: w.add(op, w.to(self, "bool"), w.to(other, "bool"))


def bitwise(op: str, of_truths: str) -> Rule:
    """An operation on bits, or on truth values."""

    def rule(w: Writer, self: Operand, other: Operand) -> Made:
        dtype = w.out.dtype
        return w.add(of_truths if dtype == "bool" else op, w.to(self, dtype), w.to(other, dtype))

    return rule


def shift(direction: str) -> Rule:
    """A shift of bits by known places inside of the type; others mean different things to machines."""

    def rule(w: Writer, self: Operand, other: Operand) -> Made:
        dtype = w.out.dtype
        inside = not isinstance(other, Value) and 0 <= other < dtype_of(dtype).bits
        w.require(inside, "bits are shifted by what may be no place in them")
        return w.add("BitShift", w.to(self, dtype), w.to(other, dtype), direction=direction)

    return rule


def extreme(op: str, of_truths: str) -> Rule:
    """The larger or the smaller of two; no number where one is none."""

    def rule(w: Writer, self: Operand, other: Operand) -> Made:
        dtype, inner = w.out.dtype, w.inner
        if dtype == "bool":
            return w.add(of_truths, w.to(self, dtype), w.to(other, dtype))
        return w.to(w.add(op, w.to(self, inner), w.to(other, inner)), dtype)

    return rule


def clamp(w: Writer, self: Operand, min: Operand | None = None, max: Operand | None = None, **_: Any) -> Made:
    """Limited from below, then from above."""
    made = w.to(self, w.inner)
    w.require(w.out.dtype != "bool", "a clamp of truth values")
    for op, limit in (("Max", min), ("Min", max)):
        if limit is not None:
            made = w.add(op, made, _limit(w, limit))
    return w.to(made, w.out.dtype)


def _limit(w: Writer, limit: Operand) -> Value:
    if isinstance(limit, Value):
        return w.to(limit, w.inner)
    kind = dtype_of(w.inner)
    if not kind.is_float and not math.isfinite(limit):
        w.refuse(f"integers are limited by {limit}")
    return w.number(limit, w.inner)


def hardtanh(w: Writer, self: Value, min_val: Number = -1.0, max_val: Number = 1.0) -> Made:
    """Limited to a range."""
    return clamp(w, self, min_val, max_val)


def relu(w: Writer, self: Value) -> Made:
    """What is below zero is zero."""
    return w.to(w.add("Relu", w.to(self, w.inner)), w.out.dtype)


def leaky_relu(w: Writer, self: Value, negative_slope: Number = 0.01) -> Made:
    """A fraction of what is not above zero."""
    x = w.to(self, w.inner)
    above = w.add("Greater", x, w.number(0, w.inner))
    return w.to(w.add("Where", above, x, w.add("Mul", x, w.number(negative_slope, w.inner))), w.out.dtype)


def elu(w: Writer, self: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Made:
    """``scale * (x if x > 0 else alpha * (exp(x * input_scale) - 1))``."""
    x = w.to(self, w.inner)
    inside = x if input_scale == 1 else w.add("Mul", x, w.number(input_scale, w.inner))
    below = w.add("Mul", w.add("Expm1", inside, domain=OWN), w.number(alpha * scale, w.inner))
    above = x if scale == 1 else w.add("Mul", x, w.number(scale, w.inner))
    made = w.add("Where", w.add("Greater", x, w.number(0, w.inner)), above, below)
    return w.to(made, w.out.dtype)


def gelu(w: Writer, self: Value, approximate: str = "none") -> Made:
    """``x * Phi(x)``, or its approximation by tanh."""
    return w.to(w.add("Gelu", w.to(self, w.inner), approximate=approximate), w.out.dtype)


def silu(w: Writer, self: Value) -> Made:
    """``x * sigmoid(x)``."""
    return w.to(w.add("Swish", w.to(self, w.inner)), w.out.dtype)


def absolute(w: Writer, self: Value) -> Made:
    """|x|."""
    return self if self.dtype == "bool" else w.add("Abs", self)


def negate(w: Writer, self: Value) -> Made:
    """-x."""
    return w.to(w.add("Neg", w.to(self, w.inner)), w.out.dtype)


def sign(w: Writer, self: Value) -> Made:
    """-1, 0 or 1; 0 of what is no number."""
    if self.dtype == "bool":
        return self
    if not self.is_float:
        return w.add("Sign", self)
    x, zero = w.to(self, w.inner), w.number(0.0, w.inner)
    below = w.to(w.add("Less", x, zero), w.inner)
    return w.to(w.add("Sub", w.to(w.add("Greater", x, zero), w.inner), below), w.out.dtype)


def bitwise_not(w: Writer, self: Value) -> Made:
    """Each bit the other way."""
    return w.add("Not" if self.dtype == "bool" else "BitwiseNot", self)


def test(op: str) -> Rule:
    """A question about numbers that integers answer with no."""

    def rule(w: Writer, self: Value) -> Made:
        if not self.is_float:
            return w.full(self.shape, False, "bool")
        return w.add(op, w.to(self, wide(self.dtype)))

    return rule


def rounded_to(w: Writer, self: Value, *, decimals: int) -> Made:
    """Rounded to so many decimal places."""
    w.require(self.is_float and w.inner == "f32", "it rounds integers or in double precision")
    x, factor = w.to(self, w.inner), w.number(10.0 ** abs(decimals), w.inner)
    up, down = ("Mul", "Div") if decimals >= 0 else ("Div", "Mul")
    return w.to(w.add(down, w.add("Round", w.add(up, x, factor)), factor), w.out.dtype)


def where(w: Writer, condition: Value, self: Operand, other: Operand) -> Made:
    """Elements of one where a condition holds, of the other elsewhere."""
    dtype = w.out.dtype
    return w.expand(
        w.add("Where", w.to(condition, "bool"), w.to(self, dtype), w.to(other, dtype)), w.out.sizes
    )


def atan2(w: Writer, self: Value, other: Value) -> Made:
    """The angle of a point."""
    made = w.add("Atan2", w.to(self, w.inner), w.to(other, w.inner), domain=OWN)
    return w.to(made, w.out.dtype)


def hypotenuse(w: Writer, self: Value, other: Value) -> Made:
    """The length of a vector of two."""
    a, b = w.to(self, w.inner), w.to(other, w.inner)
    large, small = (w.add(op, w.add("Abs", a), w.add("Abs", b)) for op in ("Max", "Min"))
    share = w.add("Div", small, large)
    length = w.add("Sqrt", w.add("Add", w.add("Mul", share, share), w.number(1, w.inner)))
    plain = w.add("Equal", small, w.number(0, w.inner))
    made = w.add("Where", plain, large, w.add("Mul", large, length))
    endless = w.add("Or", w.add("IsInf", a), w.add("IsInf", b))
    return w.to(w.add("Where", endless, w.number(math.inf, w.inner), made), w.out.dtype)


def copy_sign(w: Writer, self: Operand, other: Operand) -> Made:
    """A number with another's sign."""
    made = w.add("CopySign", w.to(self, w.inner), w.to(other, w.inner), domain=OWN)
    return w.to(made, w.out.dtype)


def extreme_of_numbers(op: str) -> Rule:
    """The larger or the smaller of two; the other one where one is no number."""

    def rule(w: Writer, self: Value, other: Value) -> Made:
        a, b = w.to(self, w.inner), w.to(other, w.inner)
        w.require(w.out.dtype != "bool", "an extremum of truth values")
        made = w.add(op, a, b)
        if a.is_float:
            made = w.add("Where", w.add("IsNaN", a), b, w.add("Where", w.add("IsNaN", b), a, made))
        return w.to(made, w.out.dtype)

    return rule


def log10(w: Writer, self: Value) -> Made:
    """The logarithm to the base of ten."""
    made = w.add("Log", w.to(w.to(self, w.out.dtype), w.inner))
    return w.to(w.add("Mul", made, w.number(1 / math.log(10), w.inner)), w.out.dtype)


def converted(w: Writer, self: Value, *_: Any, **__: Any) -> Made:
    """The elements in another type, or as they are."""
    return w.expand(w.to(self, w.out.dtype), w.out.sizes)


def copied(w: Writer, self: Value, src: Value, *_: Any) -> Made:
    """The elements of another tensor in place of these."""
    return w.expand(w.to(src, w.out.dtype), w.out.sizes)


_FUNCTIONS: Final = {
    "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "tanh": "Tanh", "erf": "Erf", "sigmoid": "Sigmoid", "reciprocal": "Reciprocal",
}  # fmt: skip
_OWN_FUNCTIONS: Final = {
    "expm1": "Expm1",
    "log1p": "Log1p",
    "log2": "Log2",
    "exp2": "Exp2",
    "rsqrt": "Rsqrt",
}

RULES: Final[Rules] = MappingProxyType(
    {
        **{f"{name}.default": function(op) for name, op in _FUNCTIONS.items()},
        **{f"{name}.default": function(op, OWN) for name, op in _OWN_FUNCTIONS.items()},
        "floor.default": rounding("Floor"),
        "ceil.default": rounding("Ceil"),
        "round.default": rounding("Round"),
        "trunc.default": rounding("Trunc", OWN),
        "round.decimals": rounded_to,
        "log10.default": log10,
        "abs.default": absolute,
        "neg.default": negate,
        "sign.default": sign,
        "bitwise_not.default": bitwise_not,
        "logical_not.default": lambda w, self: w.add("Not", w.to(self, "bool")),
        "isnan.default": test("IsNaN"),
        "isinf.default": test("IsInf"),
        **{f"add.{kind}": arithmetic("Add", "Or") for kind in ("Tensor", "Scalar")},
        **{f"sub.{kind}": arithmetic("Sub") for kind in ("Tensor", "Scalar")},
        **{f"mul.{kind}": arithmetic("Mul", "And") for kind in ("Tensor", "Scalar")},
        **{f"rsub.{kind}": reverse_subtract for kind in ("Tensor", "Scalar")},
        **{f"div.{kind}": divide for kind in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
        "true_divide.Tensor": divide,
        **{f"fmod.{kind}": remainder(True) for kind in ("Tensor", "Scalar")},
        **{f"remainder.{kind}": remainder(False) for kind in ("Tensor", "Scalar", "Scalar_Tensor")},
        **{f"pow.{kind}": power for kind in ("Tensor_Tensor", "Tensor_Scalar", "Scalar")},
        **{f"eq.{kind}": comparison("Equal") for kind in ("Tensor", "Scalar")},
        **{f"ne.{kind}": comparison("Equal", True) for kind in ("Tensor", "Scalar")},
        **{f"lt.{kind}": comparison("Less") for kind in ("Tensor", "Scalar")},
        **{f"le.{kind}": comparison("LessOrEqual") for kind in ("Tensor", "Scalar")},
        **{f"gt.{kind}": comparison("Greater") for kind in ("Tensor", "Scalar")},
        **{f"ge.{kind}": comparison("GreaterOrEqual") for kind in ("Tensor", "Scalar")},
        "logical_and.default": logical("And"),
        "logical_or.default": logical("Or"),
        "logical_xor.default": logical("Xor"),
        **{f"bitwise_and.{kind}": bitwise("BitwiseAnd", "And") for kind in ("Tensor", "Scalar")},
        **{f"bitwise_or.{kind}": bitwise("BitwiseOr", "Or") for kind in ("Tensor", "Scalar")},
        **{f"bitwise_xor.{kind}": bitwise("BitwiseXor", "Xor") for kind in ("Tensor", "Scalar")},
        "bitwise_left_shift.Tensor_Scalar": shift("LEFT"),
        "bitwise_right_shift.Tensor_Scalar": shift("RIGHT"),
        "maximum.default": extreme("Max", "Or"),
        "minimum.default": extreme("Min", "And"),
        "clamp.default": clamp,
        "clamp.Tensor": clamp,
        "clamp_min.default": lambda w, self, min: clamp(w, self, min),
        "clamp_max.default": lambda w, self, max: clamp(w, self, None, max),
        "hardtanh.default": hardtanh,
        "relu.default": relu,
        "leaky_relu.default": leaky_relu,
        "elu.default": elu,
        "gelu.default": gelu,
        "silu.default": silu,
        "where.self": where,
        "atan2.default": atan2,
        "hypot.default": hypotenuse,
        **{f"copysign.{kind}": copy_sign for kind in ("Tensor", "Scalar")},
        "fmax.default": extreme_of_numbers("Max"),
        "fmin.default": extreme_of_numbers("Min"),
        "copy.default": copied,
        **dict.fromkeys(
            (
                "_to_copy.default",
                "prims::convert_element_type.default",
                "clone.default",
                "alias.default",
                "detach.default",
                "lift_fresh_copy.default",
                "contiguous.default",
                "expand.default",
            ),
            converted,
        ),
    }
)
