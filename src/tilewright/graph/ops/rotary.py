"""Rotary embeddings: pairs of elements of a vector turned by angles that grow with its place in a sequence.

Sources: Su et al., "RoFormer", arXiv:2104.09864, equation 34; the ONNX standard, operator set 23;
`ContribOperators.md` of onnxruntime. For the pair (a, b) and the angle t of its place:

    a cos t - b sin t,  a sin t + b cos t

A pair is elements j and j + half of a head's first `rotary_embedding_dim` ones, or 2 j and 2 j + 1 where
interleaved; the others stay as they are.
"""

from __future__ import annotations

from tilewright import lang
from tilewright.graph.operand import At, Ix, Operand, clamped, compute
from tilewright.graph.ops.common import Scalar, stem
from tilewright.graph.ops.indexing import lookup
from tilewright.graph.registry import MICROSOFT, Context, Kind, operator


def _rotated(
    ctx: Context,
    x: Operand,
    cosines: Operand,
    sines: Operand,
    positions: Operand | None,
    at: int,
    offset: bool,
) -> Operand:
    """`x` is [batch, length, heads * depth] or [batch, heads, length, depth]; `at` is the positions' input.

    The tables are [places, pairs], read at the positions of [batch, length] or, with `offset`, of one
    number that is the first place; without positions they are [batch, length, pairs].
    """
    rank, count = len(x.shape), ctx.integer("num_heads", 0)
    ctx.require(rank in (3, 4), f"its input has {rank} axes, not 3 or 4")
    pairs, given = cosines.shape[-1], ctx.integer("rotary_embedding_dim", 0)
    if rank == 4:
        depth = x.shape[3]
    else:
        depth = x.shape[2] // count if count else given or 2 * pairs
    turned = given or depth
    fits = (
        depth > 0
        and x.shape[-1] % depth == 0
        and turned == 2 * pairs <= depth
        and sines.shape == cosines.shape
    )
    ctx.require(fits, f"tables of {pairs} pairs do not fit heads of {depth} elements, of which {turned} turn")
    interleaved = ctx.flag("interleaved", False)
    places = cosines.shape[0]
    row_of = None
    if positions is not None and offset:
        ctx.limit_indices(at, 0, places - x.shape[1 if rank == 3 else 2] + 1)
    elif positions is not None:
        row_of = lookup(ctx, at, positions, places)

    def element(i: tuple[Ix, ...], at: At) -> Scalar:
        return x[(*i[:-1], at)]

    def of(*i: Ix) -> Scalar:
        batch, length = i[0], i[1] if rank == 3 else i[2]
        head, j = (i[-1] // depth * depth, i[-1] % depth) if rank == 3 and x.shape[2] > depth else (0, i[-1])
        limited = lang.minimum(j, turned - 1) if turned < depth else j
        pair = limited // 2 if interleaved else limited % pairs
        place: tuple[At, ...] = (batch, length)
        if positions is not None and offset:
            first = lang.cast(positions[tuple(0 for _ in positions.shape)], "i64")
            place = (clamped(first + lang.to_scalar(length, "i64"), places),)
        elif positions is not None and row_of is not None:
            place = (row_of((batch if positions.shape[0] > 1 else 0, length)),)
        cosine, sine = cosines[(*place, pair)], sines[(*place, pair)]
        if interleaved:
            first_of_pair, other = limited % 2 == 0, limited + 1 - 2 * (limited % 2)
        else:
            first_of_pair, other = limited < pairs, (limited + pairs) % turned
        mine, theirs = element(i, head + limited), element(i, head + other)
        moved = lang.select(first_of_pair, mine * cosine - theirs * sine, mine * cosine + theirs * sine)
        return lang.select(j < turned, moved, element(i, head + j)) if turned < depth else moved

    return compute(x.shape, of, name=stem(ctx))


@operator("RotaryEmbedding", kind=Kind.GATHER)
def rotary_embedding(
    ctx: Context, x: Operand, cosines: Operand, sines: Operand, positions: Operand | None = None
) -> Operand:
    """The operator of the standard."""
    return _rotated(ctx, x, cosines, sines, positions, 3, offset=False)


@operator("RotaryEmbedding", kind=Kind.GATHER, domain=MICROSOFT)
def contrib_rotary_embedding(
    ctx: Context, x: Operand, positions: Operand, cosines: Operand, sines: Operand
) -> Operand:
    """The operator of onnxruntime: positions may be one number, the place of the first element."""
    if ctx.flag("is_packed_batching", False) or ctx.real("scale", 1.0) != 1.0:
        raise ctx.unsupported("sequences packed into a batch, and factors")
    return _rotated(ctx, x, cosines, sines, positions, 1, offset=len(positions.shape) == 1)
