"""Normalisations with what models put before them: sums of residuals, embeddings.

Sources: `ContribOperators.md` of onnxruntime; Ba, Kiros, Hinton, "Layer Normalization", arXiv:1607.06450;
Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467, equation 4.

    SkipLayerNormalization             s = x + skip + bias, (s - mean) / sqrt(variance + epsilon) gamma + beta
    SkipSimplifiedLayerNormalization   s = x + skip + bias, then s / sqrt(mean(s^2) + epsilon) gamma
    EmbedLayerNormalization            s = word[id] + position[i] + segment[segment id], then as the first
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import MICROSOFT
from tilewright.ir import dtype_of

#: The epsilon of layer normalisations fused with a sum, where none is given.
_SKIP_EPSILON: Final = 1e-12


@decomposition("SimplifiedLayerNormalization")
@decomposition("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(p: Parts, x: str, scale: str) -> None:
    """Normalisation by the root of the mean square."""
    p.refuse_outputs(1)
    axis, epsilon = p.ctx.integer("axis", -1), p.ctx.real("epsilon", 1e-5)
    p.give(p.add("RMSNormalization", (x, scale), axis=axis, epsilon=epsilon))


@decomposition("LayerNormalization", domain=MICROSOFT)
def layer_normalization(p: Parts, x: str, scale: str, bias: str = "") -> None:
    """The operator of the standard under another domain."""
    p.refuse_outputs(1, 2)
    axis, epsilon = p.ctx.integer("axis", -1), p.ctx.real("epsilon", 1e-5)
    p.give(p.add("LayerNormalization", (x, scale, bias), axis=axis, epsilon=epsilon))


def _sum(p: Parts, x: str, skip: str, bias: str) -> str:
    total = p.add("Add", (x, skip))
    return p.add("Add", (total, bias)) if bias else total


@decomposition("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(p: Parts, x: str, skip: str, gamma: str, beta: str = "", bias: str = "") -> None:
    """A sum and its layer normalisation; also the sum."""
    p.refuse_outputs(1, 2)
    total = _sum(p, x, skip, bias)
    epsilon = p.ctx.real("epsilon", _SKIP_EPSILON)
    p.give(p.add("LayerNormalization", (total, gamma, beta), axis=-1, epsilon=epsilon))
    p.give(total, 3)


@decomposition("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(p: Parts, x: str, skip: str, gamma: str, bias: str = "") -> None:
    """A sum and its normalisation by the root of the mean square; also the sum."""
    p.refuse_outputs(1, 2)
    total = _sum(p, x, skip, bias)
    epsilon = p.ctx.real("epsilon", _SKIP_EPSILON)
    p.give(p.add("RMSNormalization", (total, gamma), axis=-1, epsilon=epsilon))
    p.give(total, 3)


@decomposition("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    p: Parts,
    ids: str,
    segments: str,
    words: str,
    positions: str,
    segment_table: str,
    gamma: str,
    beta: str,
    mask: str = "",
    position_ids: str = "",
) -> None:
    """The sum of embeddings of each token, normalised; the number of tokens that a mask leaves; the sum."""
    batch, length = p.shape(0)
    total = p.add("Gather", (words, ids), axis=0)
    places = position_ids or p.places(length)
    total = p.add("Add", (total, p.add("Gather", (positions, places), axis=0)))
    if segments:
        total = p.add("Add", (total, p.add("Gather", (segment_table, segments), axis=0)))
    epsilon = p.ctx.real("epsilon", _SKIP_EPSILON)
    p.give(p.add("LayerNormalization", (total, gamma, beta), axis=-1, epsilon=epsilon))
    p.give(total, 2)
    if p.ctx.wants(1):
        lengths = p.filled((batch,), 0, "i32")
        if mask:
            one = p.constant(np.ones((), dtype_of(p.type(7).dtype).numpy))
            kept = p.add("Cast", (p.add("Equal", (mask, one)),), to="i32")
            lengths = p.add("ReduceSum", (kept, p.ints((1,))), keepdims=0)
        p.give(lengths, 1)
