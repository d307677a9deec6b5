"""Data movement: each output element is an input element, chosen by index arithmetic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tilewright import lang
from tilewright.graph.operand import At, Ix, Operand, Place, bounded, compute
from tilewright.graph.ops.common import (
    Scalar,
    broadcast_shape,
    chosen,
    divided,
    linear_index,
    number,
    read,
    size_of,
    split_index,
    stem,
)
from tilewright.graph.registry import OWN, AxesAsked, Context, Kind, operator
from tilewright.ir import OpenSizeError, exact_quotient, index_of, least, most


def reshaped_index(index: Sequence[At], new: Sequence[int], old: Sequence[int]) -> Place:
    """The index under the shape `old` of the element that has `index` under `new`, both row-major.

    The shapes are cut into the shortest runs of axes with equal products, so that axes that stay as they are
    are not divided and multiplied again.
    """
    if 0 in old or 0 in new:
        return (0,) * len(old)
    place: list[At] = []
    a = b = 0
    while a < len(new) or b < len(old):
        end_a, end_b = min(a + 1, len(new)), min(b + 1, len(old))
        while (have := math.prod(new[a:end_a])) != (want := math.prod(old[b:end_b])):
            if end_b == len(old) or (end_a < len(new) and _is_part(have, want)):
                end_a += 1
            else:
                end_b += 1
        run = list(old[b:end_b])
        place += split_index(linear_index(index[a:end_a], new[a:end_a]), run)
        a, b = end_a, end_b
    return tuple(place)


def _is_part(have: int, want: int) -> bool:
    """Whether a run of axes is the shorter one; where sizes do not tell, whether it divides the other."""
    try:
        return have < want
    except OpenSizeError:
        return exact_quotient(index_of(want), index_of(have)) is not None


def view(ctx: Context, x: Operand, shape: Sequence[int]) -> Operand:
    """The operand under another shape with the same number of elements."""
    fits = size_of(shape) == size_of(x.shape)
    ctx.require(fits, f"{list(x.shape)} cannot be reshaped to {list(shape)}")
    if 0 in shape:
        return compute(
            shape, lambda *i: lang.const(False if x.dtype == "bool" else 0, x.dtype), name=stem(ctx)
        )
    return compute(shape, lambda *i: x[reshaped_index(i, shape, x.shape)], name=stem(ctx))


@operator("Identity", kind=Kind.VIEW, finite=True)
def identity(ctx: Context, x: Operand) -> Operand:
    """The input."""
    return view(ctx, x, x.shape)


@operator("Copy", kind=Kind.OPAQUE, domain=OWN)
def copy(ctx: Context, x: Operand) -> Operand:
    """The input, in memory of its own: a plan may give it another layout there."""
    return compute(x.shape, lambda *i: x[i], name=stem(ctx))


@operator("Reshape", kind=Kind.VIEW, static=(1,))
def reshape(ctx: Context, x: Operand, shape: Operand | None = None) -> Operand:
    """Another shape: 0 keeps a size (unless `allowzero`), -1 is what is left."""
    wanted = ctx.ints_from("shape", 1)
    ctx.require(wanted is not None, "the new shape is missing")
    sizes = list(wanted or ())
    if not ctx.flag("allowzero", False):
        for axis, size in enumerate(sizes):
            if size == 0:
                ctx.require(
                    axis < len(x.shape), f"axis {axis} of the new shape copies a size that is not there"
                )
                sizes[axis] = x.shape[axis]
    ctx.require(sizes.count(-1) <= 1 and all(n >= -1 for n in sizes), f"the new shape {sizes} has no meaning")
    if -1 in sizes:
        rest = size_of([size for size in sizes if size != -1])
        ctx.require(
            rest > 0 and size_of(x.shape) % rest == 0, f"{list(x.shape)} cannot be reshaped to {sizes}"
        )
        sizes[sizes.index(-1)] = size_of(x.shape) // rest
    return view(ctx, x, sizes)


@operator("Flatten", kind=Kind.VIEW)
def flatten(ctx: Context, x: Operand) -> Operand:
    """A matrix: the axes before `axis`, and the others."""
    axis = ctx.integer("axis", 1)
    ctx.require(-len(x.shape) <= axis <= len(x.shape), f"axis {axis} is out of range for rank {len(x.shape)}")
    axis = axis + len(x.shape) if axis < 0 else axis
    return view(ctx, x, (size_of(x.shape[:axis]), size_of(x.shape[axis:])))


@operator("Squeeze", kind=Kind.VIEW, static=(1,))
def squeeze(ctx: Context, x: Operand, axes: Operand | None = None) -> Operand:
    """Without the named sizes of one, or without any."""
    rank = len(x.shape)
    given = ctx.axes_from("axes", 1, AxesAsked(rank))
    if given is None:
        gone = {axis for axis, size in enumerate(x.shape) if size == 1}
    else:
        gone = {ctx.normal_axis(axis, rank) for axis in given}
    ctx.require(
        all(ctx.agree(x.shape[axis], 1) for axis in gone),
        f"the axes {sorted(gone)} of {list(x.shape)} are not all 1",
    )
    return view(ctx, x, [size for axis, size in enumerate(x.shape) if axis not in gone])


@operator("Unsqueeze", kind=Kind.VIEW, static=(1,))
def unsqueeze(ctx: Context, x: Operand, axes: Operand | None = None) -> Operand:
    """With sizes of one at the named axes of the result."""
    given = ctx.axes_from("axes", 1, AxesAsked(len(x.shape), made=True))
    ctx.require(given is not None, "the axes are missing")
    rank = len(x.shape) + len(given or ())
    new = {ctx.normal_axis(axis, rank) for axis in given or ()}
    ctx.require(len(new) == len(given or ()), "an axis is named twice")
    rest = iter(x.shape)
    return view(ctx, x, [1 if axis in new else next(rest) for axis in range(rank)])


@operator("Transpose", kind=Kind.MOVEMENT)
def transpose(ctx: Context, x: Operand) -> Operand:
    """The axes in another order; reversed if none is given."""
    rank = len(x.shape)
    perm = ctx.integers("perm", range(rank - 1, -1, -1))
    ctx.require(sorted(perm) == list(range(rank)), f"{list(perm)} is no order of {rank} axes")
    place = {axis: at for at, axis in enumerate(perm)}
    shape = [x.shape[axis] for axis in perm]
    return compute(shape, lambda *i: x[tuple(i[place[axis]] for axis in range(rank))], name=stem(ctx))


@operator("Expand", kind=Kind.MOVEMENT, static=(1,))
def expand(ctx: Context, x: Operand, shape: Operand) -> Operand:
    """The input broadcast with a shape."""
    out = broadcast_shape(ctx, x.shape, ctx.static_ints(1))
    return compute(out, lambda *i: read(x, i), name=stem(ctx))


@operator("Tile", kind=Kind.MOVEMENT, static=(1,))
def tile(ctx: Context, x: Operand, repeats: Operand) -> Operand:
    """The input repeated along each axis."""
    times = ctx.static_ints(1)
    ctx.require(
        len(times) == len(x.shape) and all(n >= 0 for n in times), "an entry of repeats for each axis"
    )
    shape = [size * count for size, count in zip(x.shape, times, strict=True)]

    def of(*i: Ix) -> Scalar:
        # an axis without elements has no remainders
        kept = [times[a] == 1 or size == 0 for a, size in enumerate(x.shape)]
        return x[tuple(at if kept[a] else divided(at, x.shape[a])[1] for a, at in enumerate(i))]

    return compute(shape, of, name=stem(ctx))


@operator("Concat", kind=Kind.MOVEMENT)
def concat(ctx: Context, first: Operand, *others: Operand) -> Operand:
    """The inputs one after another along an axis."""
    xs, rank = (first, *others), len(first.shape)
    axis = ctx.axis("axis", rank, 1 if ctx.version < 4 else None)
    same = all(len(x.shape) == rank and x.shape[:axis] == xs[0].shape[:axis] for x in xs) and all(
        x.shape[axis + 1 :] == xs[0].shape[axis + 1 :] for x in xs
    )
    shapes = " and ".join(str(list(x.shape)) for x in xs)
    ctx.require(same, f"{shapes} differ in more than axis {axis}")
    parts = [x for x in xs if x.shape[axis] != 0] or [xs[0]]
    ends = list(itertools.accumulate(x.shape[axis] for x in parts))
    total = ends[-1]

    def of(*i: Ix) -> Scalar:
        def element(at: int) -> Scalar:
            begin = ends[at] - parts[at].shape[axis]
            return parts[at][(*i[:axis], i[axis] - begin, *i[axis + 1 :])]

        return chosen(i[axis], ends, element)

    return compute((*xs[0].shape[:axis], total, *xs[0].shape[axis + 1 :]), of, name=stem(ctx))


@operator("Split", kind=Kind.MOVEMENT, static=(1,))
def split(ctx: Context, x: Operand, sizes: Operand | None = None) -> tuple[Operand, ...]:
    """Consecutive parts along an axis: of given sizes, or as equal as can be."""
    axis = ctx.axis("axis", len(x.shape), 0)
    count = ctx.integer("num_outputs", len(ctx.node.outputs))
    ctx.require(count == len(ctx.node.outputs), f"num_outputs is {count}, and it has {len(ctx.node.outputs)}")
    given = ctx.ints_from("split", 1)
    if given is None:
        chunk = -(-x.shape[axis] // count)
        given = tuple(most(least(chunk, x.shape[axis] - at * chunk), 0) for at in range(count))
    fits = all(n >= 0 for n in given) and len(given) == len(ctx.node.outputs)
    fits = fits and ctx.agree(sum(given), x.shape[axis])
    ctx.require(fits, f"{x.shape[axis]} elements do not split into {list(given)}")
    parts: list[Operand] = []
    begin = 0
    for size in given:
        parts.append(_part(ctx, x, axis, begin, size))
        begin += size
    return tuple(parts)


def _part(ctx: Context, x: Operand, axis: int, begin: int, size: int) -> Operand:
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return compute(shape, lambda *i: x[(*i[:axis], i[axis] + begin, *i[axis + 1 :])], name=stem(ctx))


@operator("Slice", kind=Kind.MOVEMENT, static=(1, 2, 3, 4))
def slice_(
    ctx: Context,
    x: Operand,
    starts: Operand | None = None,
    ends: Operand | None = None,
    axes: Operand | None = None,
    steps: Operand | None = None,
) -> Operand:
    """A part of each named axis: from start to end, exclusive, in steps that may be negative."""
    rank = len(x.shape)
    named = ctx.axes_from("axes", 3, AxesAsked(rank, ordered=True))
    begins, stops = ctx.ints_from("starts", 1), ctx.ints_from("ends", 2)
    ctx.require(begins is not None and stops is not None, "starts or ends are missing")
    named = named or tuple(range(len(begins or ())))
    strides = (ctx.static_ints(4) if ctx.has_input(4) else None) or (1,) * len(named)
    fits = len(named) == len(begins or ()) == len(stops or ()) == len(strides)
    ctx.require(fits, "starts, ends, axes and steps differ in length")
    begin, step, shape = [0] * rank, [1] * rank, list(x.shape)
    for axis, first, stop, stride in zip(named, begins or (), stops or (), strides, strict=True):
        ctx.require(stride != 0, "a step is zero")
        axis = ctx.normal_axis(axis, rank)
        begin[axis], shape[axis] = _sliced(x.shape[axis], first, stop, stride)
        step[axis] = stride

    def of(*i: Ix) -> Scalar:
        return x[tuple(at * step[a] + begin[a] for a, at in enumerate(i))]

    return compute(shape, of, name=stem(ctx))


def _sliced(size: int, first: int, stop: int, step: int) -> tuple[int, int]:
    """Where a slice of an axis begins, and its elements.

    Unlike Python's, a slice that runs backwards from before the beginning begins at the first element.
    """
    low, high = (0, size) if step > 0 else (-1, size - 1)
    begin = least(most(first + size if first < 0 else first, 0), high)
    end = least(most(stop + size if stop < 0 else stop, low), high)
    span = end - begin if step > 0 else begin - end
    count = most((span + abs(step) - 1) // abs(step), 0)
    return (begin, count) if count != 0 and size != 0 else (0, 0)


@operator("Pad", kind=Kind.MOVEMENT, static=(1, 3))
def pad(
    ctx: Context,
    x: Operand,
    pads: Operand | None = None,
    value: Operand | None = None,
    axes: Operand | None = None,
) -> Operand:
    """The input with borders: constant, or the elements at the edge, mirrored or wrapped around."""
    rank = len(x.shape)
    asked = AxesAsked(rank, ordered=True)
    named = ctx.static_axes(3, asked) if ctx.has_input(3) else tuple(range(rank))
    amounts = ctx.ints_from("pads" if ctx.has("pads") else "paddings", 1)
    ctx.require(amounts is not None and len(amounts) == 2 * len(named), "pads need two entries for each axis")
    before, after = [0] * rank, [0] * rank
    for at, axis in enumerate(named):
        axis = ctx.normal_axis(axis, rank)
        before[axis], after[axis] = (amounts or ())[at], (amounts or ())[at + len(named)]
    shape = [size + before[axis] + after[axis] for axis, size in enumerate(x.shape)]
    ctx.require(all(n >= 0 for n in shape), f"pads {list(amounts or ())} leave nothing of {list(x.shape)}")
    mode = ctx.choice("mode", ("constant", "reflect", "edge", "wrap"), "constant")
    if mode != "constant":
        kept = [size + least(before[a], 0) + least(after[a], 0) for a, size in enumerate(x.shape)]
        ctx.require(all(n > 0 for n in kept) or 0 in shape, f"there is nothing to pad {list(x.shape)} with")

        def of(*i: Ix) -> Scalar:
            return x[tuple(_folded(at, x.shape[a], before[a], after[a], mode) for a, at in enumerate(i))]

        return compute(shape, of, name=stem(ctx))
    fill = ctx.values[2] if value is not None and len(ctx.values) > 2 else None
    if value is None or fill is not None:
        constant = fill.reshape(()).item() if fill is not None else ctx.real("value", 0.0)
        kind = bool if x.dtype == "bool" else float if x.dtype[0] in "fb" else int
        source = bounded(x, kind(constant))
        return compute(
            shape, lambda *i: source[tuple(at - before[a] for a, at in enumerate(i))], name=stem(ctx)
        )

    def filled(*i: Ix) -> Scalar:
        place = tuple(at - before[a] for a, at in enumerate(i))
        inside = lang.logical_and(*(p >= 0 for p in place), *(p < x.shape[a] for a, p in enumerate(place)))
        return lang.select(inside, x[place], value[tuple(0 for _ in value.shape)])

    return compute(shape, filled, name=stem(ctx))


def _folded(at: Ix, size: int, before: int, after: int, mode: str) -> At:
    """Where an element of a padded axis comes from; negative borders are cut off before others are added."""
    first = most(-before, 0)
    left = size - first - most(-after, 0)
    if before <= 0 and after <= 0:
        return at + first
    inner = at - most(before, 0)
    if mode == "edge":
        return lang.clamp(inner, 0, left - 1) + first
    if mode == "wrap":
        return inner % left + first
    if left == 1:
        return at * 0 + first
    if before < left and after < left:
        # mirrored once: no division, and the middle is as it was
        low = lang.maximum(inner, -inner) if before > 0 else inner
        return (lang.minimum(low, 2 * (left - 1) - low) if after > 0 else low) + first
    around = inner % (2 * (left - 1))
    return lang.minimum(around, 2 * (left - 1) - around) + first


@operator("DepthToSpace", kind=Kind.MOVEMENT)
def depth_to_space(ctx: Context, x: Operand) -> Operand:
    """Blocks of pixels out of channels."""
    block = ctx.integer("blocksize")
    channels_first = ctx.choice("mode", ("DCR", "CRD"), "DCR") == "CRD"
    n, c, h, w = x.shape
    ctx.require(block > 0 and c % (block * block) == 0, f"{c} channels do not make blocks of {block}")
    depth = c // (block * block)

    def of(b: Ix, channel: Ix, i: Ix, j: Ix) -> Scalar:
        inside = (i % block) * block + j % block
        source = channel * (block * block) + inside if channels_first else inside * depth + channel
        return x[(b, source, i // block, j // block)]

    return compute((n, depth, h * block, w * block), of, name=stem(ctx))


@operator("SpaceToDepth", kind=Kind.MOVEMENT)
def space_to_depth(ctx: Context, x: Operand) -> Operand:
    """Channels out of blocks of pixels."""
    block = ctx.integer("blocksize")
    n, c, h, w = x.shape
    ctx.require(
        block > 0 and h % block == 0 and w % block == 0, f"{h}x{w} pixels do not make blocks of {block}"
    )
    channels_first = ctx.choice("mode", ("DCR", "CRD"), "DCR") == "CRD"

    def of(b: Ix, channel: Ix, i: Ix, j: Ix) -> Scalar:
        inside, source = channel // c, channel % c
        if channels_first:
            inside, source = channel % (block * block), channel // (block * block)
        return x[(b, source, i * block + inside // block, j * block + inside % block)]

    return compute((n, c * block * block, h // block, w // block), of, name=stem(ctx))


@operator("Trilu", kind=Kind.MOVEMENT, static=(1,))
def trilu(ctx: Context, x: Operand, diagonal: Operand | None = None) -> Operand:
    """The upper or lower triangle of each matrix, zero elsewhere."""
    ctx.require(len(x.shape) >= 2, "its input is no matrix")
    k = ctx.static_int(1) if ctx.has_input(1) else 0
    upper = ctx.flag("upper", True)
    zero = False if x.dtype == "bool" else 0

    def of(*i: Ix) -> Scalar:
        inside = i[-1] - i[-2] >= k if upper else i[-1] - i[-2] <= k
        return lang.select(inside, x[i], lang.const(zero, x.dtype))

    return compute(x.shape, of, name=stem(ctx))


@operator("EyeLike", kind=Kind.MOVEMENT)
def eye_like(ctx: Context, x: Operand) -> Operand:
    """Ones on a diagonal of a matrix of the input's shape."""
    dtype, k = ctx.text("dtype", x.dtype), ctx.integer("k", 0)
    ctx.require(len(x.shape) == 2, "its input is no matrix")

    def of(i: Ix, j: Ix) -> Scalar:
        if dtype == "bool":
            return lang.select(j - i == k, True, lang.const(False, "bool"))
        return lang.select(j - i == k, number(1, dtype), number(0, dtype))

    return compute(x.shape, of, name=stem(ctx))
