"""BERT-base, TinyBERT-4 and GPT-2's body with random weights, as exporters write them.

Attention is written out (MatMul, Div, Add of the mask, Softmax, MatMul), GELU as its chain of Erf or Tanh,
reshapes with constant shapes. Every size can be made smaller for tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from onnx import ModelProto, TensorProto

from tilewright.frontend.zoo.builder import ModelBuilder

#: What is added to the scores of masked tokens, as in the published BERT code.
_MASKED = -10000.0


@dataclass(frozen=True, slots=True)
class TransformerSize:
    """The sizes of a transformer: `hidden` must be a multiple of `heads`."""

    layers: int
    hidden: int
    heads: int
    inner: int
    vocabulary: int
    positions: int = 512
    decomposed_norm: bool = False

    @property
    def head(self) -> int:
        """Features of one attention head."""
        return self.hidden // self.heads


BERT_BASE = TransformerSize(layers=12, hidden=768, heads=12, inner=3072, vocabulary=30522)
TINYBERT_4 = TransformerSize(layers=4, hidden=312, heads=12, inner=1200, vocabulary=30522)
GPT2_SMALL = TransformerSize(layers=12, hidden=768, heads=12, inner=3072, vocabulary=50257, positions=1024)

_NORM_EPSILON: Final = {"bert": 1e-12, "gpt2": 1e-5}


def _gelu_erf(b: ModelBuilder, x: str, stem: str) -> str:
    """GELU, x * 0.5 * (1 + erf(x / sqrt 2)), operator by operator."""
    scaled = b.node("Div", x, b.scalar(math.sqrt(2.0)), stem=f"{stem}/div")
    erf = b.node("Erf", scaled, stem=f"{stem}/erf")
    product = b.node("Mul", x, b.node("Add", erf, b.scalar(1.0), stem=f"{stem}/add"), stem=f"{stem}/mul")
    return b.node("Mul", product, b.scalar(0.5), stem=stem)


def _gelu_tanh(b: ModelBuilder, x: str, stem: str) -> str:
    """GELU approximated by 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))."""
    half = b.node("Mul", x, b.scalar(0.5), stem=f"{stem}/half")
    cube = b.node("Pow", x, b.scalar(3.0), stem=f"{stem}/cube")
    inner = b.node(
        "Add", x, b.node("Mul", cube, b.scalar(0.044715), stem=f"{stem}/scaled"), stem=f"{stem}/sum"
    )
    tanh = b.node("Tanh", b.node("Mul", inner, b.scalar(math.sqrt(2.0 / math.pi)), stem=f"{stem}/argument"))
    return b.node("Mul", half, b.node("Add", tanh, b.scalar(1.0), stem=f"{stem}/add"), stem=stem)


def _rows(batch: int | str, length: int | str) -> tuple[int, int]:
    """The first two sizes in a Reshape: an open batch is copied, an open length is what is left."""
    return 0 if isinstance(batch, str) else batch, -1 if isinstance(length, str) else length


def _heads(
    b: ModelBuilder, x: str, batch: int | str, length: int | str, size: TransformerSize, stem: str
) -> str:
    """[batch, length, hidden] to [batch, heads, length, head]."""
    split = b.node("Reshape", x, b.ints(*_rows(batch, length), size.heads, size.head), stem=f"{stem}/split")
    return b.node("Transpose", split, stem=stem, perm=[0, 2, 1, 3])


def _merge(
    b: ModelBuilder, x: str, batch: int | str, length: int | str, size: TransformerSize, stem: str
) -> str:
    """[batch, heads, length, head] to [batch, length, hidden]."""
    moved = b.node("Transpose", x, stem=f"{stem}/transposed", perm=[0, 2, 1, 3])
    return b.node("Reshape", moved, b.ints(*_rows(batch, length), size.hidden), stem=stem)


def _bert_layer(
    b: ModelBuilder, x: str, mask: str, batch: int | str, length: int | str, size: TransformerSize, stem: str
) -> str:
    hidden, epsilon, old = size.hidden, _NORM_EPSILON["bert"], size.decomposed_norm
    query = _heads(b, b.linear(x, hidden, hidden, f"{stem}.query"), batch, length, size, f"{stem}.q")
    key = b.linear(x, hidden, hidden, f"{stem}.key")
    key = b.node("Reshape", key, b.ints(*_rows(batch, length), size.heads, size.head), stem=f"{stem}.k/split")
    # Exporters merge the two transpositions of the keys into one.
    key = b.node("Transpose", key, stem=f"{stem}.k", perm=[0, 2, 3, 1])
    value = _heads(b, b.linear(x, hidden, hidden, f"{stem}.value"), batch, length, size, f"{stem}.v")
    scores = b.node("MatMul", query, key, stem=f"{stem}.scores")
    scores = b.node("Div", scores, b.scalar(math.sqrt(size.head)), stem=f"{stem}.scaled")
    scores = b.node("Add", scores, mask, stem=f"{stem}.masked")
    weights = b.node("Softmax", scores, stem=f"{stem}.softmax", axis=-1)
    context = _merge(
        b, b.node("MatMul", weights, value, stem=f"{stem}.context"), batch, length, size, f"{stem}.c"
    )
    y = b.node("Add", b.linear(context, hidden, hidden, f"{stem}.output"), x, stem=f"{stem}.residual1")
    y = b.layer_norm(y, hidden, epsilon, old, f"{stem}.norm1")
    inner = _gelu_erf(b, b.linear(y, hidden, size.inner, f"{stem}.up"), f"{stem}.gelu")
    z = b.node("Add", b.linear(inner, size.inner, hidden, f"{stem}.down"), y, stem=f"{stem}.residual2")
    return b.layer_norm(z, hidden, epsilon, old, f"{stem}.norm2")


def _positions(b: ModelBuilder, ids: str, length: int | str) -> str:
    """The places of tokens in their row: constants, or counted up to an open length."""
    if not isinstance(length, str):
        return b.constant(np.arange(length, dtype=np.int64)[None], "position_ids")
    count = b.node(
        "Gather",
        b.node("Shape", ids, stem="ids/shape"),
        b.constant(np.array(1, np.int64), "axis"),
        stem="count",
    )
    zero, one = b.constant(np.array(0, np.int64), "from"), b.constant(np.array(1, np.int64), "by")
    return b.node(
        "Unsqueeze", b.node("Range", zero, count, one, stem="range"), b.ints(0), stem="position_ids"
    )


def bert(
    size: TransformerSize = BERT_BASE, batch: int | str = 1, length: int | str = 128, seed: int = 0
) -> ModelProto:
    """BERT's encoder and pooler; a name in place of a size leaves it open.

    Inputs: `input_ids` and `attention_mask`, int64 [batch, length]. Outputs: `last_hidden_state`
    [batch, length, hidden] and `pooler_output` [batch, hidden].
    """
    b = ModelBuilder("bert", seed)
    hidden = size.hidden
    ids = b.input("input_ids", [batch, length], TensorProto.INT64)
    mask = b.input("attention_mask", [batch, length], TensorProto.INT64)
    wide = b.node("Unsqueeze", mask, b.ints(1, 2), stem="mask/unsqueezed")
    wide = b.node("Cast", wide, stem="mask/float", to=int(TensorProto.FLOAT))
    inverted = b.node("Sub", b.scalar(1.0), wide, stem="mask/inverted")
    bias = b.node("Mul", inverted, b.scalar(_MASKED), stem="mask/bias")
    words = b.node("Gather", b.normal((size.vocabulary, hidden), 0.5, "embeddings.word"), ids, stem="word")
    # Absent token types are zeros: exporters leave a constant look-up for the compiler to fold.
    if isinstance(length, str):
        kinds = b.node("Mul", ids, b.constant(np.array(0, np.int64), "no_type"), stem="token_type_ids")
    else:
        kinds = b.constant(np.zeros((1, length), np.int64), "token_type_ids")
    kinds = b.node("Gather", b.normal((2, hidden), 0.5, "embeddings.token_type"), kinds, stem="token_type")
    places = _positions(b, ids, length)
    table = b.normal((size.positions, hidden), 0.5, "embeddings.position")
    places = b.node("Gather", table, places, stem="position")
    x = b.node("Add", b.node("Add", words, kinds, stem="embeddings/sum"), places, stem="embeddings")
    x = b.layer_norm(x, hidden, _NORM_EPSILON["bert"], size.decomposed_norm, "embeddings.norm")
    for layer in range(size.layers):
        x = _bert_layer(b, x, bias, batch, length, size, f"layer{layer}")
    first = b.node("Gather", x, b.constant(np.array(0, np.int64), "first"), stem="first_token", axis=1)
    weight = b.normal((hidden, hidden), 1.0 / math.sqrt(hidden), "pooler.weight")
    pooled = b.node("Gemm", first, weight, b.normal((hidden,), 0.02, "pooler.bias"), stem="pooler", transB=1)
    b.output(x, "last_hidden_state", [batch, length, hidden])
    b.output(b.node("Tanh", pooled, stem="pooler/tanh"), "pooler_output", [batch, hidden])
    return b.build()


def _flat_linear(b: ModelBuilder, x: str, rows: tuple[int, int], before: int, after: int, stem: str) -> str:
    """A linear layer as GPT-2's exporters write it: flattened to a matrix, Gemm, and back."""
    flat = b.node("Reshape", x, b.ints(-1, before), stem=f"{stem}/flat")
    weight = b.normal((before, after), 1.0 / math.sqrt(before), f"{stem}.weight")
    y = b.node("Gemm", flat, weight, b.normal((after,), 0.02, f"{stem}.bias"), stem=f"{stem}/gemm")
    return b.node("Reshape", y, b.ints(*rows, after), stem=stem)


