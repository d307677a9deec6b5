"""Scaled dot-product attention."""

from __future__ import annotations

from math import sqrt

from tilewright.lang.compute import compute
from tilewright.lang.functions import select
from tilewright.lang.ops.common import broadcast_indices, constant, stem
from tilewright.lang.ops.contraction import matmul
from tilewright.lang.ops.normalization import softmax
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import IndexExpr, Scalar


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    causal: bool = False,
    name: str | None = None,
) -> Tensor:
    """``softmax(query @ key.T · scale + mask) @ value`` over the last two dimensions.

    ``scale`` defaults to ``1 / sqrt(d)``; ``mask`` is added and broadcast; ``causal`` hides later keys.
    """
    base = stem(name, "attention")
    factor = 1 / sqrt(constant(query.shape[-1], "the extent of a head")) if scale is None else scale
    scores = matmul(query, key, transpose_b=True)

    def masked(*i: IndexExpr) -> Scalar:
        s = scores[i] * factor
        if mask is not None:
            s = s + mask[broadcast_indices(mask.shape, i)]
        return select(i[-1] <= i[-2], s, scores.dtype.min_value) if causal else s

    weights = softmax(compute(scores.shape, masked, hint=f"{base}_scores"), -1)
    return matmul(weights, value, name=name)
