"""Operators of ATen that layers are made of: products, convolutions, normalisations, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

from tilewright.frontend.torch.elementwise import arithmetic
from tilewright.frontend.torch.writer import Made, Number, Rule, Rules, Value, Writer, wide
from tilewright.ir import dtype_of, is_open


def matmul(w: Writer, self: Value, mat2: Value, *_: object) -> Made:
    """A product of matrices, or of batches of them."""
    return w.add("MatMul", self, mat2)


def _scaled(w: Writer, x: Value, factor: Number, dtype: str) -> Value:
    return x if factor == 1 else w.add("Mul", x, w.number(factor, dtype))


def added_product(
    w: Writer, self: Value, mat1: Value, mat2: Value, *, beta: Number = 1, alpha: Number = 1
) -> Made:
    """``beta * self + alpha * mat1 @ mat2``; where beta is 0, whatever ``self`` holds."""
    floats = dtype_of(w.out.dtype).is_float
    if mat1.rank == 2 and floats and 0 not in (*mat1.shape, *mat2.shape):
        return w.add("Gemm", mat1, mat2, self, alpha=float(alpha), beta=float(beta))
    inner = w.inner
    product = _scaled(w, w.add("MatMul", w.to(mat1, inner), w.to(mat2, inner)), alpha, inner)
    if beta != 0:
        product = w.add("Add", product, _scaled(w, w.to(self, inner), beta, inner))
    return w.to(w.expand(product, w.out.sizes), w.out.dtype)


def each_axis(given: Sequence[int], rank: int) -> tuple[int, ...]:
    """One number an axis, where one may stand for all."""
    return tuple(int(n) for n in given) * (rank if len(given) == 1 else 1)


def convolution(
    w: Writer,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Made:
    """A convolution, or the transposed one."""
    rank = weight.rank - 2
    w.require(all((input.is_float, 0 not in input.shape, 0 not in weight.shape)), "there is nothing to do")
    more: dict[str, Any] = {"output_padding": each_axis(output_padding, rank)} if transposed else {}
    return w.add(
        "ConvTranspose" if transposed else "Conv",
        input,
        weight,
        bias,
        group=groups,
        strides=each_axis(stride, rank),
        dilations=each_axis(dilation, rank),
        pads=each_axis(padding, rank) * 2,
        **more,
    )


def convolution_backward(
    w: Writer,
    grad_output: Value,
    input: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Made:
    """The gradients of a convolution's input, weights and bias: a convolution each, and sums."""
    w.require(not transposed, "the gradient of a transposed convolution")
    rank = weight.rank - 2
    steps, gaps, sides = each_axis(stride, rank), each_axis(dilation, rank), each_axis(padding, rank)
    made: list[Value | None] = [None, None, None]
    if output_mask[0]:
        spans = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], gaps, strict=True)]
        grown = [
            (n - 1) * s - 2 * p + span
            for n, s, p, span in zip(grad_output.shape[2:], steps, sides, spans, strict=True)
        ]
        left = tuple(size - n for size, n in zip(input.shape[2:], grown, strict=True))
        made[0] = w.add(
            "ConvTranspose",
            grad_output,
            weight,
            strides=steps,
            dilations=gaps,
            pads=(*sides, *sides),
            group=groups,
            output_padding=left,
        )
    if output_mask[1]:
        made[1] = _weight_gradient(w, grad_output, input, weight, (steps, gaps, sides), groups)
    if output_mask[2]:
        axes = [0, *range(2, grad_output.rank)]
        total = w.add("ReduceSum", w.to(grad_output, wide(grad_output.dtype)), w.ints(axes), keepdims=0)
        made[2] = w.to(total, grad_output.dtype)
    return made


def _weight_gradient(
    w: Writer,
    grad: Value,
    x: Value,
    weight: Value,
    window: tuple[Sequence[int], Sequence[int], Sequence[int]],
    groups: int,
) -> Value:
    """A convolution over the batch: images are channels, channels are images, the gradient is the weights.

    Strides and dilations change places. Groups are convolved one beside the other.
    """
    steps, gaps, sides = window
    (batch, _, *sizes), (depth, *kernel) = x.shape, weight.shape[1:]
    source = w.reshape(x, [batch, groups, depth, *sizes])
    rest = [*range(3, source.rank)]
    source = w.reshape(w.transpose(source, [2, 1, 0, *rest]), [depth, groups * batch, *sizes])
    taps = w.transpose(grad, [1, 0, *range(2, grad.rank)])
    made = w.add(
        "Conv", source, taps, strides=tuple(gaps), dilations=tuple(steps), pads=(*sides, *sides), group=groups
    )
    for axis, size in enumerate(kernel, 2):
        made = w.slice(made, axis, 0, size)
    return w.transpose(made, [1, 0, *range(2, made.rank)])