def _gpt2_layer(
    b: ModelBuilder, x: str, causal: str, batch: int, length: int, size: TransformerSize, stem: str
) -> str:
    hidden, rows = size.hidden, (batch, length)
    epsilon, old = _NORM_EPSILON["gpt2"], size.decomposed_norm
    y = b.layer_norm(x, hidden, epsilon, old, f"{stem}.norm1")
    joined = _flat_linear(b, y, rows, hidden, 3 * hidden, f"{stem}.attention")
    parts = b.nodes("Split", [joined, b.ints(hidden, hidden, hidden, stem="split")], 3, f"{stem}.qkv", axis=2)
    query, value = (_heads(b, parts[i], batch, length, size, f"{stem}.{n}") for i, n in ((0, "q"), (2, "v")))
    key = b.node(
        "Reshape", parts[1], b.ints(*_rows(batch, length), size.heads, size.head), stem=f"{stem}.k/split"
    )
    key = b.node("Transpose", key, stem=f"{stem}.k", perm=[0, 2, 3, 1])
    scores = b.node("MatMul", query, key, stem=f"{stem}.scores")
    scores = b.node("Div", scores, b.scalar(math.sqrt(size.head)), stem=f"{stem}.scaled")
    lowest = b.scalar(float(np.finfo(np.float32).min), "lowest")
    scores = b.node("Where", causal, scores, lowest, stem=f"{stem}.masked")
    weights = b.node("Softmax", scores, stem=f"{stem}.softmax", axis=-1)
    context = _merge(
        b, b.node("MatMul", weights, value, stem=f"{stem}.context"), batch, length, size, f"{stem}.c"
    )
    y = _flat_linear(b, context, rows, hidden, hidden, f"{stem}.projection")
    x = b.node("Add", y, x, stem=f"{stem}.residual1")
    y = b.layer_norm(x, hidden, epsilon, old, f"{stem}.norm2")
    y = _gelu_tanh(b, _flat_linear(b, y, rows, hidden, size.inner, f"{stem}.up"), f"{stem}.gelu")
    y = _flat_linear(b, y, rows, size.inner, hidden, f"{stem}.down")
    return b.node("Add", x, y, stem=f"{stem}.residual2")


