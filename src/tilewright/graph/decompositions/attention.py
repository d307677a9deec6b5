"""Attention as onnxruntime's operators have it: with projections, masks, caches, and heads that share keys.

Sources: Vaswani et al., "Attention Is All You Need", arXiv:1706.03762, equation 1; Ainslie et al., "GQA",
arXiv:2305.13245, section 2.2; `ContribOperators.md` of onnxruntime (Attention, MultiHeadAttention,
GroupQueryAttention).

    softmax(scale q k^T + masks) v          for each head; the heads of a group read the same keys and values

Masks are sums: 0 where a key may be read, `mask_filter_value` where padding is, the least number where a key
comes after the query. Sizes of caches and sequences are known when compiling; the lengths of sequences inside
of them need not be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import MICROSOFT
from tilewright.ir import dtype_of, is_open, most, most_of

#: What is added to the score of a masked key where the attribute is not given.
_FILTER: Final = -10000.0


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Batch, heads of queries and of keys, queries, keys, elements of a head and of a head of values."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    depth: int
    width: int


def _by_heads(p: Parts, value: str, batch: int, length: int, heads: int, depth: int) -> str:
    """[batch, length, heads * depth] as [batch, heads, length, depth]."""
    return p.transpose(p.reshape(value, (batch, length, heads, depth)), 0, 2, 1, 3)


def _least(dtype: str) -> float:
    """The least finite number: after any sum that is not much larger its exponential is zero."""
    return float((np.finfo(np.float16) if dtype == "f16" else np.finfo(np.float32)).min)


def _attended(
    p: Parts, q: str, k: str, v: str, sizes: _Sizes, masks: tuple[str, ...], softcap: float = 0.0
) -> tuple[str, str]:
    """The result as [batch, queries, heads * width], and the weights as [batch, heads, queries, keys].

    `q` is [batch, heads, queries, depth], `k` and `v` are [batch, kv_heads, keys, ...]; masks broadcast to
    [batch, heads, queries, keys]. The heads of a group, and their queries, are rows of one product.
    """
    s = sizes
    dtype = p.type(0).dtype
    group = s.heads // s.kv_heads
    scale = p.ctx.real("scale", 0.0) or 1.0 / math.sqrt(s.depth)
    if group > 1:
        q = p.reshape(q, (s.batch, s.kv_heads, group * s.queries, s.depth))
    scores = p.add("MatMul", (q, p.transpose(k, 0, 1, 3, 2)))
    scores = p.add("Mul", (scores, p.number(scale, dtype)))
    if group > 1:
        scores = p.reshape(scores, (s.batch, s.heads, s.queries, s.keys))
    if softcap:
        cap = p.number(softcap, dtype)
        scores = p.add("Mul", (p.add("Tanh", (p.add("Div", (scores, cap)),)), cap))
    for mask in masks:
        scores = p.add("Add", (scores, mask))
    weights = p.add("Softmax", (scores,), axis=-1)
    rows = p.reshape(weights, (s.batch, s.kv_heads, group * s.queries, s.keys)) if group > 1 else weights
    made = p.add("MatMul", (rows, v))
    if group > 1:
        made = p.reshape(made, (s.batch, s.heads, s.queries, s.width))
    return p.reshape(p.transpose(made, 0, 2, 1, 3), (s.batch, s.queries, s.heads * s.width)), weights


def _causal(p: Parts, queries: int, keys: int, dtype: str) -> str:
    """The mask where the last query reads all keys, and each one before it one fewer."""
    if not (is_open(keys) or is_open(queries)):
        after = np.arange(keys)[None, :] > np.arange(queries)[:, None] + (keys - queries)
        return p.constant(np.where(after, _least(dtype), 0.0).astype(dtype_of(dtype).numpy))
    ends = p.add("Add", (p.reshape(p.places(queries), (queries, 1)), p.ints((keys - queries,))))
    late = p.add("Greater", (p.places(keys), ends))
    return p.add("Where", (late, p.number(_least(dtype), dtype), p.number(0.0, dtype)))


def _padding(p: Parts, mask: str, shape: tuple[int, ...], sizes: _Sizes, dtype: str) -> str:
    """The mask of padding from one of its forms: what is kept of keys, or how many keys are kept."""
    s = sizes
    filled = p.ctx.real("mask_filter_value", _FILTER)
    if shape in ((s.batch,), (2 * s.batch,)):
        places = p.reshape(p.places(s.keys, "i32"), (1, s.keys))
        ends, *starts = p.split(p.add("Cast", (mask,), to="i32"), (s.batch,) * (shape[0] // s.batch), axis=0)
        kept = p.add("Less", (places, p.reshape(ends, (s.batch, 1))))
        for start in starts:
            kept = p.add("And", (kept, p.add("GreaterOrEqual", (places, p.reshape(start, (s.batch, 1))))))
        view: tuple[int, ...] = (s.batch, 1, 1, s.keys)
    elif shape in ((s.batch, s.keys), (s.batch, s.queries, s.keys)):
        kept = p.add("Cast", (mask,), to="bool")
        view = (s.batch, 1, *((1, *shape[1:])[-2:]))
    else:
        raise p.ctx.unsupported(
            f"a mask of the shape {list(shape)} for {s.batch} times {s.queries} queries and {s.keys} keys"
        )
    chosen = p.add("Where", (kept, p.number(0.0, dtype), p.number(filled, dtype)))
    return p.reshape(chosen, view)


@decomposition("Attention", domain=MICROSOFT)
def attention(
    p: Parts,
    x: str,
    weights: str,
    bias: str = "",
    mask: str = "",
    past: str = "",
    added: str = "",
    past_length: str = "",
) -> None:
    """Self-attention with its projections; the cache is [2, batch, heads, keys, depth]."""
    if past_length or p.ctx.integer("past_present_share_buffer", 0) or p.ctx.integer("do_rotary", 0):
        raise p.ctx.unsupported("caches that past and present share, and rotary embeddings inside")
    batch, queries, _ = p.shape(0)
    heads, total = p.ctx.integer("num_heads"), p.shape(1)[-1]
    widths = p.ctx.integers("qkv_hidden_sizes", (total // 3,) * 3)
    fits = len(widths) == 3 and sum(widths) == total and heads > 0 and not any(w % heads for w in widths)
    p.ctx.require(fits, f"{total} columns of weights do not make {list(widths)} in {heads} heads")
    depth, width = widths[0] // heads, widths[2] // heads
    made = p.add("MatMul", (x, weights))
    if bias:
        made = p.add("Add", (made, bias))
    q, k, v = (
        _by_heads(p, part, batch, queries, heads, size // heads)
        for part, size in zip(p.split(made, widths), widths, strict=True)
    )
    keys = queries
    if past:
        before = p.shape(4)
        p.ctx.require(before[:3] == (2, batch, heads), f"a cache {list(before)} for {heads} heads")
        old = p.split(past, (1, 1), axis=0)
        k, v = (
            p.add("Concat", (p.reshape(part, before[1:]), new), axis=2)
            for part, new in zip(old, (k, v), strict=True)
        )
        keys += before[3]
    if p.ctx.wants(1):
        p.ctx.require(depth == width, "keys and values differ in size and share a cache")
        stacked = [p.reshape(part, (1, batch, heads, keys, depth)) for part in (k, v)]
        p.give(p.add("Concat", stacked, axis=0), 1)
    sizes = _Sizes(batch, heads, heads, queries, keys, depth, width)
    dtype = p.type(0).dtype
    masks = [_padding(p, mask, p.shape(3), sizes, dtype)] if mask else []
    if p.ctx.integer("unidirectional", 0):
        masks.append(_causal(p, queries, keys, dtype))
    if added:
        masks.append(added)
    p.give(_attended(p, q, k, v, sizes, tuple(masks))[0])


@decomposition("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    p: Parts,
    query: str,
    key: str = "",
    value: str = "",
    bias: str = "",
    mask: str = "",
    added: str = "",
    past_key: str = "",
    past_value: str = "",
    past_length: str = "",
    indirection: str = "",
) -> None:
    """Attention of queries to keys and values: [batch, length, heads * depth], packed, or by heads."""
    if past_length or indirection:
        raise p.ctx.unsupported("caches that past and present share, and beams")
    heads, shape = p.ctx.integer("num_heads"), p.shape(0)
    batch, queries = shape[:2]
    if not key:
        p.ctx.require(
            len(shape) == 5 and shape[2:4] == (heads, 3), f"packed queries {list(shape)} for {heads} heads"
        )
        depth = width = shape[-1]
        keys = queries
        q, k, v = (p.reshape(part, (batch, queries, -1)) for part in p.split(query, (1, 1, 1), axis=3))
    else:
        p.ctx.require(len(shape) == 3 and shape[-1] % heads == 0, f"queries {list(shape)} for {heads} heads")
        depth = shape[-1] // heads
        given = p.shape(1)
        keys = given[2] if len(given) == 4 else given[1]
        q, k, v = query, key, value
        if not value:
            p.ctx.require(
                len(given) == 5 and given[2:4] == (heads, 2), f"packed keys {list(given)} for {heads} heads"
            )
            k, v = (p.reshape(part, (batch, keys, -1)) for part in p.split(key, (1, 1), axis=3))
            width = depth
        else:
            last = p.shape(2)
            width = last[-1] if len(last) == 4 else last[-1] // heads
    by_heads = bool(value) and len(p.shape(1)) == 4
    if bias:
        q_bias, k_bias, v_bias = p.split(bias, (heads * depth, heads * depth, heads * width))
        q = p.add("Add", (q, q_bias))
        if not by_heads:
            k, v = p.add("Add", (k, k_bias)), p.add("Add", (v, v_bias))
    q = _by_heads(p, q, batch, queries, heads, depth)
    if not by_heads:
        k, v = _by_heads(p, k, batch, keys, heads, depth), _by_heads(p, v, batch, keys, heads, width)
    if past_key:
        keys += p.shape(6)[2]
        k, v = p.add("Concat", (past_key, k), axis=2), p.add("Concat", (past_value, v), axis=2)
    p.give(k, 1)
    p.give(v, 2)
    sizes = _Sizes(batch, heads, heads, queries, keys, depth, width)
    dtype = p.type(0).dtype
    masks = [_padding(p, mask, p.shape(4), sizes, dtype)] if mask else []
    if p.ctx.integer("unidirectional", 0):
        masks.append(_causal(p, queries, keys, dtype))
    if added:
        masks.append(added)
    made, weights = _attended(p, q, k, v, sizes, tuple(masks))
    p.give(made)
    p.give(weights, 3)


#: Attributes of GroupQueryAttention that change what it computes, and the values for which they change
#: nothing.
_PLAIN: Final = (
    ("smooth_softmax", 0),
    ("qk_output", 0),
    ("sliding_window_cache", 0),
    ("kv_cache_bit_width", 0),
)


@decomposition("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    p: Parts,
    query: str,
    key: str,
    value: str,
    past_key: str,
    past_value: str,
    last_keys: str,
    total_length: str,
    cosines: str = "",
    sines: str = "",
    positions: str = "",
    added: str = "",
    *others: str,
) -> None:
    """Causal attention of groups of heads that share keys and values, with a cache and rotary embeddings.

    `last_keys` is, for each batch, the number of keys less one; `total_length` the largest number of keys,
    which must be known when compiling. A cache has room for the present keys, or grows by the new ones; it
    may be of another type than queries, to which new entries are rounded.
    """
    if any(others) or any(p.ctx.integer(name, plain) > max(plain, 0) for name, plain in _PLAIN):
        raise p.ctx.unsupported("head sinks, smooth softmax, quantised or sliding caches")
    heads, kv_heads = p.ctx.integer("num_heads"), p.ctx.integer("kv_num_heads")
    batch, queries, hidden = p.shape(0)
    p.ctx.require(
        heads > 0 and kv_heads > 0 and heads % kv_heads == 0, f"{heads} heads in groups of {kv_heads}"
    )
    total = p.ctx.static_int(6)
    dtype = p.type(0).dtype
    q, k, v = query, key, value
    depth = hidden // heads if key else hidden // (heads + 2 * kv_heads)
    if not key:
        q, k, v = p.split(query, [count * depth for count in (heads, kv_heads, kv_heads)])
    width = depth if not value else p.shape(2)[-1] // kv_heads
    q = _by_heads(p, q, batch, queries, heads, depth)
    k = _by_heads(p, k, batch, queries, kv_heads, depth)
    v = _by_heads(p, v, batch, queries, kv_heads, width)
    room = p.shape(3)[2] if past_key else 0
    keys = most(room, total)
    # Where the first new key goes: behind the old ones, or at the front where there are none.
    counts = p.add("Cast", (p.reshape(last_keys, (batch,)),), to="i64")
    start = p.filled((batch,), 0, "i64")
    # in a cache of one size the first tokens are written like others: no plan of their own
    kept = bool(past_key) and not is_open(room) and is_open(total - queries)
    later = most_of(total - queries) > 0 if kept else queries < total
    if later:
        start = p.add("Sub", (counts, p.ints((queries - 1,))))
        start = p.add("Max", (start, p.ints((0,)))) if kept else start
    steps = p.reshape(p.places(queries), (1, queries))
    places = p.add("Add", (p.reshape(start, (batch, 1)), steps))
    if p.ctx.integer("do_rotary", 0):
        where = positions or places
        # the width of the tables says how much of a head turns
        turned, interleaved = 2 * p.shape(7)[1], p.ctx.integer("rotary_interleaved", 0)
        q, k = (
            p.add(
                "RotaryEmbedding",
                (each, where, cosines, sines),
                domain=MICROSOFT,
                interleaved=interleaved,
                rotary_embedding_dim=turned,
            )
            for each in (q, k)
        )
    held = p.type(3).dtype if past_key else dtype
    if held != dtype:
        k, v = (p.add("Cast", (each,), to=held) for each in (k, v))
    if later or (past_key and room > queries):
        k = _cached(p, past_key, k, start, keys)
        v = _cached(p, past_value, v, start, keys)
    p.give(k, 1)
    p.give(v, 2)
    if keys != total:
        # behind the present keys nothing is read
        k, v = (p.add("Slice", (each, p.ints((0,)), p.ints((total,)), p.ints((2,)))) for each in (k, v))
        keys = total
    if held != dtype:
        k, v = (p.add("Cast", (each,), to=dtype) for each in (k, v))
    sizes = _Sizes(batch, heads, kv_heads, queries, keys, depth, width)
    place = p.reshape(p.places(keys), (1, 1, keys))
    here = p.reshape(places, (batch, queries, 1))
    read = p.add("LessOrEqual", (place, here))
    if not p.ctx.integer("causal", 1):
        read = p.add("LessOrEqual", (place, p.reshape(counts, (batch, 1, 1))))
    window = p.ctx.integer("local_window_size", -1)
    if window > 0:
        read = p.add("And", (read, p.add("Greater", (place, p.add("Sub", (here, p.ints((window,))))))))
    masks = [p.add("Where", (read, p.number(0.0, dtype), p.number(_least(dtype), dtype)))]
    masks[0] = p.add("Unsqueeze", (masks[0], p.ints((1,))))
    if added:
        width_of_bias = p.shape(10)[-1]
        if width_of_bias < keys:
            added = p.add("Pad", (added, p.ints((0,) * 7 + (keys - width_of_bias,))))
        masks.append(added)
    p.give(_attended(p, q, k, v, sizes, tuple(masks), p.ctx.real("softcap", 0.0))[0])


def _cached(p: Parts, past: str, new: str, start: str, keys: int) -> str:
    """A cache of `keys` places with the new entries from each batch's start on."""
    room = p.shape(3)[2] if past else 0
    if not past:
        return new
    if room < keys:
        past = p.add("Pad", (past, p.ints((0, 0, 0, 0, 0, 0, keys - room, 0))))
    return p.add("TensorScatter", (past, new, start), axis=2)