def _softmax(op: str) -> Rule:
    """Exponentials that add up to one along an axis, or their logarithms."""

    def rule(w: Writer, self: Value, dim: int, half_to_float: bool = False) -> Made:
        x = w.to(self, w.inner)
        if not x.rank:
            return w.to(w.reshape(w.add(op, w.reshape(x, [1]), axis=0), []), w.out.dtype)
        return w.to(w.add(op, x, axis=w.axis(dim, x.rank)), w.out.dtype)

    return rule


def layer_norm(
    w: Writer,
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> Made:
    """Normalised over the last axes; also the mean and the inverse deviation."""
    inner = w.inner
    w.require(math.prod(input.shape) > 0, "there is nothing to normalise")
    scale = w.to(weight, inner) if weight is not None else w.full(normalized_shape, 1, inner)
    shift = None if bias is None else w.to(bias, inner)
    made = w.several(
        "LayerNormalization",
        (w.to(input, inner), scale, shift),
        3,
        wanted=w.wanted | {0},
        attributes={"axis": input.rank - len(normalized_shape), "epsilon": float(eps)},
    )
    return [w.to(x, t.dtype) if x.name and t else None for x, t in zip(made, w.outs, strict=True)]


def _by_channel(w: Writer, x: Value | None, rank: int, default: float, channels: int, dtype: str) -> Value:
    if x is None:
        return w.full((channels, *(1,) * (rank - 2)), default, dtype)
    return w.reshape(w.to(x, dtype), (channels, *(1,) * (rank - 2)))


def batch_norm_inference(
    w: Writer,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> Made:
    """Normalised by known statistics of each channel."""
    inner = w.inner
    channels = input.shape[1]
    factors = [
        w.to(x, inner) if x is not None else w.full((channels,), default, inner)
        for x, default in ((weight, 1.0), (bias, 0.0), (running_mean, 0.0), (running_var, 1.0))
    ]
    made = w.add("BatchNormalization", w.to(input, inner), *factors, epsilon=float(eps))
    empty = w.full((0,), 0, "f32")
    return [w.to(made, w.out.dtype), *(w.to(empty, t.dtype) if t else None for t in w.outs[1:])]


def _moments(w: Writer, x: Value, axes: Sequence[int], eps: float) -> tuple[Value, Value, Value]:
    """What is left of the mean, the mean and the variance's inverse root, sizes of one kept."""
    mean = w.add("ReduceMean", x, w.ints(axes), keepdims=1)
    centred = w.add("Sub", x, mean)
    variance = w.add("ReduceMean", w.add("Mul", centred, centred), w.ints(axes), keepdims=1)
    deviation = w.add("Sqrt", w.add("Add", variance, w.number(eps, x.dtype)))
    return centred, mean, w.add("Reciprocal", deviation)


def group_norm(
    w: Writer,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> Made:
    """Normalised over groups of channels; also the means and the inverse deviations."""
    inner = w.inner
    w.require(math.prod(input.shape) > 0, "there is nothing to normalise")
    grouped = w.reshape(w.to(input, inner), [N, group, C // group * HxW])
    centred, mean, scale = _moments(w, grouped, [2], eps)
    made = w.reshape(w.add("Mul", centred, scale), input.shape)
    for op, factor in (("Mul", weight), ("Add", bias)):
        if factor is not None:
            made = w.add(op, made, _by_channel(w, factor, input.rank, 0.0, C, inner))
    results = (made, w.reshape(mean, [N, group]), w.reshape(scale, [N, group]))
    return [w.to(x, t.dtype) if t else None for x, t in zip(results, w.outs, strict=True)]


def _factor(w: Writer, query: Value, scale: float | None) -> Value:
    """What products of queries and keys are scaled by: unless it is said, one by the root of the channels."""
    if scale is not None:
        return w.number(scale, w.inner)
    channels = query.shape[-1]
    if not is_open(channels):
        return w.number(1 / math.sqrt(channels), w.inner)
    return w.add("Reciprocal", w.add("Sqrt", w.number(channels, w.inner)))


def _scores(w: Writer, q: Value, k: Value, mask: Value | None, factor: Value, is_causal: bool) -> Value:
    """Scaled products of queries and keys; minus infinity, or the mask's numbers added, where hidden."""
    scores = w.add("MatMul", q, w.transpose(k, [0, 1, 3, 2]))
    scores = w.add("Mul", scores, factor)
    if mask is not None:
        scores = w.add("Add", scores, w.to(mask, q.dtype))
    if is_causal:
        seen = w.add("Trilu", w.full((q.shape[-2], k.shape[-2]), True, "bool"), upper=0)
        scores = w.add("Where", seen, scores, w.number(-math.inf, q.dtype))
    return scores


def attention(
    w: Writer,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> Made:
    """Attention [batch, heads, places, channels], and the logarithms of the sums of its weights."""
    w.require(dropout_p == 0, "attention that drops weights")
    w.require(query.shape[:2] == key.shape[:2] and 0 not in query.shape, "heads that share keys")
    q, k, v = (w.to(x, w.inner) for x in (query, key, value))
    scores = _scores(w, q, k, attn_mask, _factor(w, q, scale), is_causal)
    made = w.to(w.add("MatMul", w.add("Softmax", scores, axis=3), v), w.out.dtype)
    if 1 not in w.wanted:
        return [made, None]
    sums = w.add("ReduceLogSumExp", scores, w.ints([3]), keepdims=0)
    kind = w.outs[1]
    return [made, w.to(sums, kind.dtype) if kind else None]


def attention_backward(
    w: Writer,
    grad_out: Value,
    query: Value,
    key: Value,
    value: Value,
    out: Value,
    logsumexp: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> Made:
    """The gradients of attention: of queries, keys and values [batch, heads, places, channels].

    The weights are made again from the scores and the logarithms of their sums, as in FlashAttention
    (Dao et al., 2022, algorithm 4); those of torch's are [batch, heads, places].
    """
    w.require(dropout_p == 0, "attention that drops weights")
    w.require(query.shape[:2] == key.shape[:2] and 0 not in query.shape, "heads that share keys")
    inner = w.inner
    q, k, v, g, o = (w.to(x, inner) for x in (query, key, value, grad_out, out))
    factor = _factor(w, q, scale)
    turned = [0, 1, 3, 2]
    scores = _scores(w, q, k, attn_mask, factor, is_causal)
    sums = w.reshape(w.to(logsumexp, inner), [*query.shape[:3], 1])
    weights = w.add("Exp", w.add("Sub", scores, sums))
    means = w.add("ReduceSum", w.add("Mul", g, o), w.ints([3]), keepdims=1)
    given = w.add("MatMul", g, w.transpose(v, turned))
    change = w.add("Mul", w.add("Mul", weights, w.add("Sub", given, means)), factor)
    made = (
        w.add("MatMul", change, k),
        w.add("MatMul", w.transpose(change, turned), q),
        w.add("MatMul", w.transpose(weights, turned), g),
    )
    return [w.to(x, t.dtype) if t else None for x, t in zip(made, w.outs, strict=True)]


RULES: Final[Rules] = MappingProxyType(
    {
        **dict.fromkeys(("mm.default", "bmm.default", "mv.default", "dot.default"), matmul),
        **dict.fromkeys(("addmm.default", "baddbmm.default"), added_product),
        "convolution.default": convolution,
        "convolution_backward.default": convolution_backward,
        "_softmax.default": _softmax("Softmax"),
        "_log_softmax.default": _softmax("LogSoftmax"),
        "native_layer_norm.default": layer_norm,
        "native_group_norm.default": group_norm,
        "_native_batch_norm_legit_no_training.default": batch_norm_inference,
        "_scaled_dot_product_flash_attention_for_cpu.default": attention,
        "_scaled_dot_product_flash_attention_for_cpu_backward.default": attention_backward,
        "native_dropout_backward.default": lambda w, grad_output, mask, scale: arithmetic("Mul")(
            w, arithmetic("Mul")(w, grad_output, mask), scale
        ),
    }
)
