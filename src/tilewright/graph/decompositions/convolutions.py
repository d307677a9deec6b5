"""Convolutions with what follows them, and of images whose channels come last.

Source: `ContribOperators.md` of onnxruntime (FusedConv, NhwcConv, NhwcFusedConv): activation(conv(x, w) + b
+ z).
"""

from __future__ import annotations

from tilewright.graph.decompositions.activations import activated
from tilewright.graph.model import Attribute
from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import MICROSOFT

_OWN_ATTRIBUTES = ("activation", "activation_params")


def _window(p: Parts) -> dict[str, Attribute]:
    return {name: value for name, value in p.ctx.node.attributes.items() if name not in _OWN_ATTRIBUTES}


def _fused(p: Parts, x: str, w: str, bias: str, added: str) -> str:
    total = p.add("Conv", (x, w, bias), attributes=_window(p))
    if added:
        total = p.add("Add", (total, added))
    return activated(p, total, p.ctx.text("activation", ""), p.ctx.reals("activation_params", ()))


@decomposition("FusedConv", domain=MICROSOFT)
def fused_conv(p: Parts, x: str, w: str, bias: str = "", added: str = "") -> None:
    """A convolution, a sum with a tensor of its result's shape, an activation."""
    p.give(_fused(p, x, w, bias, added))


def channels_first(p: Parts, value: str, rank: int) -> str:
    """The axis of channels, which is the last, behind the first."""
    return p.transpose(value, 0, rank - 1, *range(1, rank - 1))


def channels_last(p: Parts, value: str, rank: int) -> str:
    """The axis of channels, which is behind the first, at the end."""
    return p.transpose(value, 0, *range(2, rank), 1)


@decomposition("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(p: Parts, x: str, w: str, bias: str = "", added: str = "") -> None:
    """The same where channels come last in the input and in the result; weights stay as they are."""
    rank = len(p.shape(0))
    moved = channels_first(p, added, rank) if added else ""
    p.give(channels_last(p, _fused(p, channels_first(p, x, rank), w, bias, moved), rank))
