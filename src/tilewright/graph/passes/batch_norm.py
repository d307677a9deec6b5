"""Folding batch normalisations, and other per-channel scales and shifts, into the contraction before them.

    before                                          after
    t = Conv(x, w, b)                               y = Conv(x, w f, (b - mean) f + o)
    y = BatchNormalization(t, s, o, mean, var)      where f = s / sqrt(var + epsilon)

The products are rounded once, from double precision. A multiplication or addition of a constant that varies
by output channel only is folded the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Final

import numpy as np

from tilewright.graph.model import Array, Graph, Node, TensorType
from tilewright.graph.rewrite import Rewriter


@dataclass(frozen=True, slots=True)
class _Contraction:
    """Where an operator keeps what is folded into: the weights' axis of output channels (-1: not foldable).

    The channels are axis 1 of the output, and the bias, if any, is input 2.
    """

    weight_axis: Callable[[Node], int]


def _conv_transpose_axis(node: Node) -> int:
    # The weights are [channels, output channels / group, ...]: one axis holds them all without groups only.
    return 1 if node.attributes.get("group", 1) == 1 else -1


def _gemm_axis(node: Node) -> int:
    plain = node.attributes.get("alpha", 1.0) == 1.0 and node.attributes.get("beta", 1.0) == 1.0
    if not plain:
        return -1
    return 0 if node.attributes.get("transB", 0) else 1


_CONTRACTIONS: Final[Mapping[str, _Contraction]] = MappingProxyType(
    {
        "Conv": _Contraction(lambda node: 0),
        "ConvTranspose": _Contraction(_conv_transpose_axis),
        "Gemm": _Contraction(_gemm_axis),
    }
)


@dataclass(frozen=True, slots=True)
class FoldChannelAffine:
    """Fold `y = factor[c] * t + shift[c]` into the weights and bias of the contraction that makes `t`."""

    name: ClassVar[str] = "fold-batch-norm"

    def __call__(self, graph: Graph) -> Graph:
        """Fold wherever weights, bias and affine parts are constants and nothing else reads `t`."""
        rewriter = Rewriter(graph)
        # Where the contractions' results are made, and by how many nodes each is wanted.
        makers: dict[str, int] = {}
        uses: dict[str, int] = {}
        changed = False
        for old in graph.nodes:
            node = rewriter.current(old)
            found = _affine(rewriter, node)
            at = makers.get(found[0]) if found is not None else None
            folded = None
            if found is not None and at is not None and uses[found[0]] == 1:
                folded = _fold(rewriter, rewriter.nodes[at], found[1], found[2])
            if folded is not None and at is not None:
                changed = True
                # The new node makes the later value: no name may come to mean other elements.
                rewriter.nodes[at] = replace(folded, outputs=old.outputs)
                makers[old.outputs[0]] = at
                uses[old.outputs[0]] = graph.use_count(old.outputs[0])
                continue
            if node.op in _CONTRACTIONS and not node.domain:
                makers[node.outputs[0]] = len(rewriter.nodes)
                uses[node.outputs[0]] = graph.use_count(node.outputs[0])
            rewriter.keep(node)
        return rewriter.finish() if changed else graph


def _fold(rewriter: Rewriter, maker: Node, factor: Array, shift: Array) -> Node | None:
    """The contraction whose every output channel is multiplied and shifted; None if that cannot be."""
    kind = _CONTRACTIONS[maker.op]
    weight = rewriter.constants.get(maker.inputs[1])
    axis = kind.weight_axis(maker)
    has_bias = len(maker.inputs) > 2 and bool(maker.inputs[2])
    bias = rewriter.constants.get(maker.inputs[2]) if has_bias else None
    if weight is None or axis < 0 or (has_bias and bias is None) or weight.dtype.kind != "f":
        return None
    channels = weight.shape[axis]
    old_bias = np.zeros(1) if bias is None else bias.astype(np.float64).reshape(-1)
    if any(part.size not in (1, channels) for part in (old_bias, factor, shift)):
        return None
    spread = [-1 if a == axis else 1 for a in range(weight.ndim)]
    scaled = weight.astype(np.float64) * np.broadcast_to(factor, channels).reshape(spread)
    moved = np.broadcast_to(old_bias * factor + shift, channels)
    bias_name = maker.inputs[2] if has_bias else f"{maker.inputs[1]}.bias"
    inputs = (
        maker.inputs[0],
        rewriter.constant(scaled.astype(weight.dtype), maker.inputs[1]),
        rewriter.constant(moved.astype(weight.dtype), bias_name),
    )
    return replace(maker, inputs=inputs)


def _affine(rewriter: Rewriter, node: Node) -> tuple[str, Array, Array] | None:
    """The value, and per output channel the factor and shift in double precision, of an affine node."""
    if node.domain or not node.inputs:
        return None
    type_ = rewriter.types.get(node.outputs[0]) if node.outputs else None
    if type_ is None or type_.rank < 2:
        return None
    if node.op == "BatchNormalization" and len(node.used_outputs) == 1:
        parts = [rewriter.constants.get(value) for value in node.inputs[1:5]]
        if any(part is None for part in parts) or node.attributes.get("training_mode", 0):
            return None
        scale, offset, mean, variance = (part.astype(np.float64) for part in parts if part is not None)
        epsilon = node.attributes.get("epsilon", 1e-5)
        assert isinstance(epsilon, float)
        factor = scale / np.sqrt(variance + epsilon)
        return node.inputs[0], factor, offset - mean * factor
    if node.op in ("Mul", "Add", "Sub", "Div"):
        return _arithmetic(rewriter, node, type_)
    return None


def _arithmetic(rewriter: Rewriter, node: Node, type_: TensorType) -> tuple[str, Array, Array] | None:
    """The same for an operation with a constant that varies along axis 1 only."""
    for value, other in (node.inputs[:2], node.inputs[1::-1]):
        constant = rewriter.constants.get(other)
        if constant is None or value in rewriter.constants or rewriter.types[value] != type_:
            continue
        if node.op in ("Sub", "Div") and other == node.inputs[0]:
            continue
        aligned = (1,) * (type_.rank - constant.ndim) + constant.shape
        if constant.dtype.kind != "f" or any(size != 1 for a, size in enumerate(aligned) if a != 1):
            continue
        operand = constant.astype(np.float64).reshape(-1)
        match node.op:
            case "Mul":
                return value, operand, np.zeros(1)
            case "Div":
                return value, 1.0 / operand, np.zeros(1)
            case "Add":
                return value, np.ones(1), operand
            case _:
                return value, np.ones(1), -operand
    return None
