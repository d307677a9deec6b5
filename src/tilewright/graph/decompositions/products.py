"""Matrix products with transpositions, factors and activations, and those of weights stored in a few bits.

Source: `ContribOperators.md` of onnxruntime.

    FusedMatMul, TransposeMatMul   alpha op(a) op(b), op the transpositions that attributes ask for
    FusedGemm                      activation(alpha op(a) op(b) + beta c)
    MatMulNBits                    a w^T + bias, w[n, k] = (q[n, k] - zero[n, b]) scale[n, b], b = k // block
"""

from __future__ import annotations

import numpy as np

from tilewright.graph.decompositions.activations import activated
from tilewright.graph.model import Array
from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import MICROSOFT


def _oriented(p: Parts, value: str, rank: int, flip: bool, batch: bool) -> str:
    """A product's operand: axes of the batch first, the last two axes in the product's order."""
    axes = list(range(rank))
    if batch and rank > 2:
        # The matrix's first axis is the first of all, behind it are the axes of the batch.
        axes = [*axes[1:-1], 0, rank - 1]
    if flip and rank > 1:
        axes[-2:] = axes[:-3:-1]
    return value if axes == list(range(rank)) else p.transpose(value, *axes)


@decomposition("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(p: Parts, a: str, b: str) -> None:
    """A product of transposed matrices times a factor."""
    flags = [bool(p.ctx.integer(name, 0)) for name in ("transA", "transB", "transBatchA", "transBatchB")]
    left = _oriented(p, a, len(p.shape(0)), flags[0], flags[2])
    right = _oriented(p, b, len(p.shape(1)), flags[1], flags[3])
    total = p.add("MatMul", (left, right))
    alpha = p.ctx.real("alpha", 1.0)
    p.give(total if alpha == 1.0 else p.add("Mul", (total, p.number(alpha, p.type(0).dtype))))


@decomposition("FusedGemm", domain=MICROSOFT)
def fused_gemm(p: Parts, a: str, b: str, c: str = "") -> None:
    """Gemm behind an activation."""
    kept = ("alpha", "beta", "transA", "transB")
    attributes = {name: value for name, value in p.ctx.node.attributes.items() if name in kept}
    total = p.add("Gemm", (a, b, c), attributes=attributes)
    parameters = [
        p.ctx.real(f"activation_{name}") for name in ("alpha", "beta") if p.ctx.has(f"activation_{name}")
    ]
    p.give(activated(p, total, p.ctx.text("activation", ""), parameters))


def unpacked(packed: Array, bits: int, count: int) -> Array:
    """`count` numbers of a few bits along the last axis, the first in the lowest bits of each byte."""
    per_byte = 8 // bits
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    spread = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.ascontiguousarray(spread.reshape(*packed.shape[:-1], -1)[..., :count])


@decomposition("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
    p: Parts, a: str, packed: str, scales: str, zeros: str = "", groups: str = "", bias: str = ""
) -> None:
    """A product with a matrix of 2, 4 or 8 bits a number in blocks along K; without zero points they are in
    the middle.

    The matrix is unpacked when compiling.
    """
    bits, block = p.ctx.integer("bits", 4), p.ctx.integer("block_size")
    rows, depth = p.ctx.integer("N"), p.ctx.integer("K")
    if groups or p.ctx.integer("weight_prepacked", 0):
        raise p.ctx.unsupported(
            "weights in another order than that of their numbers (g_idx, weight_prepacked)"
        )
    p.ctx.require(bits in (2, 4, 8) and block > 0, f"weights of {bits} bits in blocks of {block}")
    blocks = -(-depth // block)
    matrix = p.ctx.static(1)
    fits = matrix.dtype == np.uint8 and matrix.size == rows * blocks * (block * bits // 8)
    p.ctx.require(
        fits, f"weights {list(matrix.shape)} are not {rows} rows of {blocks} blocks of {block} numbers"
    )
    numbers = unpacked(matrix.reshape(rows, -1), bits, depth)
    if not zeros:
        middles: Array = np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    else:
        given = p.ctx.static(3)
        middles = unpacked(given.reshape(rows, -1), bits, blocks) if given.dtype == np.uint8 else given
    factors = p.ctx.static(2).reshape(rows, blocks)
    middles = middles.reshape(rows, blocks)
    if middles.dtype == np.uint8:
        # signed numbers around zero: what products of bytes take, and a zero point that is nearly always none
        shift = 1 << (bits - 1)
        signed = (numbers.astype(np.int16) - shift).astype(np.int8).T
        inputs = [p.constant(np.ascontiguousarray(signed)), p.constant(np.ascontiguousarray(factors.T))]
        zero = (middles.astype(np.int16) - shift).astype(np.int8)
        if zero.any():
            inputs.append(p.constant(np.ascontiguousarray(zero.T)))
        weights = p.add("DequantizeLinear", inputs, axis=0, block_size=block)
    else:
        spread = np.repeat(middles, block, axis=1)[:, :depth].astype(np.float32)
        wide = (numbers - spread) * np.repeat(factors, block, axis=1)[:, :depth].astype(np.float32)
        weights = p.constant(np.ascontiguousarray(wide.T.astype(factors.dtype)))
    total = p.add("MatMul", (a, weights))
    p.give(p.add("Add", (total, bias)) if bias else total)
