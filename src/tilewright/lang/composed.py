"""Functions composed of the primitive ones: activations."""

from __future__ import annotations

from math import pi, sqrt

from tilewright.lang.functions import absolute, clamp, const, erf, exp, log1p, maximum, minimum, select, tanh
from tilewright.lang.values import Scalar


def relu(x: Scalar) -> Scalar:
    """``max(x, 0)``."""
    return maximum(x, const(0, x.dtype))


def leaky_relu(x: Scalar, slope: float = 0.01) -> Scalar:
    """``x`` where it is not negative, else ``slope * x``."""
    return select(x < 0, x * slope, x)


def sigmoid(x: Scalar) -> Scalar:
    """``1 / (1 + exp(-x))``; tends to 0 and 1 without overflow trouble."""
    return 1 / (1 + exp(-x))


def silu(x: Scalar) -> Scalar:
    """``x * sigmoid(x)``."""
    return x / (1 + exp(-x))


def softplus(x: Scalar) -> Scalar:
    """``log(1 + exp(x))``, computed without overflow."""
    return maximum(x, const(0, x.dtype)) + log1p(exp(-absolute(x)))


def softsign(x: Scalar) -> Scalar:
    """``x / (1 + |x|)``."""
    return x / (1 + absolute(x))


def elu(x: Scalar, alpha: float = 1.0) -> Scalar:
    """``x`` where it is positive, else ``alpha * (exp(x) - 1)``."""
    return select(x > 0, x, alpha * (exp(minimum(x, const(0, x.dtype))) - 1))


def gelu(x: Scalar) -> Scalar:
    """``x * Phi(x)`` with the normal distribution function Phi, by the error function."""
    return 0.5 * x * (1 + erf(x * (1 / sqrt(2))))


def gelu_tanh(x: Scalar) -> Scalar:
    """The tanh approximation of :func:`gelu` (Hendrycks & Gimpel 2016, arXiv:1606.08415)."""
    return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))


def hard_sigmoid(x: Scalar, alpha: float = 0.2, beta: float = 0.5) -> Scalar:
    """``alpha * x + beta`` clamped to [0, 1]."""
    return clamp(alpha * x + beta, 0.0, 1.0)


def hard_swish(x: Scalar) -> Scalar:
    """``x * clamp(x / 6 + 1/2, 0, 1)``."""
    return x * hard_sigmoid(x, 1 / 6, 0.5)


def square(x: Scalar) -> Scalar:
    """``x * x``."""
    return x * x
