"""Activation functions."""

from __future__ import annotations

import math

from tilewright import lang
from tilewright.graph.operand import Operand
from tilewright.graph.ops.common import Scalar, elementwise, number
from tilewright.graph.registry import Context, Kind, operator

#: Where softplus is its argument to within single precision.
_SOFTPLUS_LINEAR = 20.0


@operator("Relu", kind=Kind.ELEMENTWISE, finite=True)
def relu(ctx: Context, x: Operand) -> Operand:
    """max(x, 0)."""
    return elementwise(ctx, lambda a: lang.maximum(a, number(0, x.dtype)), x)


@operator("LeakyRelu", kind=Kind.ELEMENTWISE, finite=True)
def leaky_relu(ctx: Context, x: Operand) -> Operand:
    """`alpha * x` below zero."""
    alpha = number(ctx.real("alpha", 0.01), x.dtype)
    return elementwise(ctx, lambda a: lang.select(a < number(0, x.dtype), alpha * a, a), x)


@operator("PRelu", kind=Kind.ELEMENTWISE, finite=True)
def prelu(ctx: Context, x: Operand, slope: Operand) -> Operand:
    """`slope * x` below zero, the slope broadcast to x."""
    return elementwise(ctx, lambda a, s: lang.select(a < number(0, x.dtype), s * a, a), x, slope)


@operator("ThresholdedRelu", kind=Kind.ELEMENTWISE, finite=True)
def thresholded_relu(ctx: Context, x: Operand) -> Operand:
    """`x` where `x > alpha`, else 0."""
    alpha = number(ctx.real("alpha", 1.0), x.dtype)
    return elementwise(ctx, lambda a: lang.select(a > alpha, a, number(0, x.dtype)), x)


@operator("Elu", kind=Kind.ELEMENTWISE, finite=True)
def elu(ctx: Context, x: Operand) -> Operand:
    """`alpha * (exp(x) - 1)` below zero."""
    alpha = number(ctx.real("alpha", 1.0), x.dtype)
    zero = number(0, x.dtype)
    return elementwise(ctx, lambda a: lang.select(a < zero, alpha * lang.expm1(a), a), x)


@operator("Celu", kind=Kind.ELEMENTWISE, finite=True)
def celu(ctx: Context, x: Operand) -> Operand:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    alpha = number(ctx.real("alpha", 1.0), x.dtype)
    zero = number(0, x.dtype)
    return elementwise(ctx, lambda a: lang.select(a < zero, alpha * lang.expm1(a / alpha), a), x)


@operator("Selu", kind=Kind.ELEMENTWISE, finite=True)
def selu(ctx: Context, x: Operand) -> Operand:
    """`gamma * x` above zero, `gamma * alpha * (exp(x) - 1)` below."""
    alpha = number(ctx.real("alpha", 1.67326319217681884765625), x.dtype)
    gamma = number(ctx.real("gamma", 1.05070102214813232421875), x.dtype)
    zero = number(0, x.dtype)
    return elementwise(ctx, lambda a: gamma * lang.select(a > zero, a, alpha * lang.expm1(a)), x)


@operator("Softplus", kind=Kind.ELEMENTWISE, finite=True)
def softplus(ctx: Context, x: Operand) -> Operand:
    """log(1 + exp(x)), without overflow."""
    return elementwise(ctx, lambda a: _softplus(a, x.dtype), x)


def _softplus(a: Scalar, dtype: str) -> Scalar:
    return lang.maximum(a, number(0, dtype)) + lang.log1p(lang.exp_nonpositive(-lang.absolute(a)))


@operator("Softsign", kind=Kind.ELEMENTWISE, finite=True)
def softsign(ctx: Context, x: Operand) -> Operand:
    """`x / (1 + |x|)`."""
    return elementwise(ctx, lambda a: a / (number(1, x.dtype) + lang.absolute(a)), x)


def _hard_sigmoid(a: Scalar, alpha: float, beta: float, dtype: str) -> Scalar:
    line = number(alpha, dtype) * a + number(beta, dtype)
    return lang.maximum(number(0, dtype), lang.minimum(number(1, dtype), line))


@operator("HardSigmoid", kind=Kind.ELEMENTWISE, finite=True)
def hard_sigmoid(ctx: Context, x: Operand) -> Operand:
    """max(0, min(1, alpha x + beta))."""
    alpha, beta = ctx.real("alpha", 0.2), ctx.real("beta", 0.5)
    return elementwise(ctx, lambda a: _hard_sigmoid(a, alpha, beta, x.dtype), x)


@operator("HardSwish", kind=Kind.ELEMENTWISE, finite=True)
def hard_swish(ctx: Context, x: Operand) -> Operand:
    """`x * max(0, min(1, x / 6 + 1 / 2))`."""
    return elementwise(ctx, lambda a: a * _hard_sigmoid(a, 1.0 / 6.0, 0.5, x.dtype), x)


@operator("Mish", kind=Kind.ELEMENTWISE, finite=True)
def mish(ctx: Context, x: Operand) -> Operand:
    """`x * tanh(softplus(x))`."""
    return elementwise(ctx, lambda a: a * lang.tanh(_softplus(a, x.dtype)), x)


@operator("Swish", kind=Kind.ELEMENTWISE)
def swish(ctx: Context, x: Operand) -> Operand:
    """`x * sigmoid(alpha * x)`."""
    alpha = number(ctx.real("alpha", 1.0), x.dtype)
    return elementwise(ctx, lambda a: a * lang.sigmoid(alpha * a), x)


@operator("Gelu", kind=Kind.ELEMENTWISE, finite=True)
def gelu(ctx: Context, x: Operand) -> Operand:
    """`x * Phi(x)`, or its approximation by tanh."""
    half, one = number(0.5, x.dtype), number(1, x.dtype)
    if ctx.choice("approximate", ("none", "tanh"), "none") == "tanh":
        factor, cubic = number(math.sqrt(2.0 / math.pi), x.dtype), number(0.044715, x.dtype)
        return elementwise(ctx, lambda a: half * a * (one + lang.tanh(factor * (a + cubic * a * a * a))), x)
    scale = number(math.sqrt(0.5), x.dtype)
    return elementwise(ctx, lambda a: half * a * (one + lang.erf(a * scale)), x)


@operator("Shrink", kind=Kind.ELEMENTWISE)
def shrink(ctx: Context, x: Operand) -> Operand:
    """`x + bias` below `-lambd`, `x - bias` above `lambd`, else 0."""
    bias, lambd, zero = number(ctx.real("bias", 0.0), x.dtype), ctx.real("lambd", 0.5), number(0, x.dtype)

    def of(a: Scalar) -> Scalar:
        below = lang.select(a < number(-lambd, x.dtype), a + bias, zero)
        return lang.select(a > number(lambd, x.dtype), a - bias, below)

    return elementwise(ctx, of, x)


@operator("Binarizer", kind=Kind.ELEMENTWISE, domain="ai.onnx.ml")
def binarizer(ctx: Context, x: Operand) -> Operand:
    """1 above the threshold, else 0."""
    threshold = number(ctx.real("threshold", 0.0), x.dtype)
    one, zero = number(1, x.dtype), number(0, x.dtype)
    return elementwise(ctx, lambda a: lang.select(a > threshold, one, zero), x)
