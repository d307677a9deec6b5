"""Products with weights that are stored in few bits: the weights stay so, and are unpacked by the product.

    before                                             after
    w = DequantizeLinear(q, scales)                    y = BlockProduct(x, words, scales)
    y = MatMul(x, w)

Folded, weights would be numbers of 32 bits: eight times the memory, and the time that reading it takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from tilewright.graph.model import Array, Graph, Node, TensorType
from tilewright.graph.ops.blocks import PANEL, WORD, in_panels, packed
from tilewright.graph.passes.nodes import emit_slice, emit_zeros_after, reshape_node
from tilewright.graph.registry import OWN
from tilewright.graph.rewrite import Rewriter
from tilewright.ir import dtype_of

_FLOATS: Final = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class _Weights:
    """A matrix of ``bits`` bits a number, [columns, depth]; scales and zero points are [columns, blocks]."""

    bits: int
    block: int
    numbers: Array
    scale: Array
    zero: Array


@dataclass(frozen=True, slots=True)
class PackBlocks:
    """Let products unpack constant weights of 2 or 4 bits, and those of 8 that have scales by blocks."""

    name: ClassVar[str] = "pack-blocks"

    def __call__(self, graph: Graph) -> Graph:
        """Rewrite MatMul and Gemm of dequantised constants."""
        rewriter = Rewriter(graph)
        changed = False
        for node in graph.nodes:
            weights = _weights_of(graph, node)
            if weights is None:
                rewriter.keep(node)
                continue
            changed = True
            _emit(rewriter, rewriter.current(node), weights)
        return rewriter.finish() if changed else graph


def _weights_of(graph: Graph, node: Node) -> _Weights | None:
    """The weights of a product with a dequantised constant matrix; None for other nodes."""
    if node.domain or node.op not in ("MatMul", "Gemm") or node.inputs[0] in graph.constants:
        return None
    x, attributes = graph.types[node.inputs[0]], node.attributes
    plain = attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0 and not attributes.get(
        "transA", 0
    )
    if not plain or x.dtype not in _FLOATS or not x.is_static or x.rank < 2:
        return None
    maker, turned = graph.producer(node.inputs[1]), bool(attributes.get("transB", 0))
    while (
        maker is not None
        and maker.op == "Transpose"
        and not maker.domain
        and graph.types[maker.inputs[0]].rank == 2
    ):
        turned ^= maker.attributes.get("perm", (1, 0)) == (1, 0)
        maker = graph.producer(maker.inputs[0])
    if maker is None or maker.op != "DequantizeLinear" or maker.domain:
        return None
    numbers, scale = graph.constant(maker.inputs[0]), graph.constant(maker.inputs[1])
    if numbers is None or scale is None or numbers.ndim != 2 or numbers.size == 0:
        return None
    zero = (
        graph.constant(maker.inputs[2]) if len(maker.used_inputs) > 2 else np.zeros(scale.shape, np.float32)
    )
    if zero is None:
        return None
    axis, block = (
        int(str(maker.attributes.get("axis", 1))) % 2,
        int(str(maker.attributes.get("block_size", 0))),
    )
    dtype = dtype_of(graph.types[maker.inputs[0]].dtype)
    if dtype.is_float or dtype.bits > 8 or not (dtype.small or block):
        return None
    along = 1 if turned else 0  # the axis of the terms
    if scale.ndim == 2 and (not block or axis != along):
        return None
    if scale.ndim < 2 and scale.size > 1 and axis == along:
        return None
    # in the order [columns, depth], and one scale a column where there are no blocks
    shift = 1 << (dtype.bits - 1) if dtype.kind == "uint" else 0
    signed = (numbers.astype(np.int16) - shift).astype(np.int8)
    signed = signed if turned else signed.T
    columns, depth = signed.shape

    def by_column(values: Array) -> Array:
        wide = values.astype(np.float32)
        if wide.ndim == 2:
            return wide if turned else wide.T
        return np.broadcast_to(wide.reshape(-1, 1), (columns, 1))

    block = block if scale.ndim == 2 and scale.shape[along] > 1 else depth
    return _blocks(_Weights(dtype.bits, block, signed, by_column(scale), by_column(zero) - shift))


def _blocks(w: _Weights) -> _Weights | None:
    """The weights in whole blocks of whole words; None where these do not fit."""
    depth, per_word = w.numbers.shape[1], WORD // w.bits
    missing = -depth % w.block
    if w.block % per_word or (missing and w.scale.shape[1] * w.block != depth + missing):
        return None
    numbers = np.pad(w.numbers, ((0, 0), (0, missing))) if missing else w.numbers
    return replace(w, numbers=numbers)


def _narrow(values: Array) -> Array:
    """Numbers in f16 where that has all of them: products read as many bytes less."""
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    return half if np.array_equal(half.astype(values.dtype), values) else values


def _emit(rewriter: Rewriter, node: Node, w: _Weights) -> None:
    """The product, its input as rows of whole blocks, and its result in the shape that the node had."""
    (output,) = node.outputs
    result, source = rewriter.types[output], rewriter.types[node.inputs[0]]
    rows, (columns, depth) = math.prod(source.sizes[:-1]), w.numbers.shape
    x = node.inputs[0]
    if source.sizes[-1] != depth:
        x = rewriter.fresh(f"{output}.filled")
        emit_zeros_after(rewriter, node.inputs[0], source.rank - 1, depth - source.sizes[-1], x, node)
    if source.rank != 2:
        flat = rewriter.fresh(f"{output}.rows")
        made = reshape_node(rewriter, x, (rows, depth), flat, node.name)
        rewriter.emit(made, [TensorType(source.dtype, (rows, depth))])
        x = flat
    inputs = [
        x,
        rewriter.constant(packed(w.numbers, w.bits), f"{output}.words"),
        rewriter.constant(in_panels(_narrow(w.scale)), f"{output}.scales"),
    ]
    if w.zero.any():
        inputs.append(rewriter.constant(in_panels(_narrow(w.zero)), f"{output}.zeros"))
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    wide, attributes = -(-columns // PANEL) * PANEL, {"bits": w.bits, "block": w.block}

    def stage(end: bool, name: str) -> str:
        return output if end else rewriter.fresh(f"{output}.{name}")

    shaped, cut = source.rank != 2, wide != columns
    value = stage(not (cut or shaped or bias), "product")
    product = replace(
        node,
        op="BlockProduct",
        domain=OWN,
        version=1,
        inputs=tuple(inputs),
        outputs=(value,),
        attributes=attributes,
    )
    rewriter.emit(product, [TensorType(source.dtype, (rows, wide))])
    if cut:
        part = stage(not (shaped or bias), "columns")
        emit_slice(rewriter, value, 1, 0, columns, part, node)
        value = part
    if shaped:
        # a Gemm has two dimensions: there is no bias here
        rewriter.emit(reshape_node(rewriter, value, result.sizes, output, node.name), [result])
    elif bias:
        rewriter.emit(replace(node, op="Add", inputs=(value, bias), attributes={}), [result])