def gpt2(size: TransformerSize = GPT2_SMALL, batch: int = 1, length: int = 128, seed: int = 0) -> ModelProto:
    """GPT-2's body, without the output vocabulary.

    Input: `input_ids`, int64 [batch, length]. Output: `last_hidden_state` [batch, length, hidden].
    """
    b = ModelBuilder("gpt2", seed)
    hidden = size.hidden
    ids = b.input("input_ids", [batch, length], TensorProto.INT64)
    words = b.node("Gather", b.normal((size.vocabulary, hidden), 0.5, "wte"), ids, stem="word")
    table = b.normal((size.positions, hidden), 0.5, "wpe")
    places = b.node("Gather", table, b.constant(np.arange(length, dtype=np.int64)[None], "position_ids"))
    x = b.node("Add", words, places, stem="embeddings")
    # The mask of the longest sequence is stored, and the part for this one cut out by a Slice.
    triangle = b.constant(np.tril(np.ones((1, 1, size.positions, size.positions), np.bool_)), "causal")
    bounds = (b.ints(0, 0, stem="starts"), b.ints(length, length, stem="ends"), b.ints(2, 3, stem="axes"))
    causal = b.node("Slice", triangle, *bounds, stem="causal/part")
    for layer in range(size.layers):
        x = _gpt2_layer(b, x, causal, batch, length, size, f"layer{layer}")
    x = b.layer_norm(x, hidden, _NORM_EPSILON["gpt2"], size.decomposed_norm, "norm")
    b.output(x, "last_hidden_state", [batch, length, hidden])
    return b.build()
