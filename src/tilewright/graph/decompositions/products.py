"""Matrix products with transpositions, factors and activations, and those of weights stored in a few bits.

Source: `ContribOperators.md` of onnxruntime.

    FusedMatMul, TransposeMatMul   alpha op(a) op(b), op the transpositions that attributes ask for
    FusedGemm                      activation(alpha op(a) op(b) + beta c)
    MatMulNBits                    a w^T + bias, w[n, k] = (q[n, k] - zero[n, b]) scale[n, b], b = k // block
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.decompositions.activations import activated
from tilewright.graph.model import Array, TensorType
from tilewright.graph.parts import Parts, decomposition
from tilewright.graph.registry import MICROSOFT
from tilewright.ir import dtype_of


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

    Passes pack the matrix again, in the order in which products read it.
    """
    bits, block = p.ctx.integer("bits", 4), p.ctx.integer("block_size")
    rows, depth = p.ctx.integer("N"), p.ctx.integer("K")
    if groups or p.ctx.integer("weight_prepacked", 0):
        raise p.ctx.unsupported(
            "weights in another order than that of their numbers (g_idx, weight_prepacked)"
        )
    p.ctx.require(bits in (2, 4, 8) and block > 0, f"weights of {bits} bits in blocks of {block}")
    # a run that knows its rows has plans for one, as a token has, and for more
    _ = any(size > 1 for size in p.shape(0)[:-1])
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
    # signed numbers around zero: what products of bytes take, and a zero point that is nearly always none
    shift = 1 << (bits - 1)
    kind = dtype_of(f"i{bits}").numpy
    signed = (numbers.astype(np.int16) - shift).astype(np.int8).astype(kind).T
    inputs = [p.constant(np.ascontiguousarray(signed)), p.constant(np.ascontiguousarray(factors.T))]
    # zero points that are floats may lie between numbers, or outside of them
    zero = middles.astype(np.float32) - shift
    whole = middles.dtype == np.uint8
    if zero.any():
        inputs.append(
            p.constant(np.ascontiguousarray((zero.astype(np.int8).astype(kind) if whole else zero).T))
        )
    weights = p.add("DequantizeLinear", inputs, axis=0, block_size=block)
    total = p.add("MatMul", (a, weights))
    p.give(p.add("Add", (total, bias)) if bias else total)


#: What is added to signed bytes to make them unsigned: the same bits but the highest.
SIGN: Final = 128


@decomposition("MatMulInteger")
def matmul_integer(p: Parts, a: str, b: str, a_zero: str = "", b_zero: str = "") -> bool:
    """A product of integers less their zero points, in products of unsigned with signed bytes without any.

    sum_k (a - za) (b - zb) = sum_k a b - zb sum_k a - za sum_k b + K za zb: machines have instructions for
    the first sum, the others are of rows and columns, known when compiling where the matrix is. Signed `a`
    and unsigned `b` change by 128, and their zero points with them. (Jacob et al., arXiv:1712.05877,
    equation 7.)
    """
    left, right = p.type(0), p.type(1)
    zeros = [p.ctx.types[at] if at < len(p.ctx.types) else None for at in (2, 3)]
    plain = (left.dtype, right.dtype) == ("u8", "i8") and not a_zero and not b_zero
    if plain or left.rank < 2 or right.rank < 2:
        return False
    if any(zero is not None and zero.elements > 1 and zero.rank != 1 for zero in zeros):
        return False
    za, zb = (zero_point(p, at, zero) for at, zero in zip((2, 3), zeros, strict=True))
    if left.dtype == "i8":
        a, za = flipped(p, a, "u8"), moved_zero(p, za, SIGN)
    if right.dtype == "u8":
        b, zb = flipped(p, b, "i8"), moved_zero(p, zb, -SIGN)
    total = p.add("MatMulInteger", (a, b))
    if za and zeros[0] is not None and zeros[0].elements > 1:
        za = p.reshape(za, (-1, 1))
    if zb:
        rows = p.add("ReduceSum", (p.add("Cast", (a,), to="i32"), p.ints((-1,))), keepdims=1)
        total = p.add("Sub", (total, p.add("Mul", (rows, zb))))
    if za:
        columns = p.add("ReduceSum", (p.add("Cast", (b,), to="i32"), p.ints((-2,))), keepdims=1)
        if zb:
            columns = p.add("Sub", (columns, p.add("Mul", (zb, p.number(left.sizes[-1], "i32")))))
        total = p.add("Sub", (total, p.add("Mul", (columns, za))))
    p.give(total)
    return True


def zero_point(p: Parts, at: int, type_: TensorType | None) -> str:
    """A zero point in i32: one number, or one a row or column; none where it is known to be nothing."""
    if type_ is None:
        return ""
    known = p.ctx.values[at]
    if known is not None and not known.any():
        return ""
    wide = p.add("Cast", (p.ctx.node.inputs[at],), to="i32")
    return p.reshape(wide, ()) if type_.elements == 1 and type_.rank else wide


def flipped(p: Parts, value: str, dtype: str) -> str:
    """Bytes under the other sign, 128 larger or smaller."""
    return p.add(
        "BitwiseXor",
        (p.add("BitCast", (value,), to=dtype), p.number(SIGN if dtype == "u8" else -SIGN, dtype)),
    )


def moved_zero(p: Parts, zero: str, by: int) -> str:
    """A zero point that is larger by so much; an empty one is none."""
    return p.add("Add", (zero, p.number(by, "i32"))) if zero else p.number(by, "i32")
