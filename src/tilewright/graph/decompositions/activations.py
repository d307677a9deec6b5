"""Activations under onnxruntime's names, some with a bias, and those that its fused operators end with.

Sources: `ContribOperators.md` of onnxruntime (Gelu, FastGelu, BiasGelu, QuickGelu, FusedConv, FusedGemm);
Hendrycks and Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415, section 2.

    Gelu        x Phi(x), Phi the distribution function of the normal distribution
    FastGelu    x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
    QuickGelu   x sigmoid(alpha x), alpha 1.702 by default
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import MICROSOFT

#: The factor with which a sigmoid comes nearest to the normal distribution function (Gelu's paper, section
#: 2).
_QUICK: Final = 1.702

#: For each activation of a fused operator, the attributes that its parameters are, in order.
_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Relu": (),
        "Tanh": (),
        "Sigmoid": (),
        "Softplus": (),
        "Softsign": (),
        "LeakyRelu": ("alpha",),
        "Elu": ("alpha",),
        "ThresholdedRelu": ("alpha",),
        "HardSigmoid": ("alpha", "beta"),
        "Clip": ("min", "max"),
    }
)


def activated(p: Parts, value: str, name: str, parameters: Sequence[float]) -> str:
    """A value behind the activation that a fused operator names; itself for no name."""
    if not name:
        return value
    if name not in _PARAMETERS:
        raise p.ctx.unsupported(f"the activation {name!r}")
    return p.add(name, (value,), attributes=dict(zip(_PARAMETERS[name], parameters, strict=False)))


@decomposition("Gelu", domain=MICROSOFT)
def gelu(p: Parts, x: str) -> None:
    """Gelu as it is defined."""
    p.give(p.add("Gelu", (x,)))


@decomposition("BiasGelu", domain=MICROSOFT)
def bias_gelu(p: Parts, x: str, bias: str) -> None:
    """Gelu of x + bias."""
    p.give(p.add("Gelu", (p.add("Add", (x, bias)),)))


@decomposition("FastGelu", domain=MICROSOFT)
def fast_gelu(p: Parts, x: str, bias: str = "") -> None:
    """Gelu by tanh, of x + bias."""
    p.give(p.add("Gelu", (p.add("Add", (x, bias)) if bias else x,), approximate="tanh"))


@decomposition("QuickGelu", domain=MICROSOFT)
def quick_gelu(p: Parts, x: str) -> None:
    """`x sigmoid(alpha x)`."""
    p.give(p.add("Swish", (x,), alpha=p.ctx.real("alpha", _QUICK)))


@decomposition("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(p: Parts, x: str, bias: str) -> None:
    """The first half of x + bias along the last axis, times Gelu of the second half."""
    half = p.shape(0)[-1] // 2
    first, second = p.split(p.add("Add", (x, bias)), (half, half))
    p.give(p.add("Mul", (first, p.add("Gelu", (second,)))))


@decomposition("BiasAdd", domain=MICROSOFT)
def bias_add(p: Parts, x: str, bias: str, skip: str) -> None:
    """`x + bias + skip`."""
    p.give(p.add("Add", (p.add("Add", (x, bias)), skip)))
