"""Writing to places that depend on data: scatters, unpooling, caches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tilewright import lang
from tilewright.graph.operand import Ix, Operand, clamped, compute, index_value, updated
from tilewright.graph.ops.common import Scalar, as_tensor, linear_index, number, stem
from tilewright.graph.ops.indexing import lookup
from tilewright.graph.registry import OWN, Context, Kind, operator
from tilewright.ir import dtype_of

_COMBINE: Final[Mapping[str, Callable[[Scalar, Scalar], Scalar]]] = MappingProxyType(
    {
        "none": lambda old, new: new,
        "add": lambda old, new: old + new,
        "mul": lambda old, new: old * new,
        "max": lang.maximum,
        "min": lang.minimum,
    }
)


def _combination(ctx: Context, x: Operand) -> tuple[Callable[[Scalar, Scalar], Scalar], bool]:
    """What an update does to its element, and whether that may happen in any order: to integers."""
    name = ctx.choice("reduction", tuple(_COMBINE), "none")
    return _COMBINE[name], name != "none" and dtype_of(x.dtype).is_integer


def _agree(ctx: Context, first: Sequence[int], second: Sequence[int], rank: int) -> bool:
    """Whether two shapes of a rank are equal."""
    return len(first) == len(second) == rank and all(map(ctx.agree, first, second))


@operator("ScatterElements", "Scatter", kind=Kind.OPAQUE)
def scatter_elements(ctx: Context, x: Operand, indices: Operand, updates: Operand) -> Operand:
    """X with its elements at the indices along `axis` set to the updates, or combined with them."""
    rank = len(x.shape)
    axis = ctx.axis("axis", rank, 0)
    ctx.require(_agree(ctx, indices.shape, updates.shape, rank), "indices and updates do not fit")
    combine, unordered = _combination(ctx, x)
    chosen = lookup(ctx, 1, indices, x.shape[axis])

    def step(target: Operand, *i: Ix) -> lang.Write:
        place = (*i[:axis], chosen(i), *i[axis + 1 :])
        return lang.write(place, combine(target[place], updates[i]))

    free = [at for at in range(rank) if at != axis]
    return updated(as_tensor(ctx, x), updates.shape, step, stem(ctx), free, unordered=unordered)


@operator("ScatterND", kind=Kind.OPAQUE)
def scatter_nd(ctx: Context, x: Operand, indices: Operand, updates: Operand) -> Operand:
    """X with the slices that the tuples along the last axis of the indices name set, or combined."""
    depth, outer = indices.shape[-1], len(indices.shape) - 1
    wanted = (*indices.shape[:-1], *x.shape[depth:])
    fits = depth <= len(x.shape) and _agree(ctx, updates.shape, wanted, len(wanted))
    ctx.require(fits, f"updates {list(updates.shape)} do not fit the indices {list(indices.shape)}")
    combine, unordered = _combination(ctx, x)
    chosen = [lookup(ctx, 1, indices, x.shape[at], at, depth) for at in range(depth)]

    def step(target: Operand, *i: Ix) -> lang.Write:
        named = [place((*i[:outer], at)) for at, place in enumerate(chosen)]
        place = (*named, *i[outer:])
        return lang.write(place, combine(target[place], updates[i]))

    free = range(outer, len(updates.shape))
    return updated(as_tensor(ctx, x), updates.shape, step, stem(ctx), free, unordered=unordered)


@operator("TensorScatter", kind=Kind.GATHER)
def tensor_scatter(ctx: Context, past: Operand, update: Operand, start: Operand | None = None) -> Operand:
    """A cache with new entries along `axis` from each batch's start on, around its end if circular."""
    rank = len(past.shape)
    axis = ctx.axis("axis", rank, -2)
    size, count = past.shape[axis], update.shape[axis]
    circular = ctx.choice("mode", ("linear", "circular"), "linear") == "circular"
    if start is not None and not circular:
        ctx.limit_indices(2, 0, size - count + 1)

    def of(*i: Ix) -> Scalar:
        at = index_value(i[axis], "i64")
        if start is not None:
            at = at - lang.cast(start[(i[0],)], "i64")
        if circular:
            at = at % number(size, "i64")
        inside = lang.logical_and(at >= number(0, "i64"), at < number(count, "i64"))
        new = update[(*i[:axis], clamped(at, count), *i[axis + 1 :])]
        return lang.select(inside, new, past[i])

    return compute(past.shape, of, name=stem(ctx))


@operator("WriteState", kind=Kind.OPAQUE, domain=OWN)
def write_state(ctx: Context, update: Operand, start: Operand | None = None) -> Operand:
    """The entries of a TensorScatter of `room` places along `axis` that are new; others are not written."""
    axis, room = ctx.integer("axis"), ctx.integer("room")
    shape = (*update.shape[:axis], room, *update.shape[axis + 1 :])
    if start is not None:
        ctx.limit_indices(1, 0, room - update.shape[axis] + 1)

    def step(target: Operand, *i: Ix) -> lang.Write:
        at = index_value(i[axis], "i64")
        if start is not None:
            at = at + lang.cast(start[(i[0],)], "i64")
        return lang.write((*i[:axis], clamped(at, room), *i[axis + 1 :]), update[i])

    nothing = Operand(shape, update.dtype, lang.undef(shape, update.dtype))
    return updated(nothing, update.shape, step, stem(ctx), [n for n in range(len(shape)) if n != axis])


@operator("MaxUnpool", kind=Kind.OPAQUE, static=(2,))
def max_unpool(ctx: Context, x: Operand, indices: Operand, output_shape: Operand | None = None) -> Operand:
    """The pooled elements put back where they came from, zeros elsewhere."""
    kernel = ctx.integers("kernel_shape")
    rank = len(kernel)
    strides, pads = ctx.integers("strides", (1,) * rank), ctx.integers("pads", (0,) * (2 * rank))
    fits = len(x.shape) == rank + 2 and len(strides) == rank and len(pads) == 2 * rank
    ctx.require(fits and indices.shape == x.shape, "kernel, strides, pads and indices must fit the input")
    sizes = tuple(
        (x.shape[2 + a] - 1) * strides[a] + kernel[a] - pads[a] - pads[a + rank] for a in range(rank)
    )
    shape = (*x.shape[:2], *sizes)
    empty = compute((math.prod(shape),), lambda i: number(0, x.dtype), name=f"{stem(ctx)}_zeros")

    ctx.limit_indices(1, 0, math.prod(shape))

    def step(target: Operand, *i: Ix) -> lang.Write:
        return lang.write((clamped(indices[i], math.prod(shape)),), x[i])

    flat = updated(empty, x.shape, step, stem(ctx))
    wanted = ctx.static_ints(2) if ctx.has_input(2) else shape
    ctx.require(
        len(wanted) == len(shape) and all(w >= s for w, s in zip(wanted, shape, strict=True)),
        f"the output shape {list(wanted)} is smaller than {list(shape)}",
    )

    def of(*i: Ix) -> Scalar:
        zero = number(0, x.dtype)
        inside = [at < size for at, size, whole in zip(i, shape, wanted, strict=True) if size < whole]
        element = flat[(linear_index(i, shape),)]
        return lang.select(lang.logical_and(*inside), element, zero) if inside else element

    return compute(wanted, of, name=f"{stem(ctx)}_out")


@operator("Col2Im", kind=Kind.OPAQUE, static=(1, 2))
def col2im(ctx: Context, x: Operand, image: Operand, block: Operand) -> Operand:
    """Images from columns of blocks: each pixel the sum of the block elements that cover it."""
    sizes, kernel = ctx.static_ints(1), ctx.static_ints(2)
    rank = len(sizes)
    sane = len(x.shape) == 3 and len(kernel) == rank and min(*sizes, *kernel) > 0
    ctx.require(sane, "image and block must have positive sizes, one for each axis")
    dilations, strides = ctx.integers("dilations", (1,) * rank), ctx.integers("strides", (1,) * rank)
    pads = ctx.integers("pads", (0,) * (2 * rank))
    fits = len(dilations) == len(strides) == rank and len(pads) == 2 * rank
    ctx.require(fits and min(*dilations, *strides) > 0, "an entry for each axis, steps positive")
    counts = [
        (sizes[a] + pads[a] + pads[a + rank] - dilations[a] * (kernel[a] - 1) - 1) // strides[a] + 1
        for a in range(rank)
    ]
    width = math.prod(kernel)
    ctx.require(x.shape[1] % width == 0 and x.shape[2] == math.prod(counts), "columns do not fit the image")
    reduced = [lang.reduce_axis(size, f"k{axis}") for axis, size in enumerate(kernel)]

    def of(n: Ix, c: Ix, *o: Ix) -> Scalar:
        conditions = []
        place = []
        for axis, at in enumerate(o):
            reach = at + pads[axis] - reduced[axis] * dilations[axis]
            conditions += [reach >= 0, reach // strides[axis] < counts[axis]]
            if strides[axis] > 1:
                conditions.append(reach % strides[axis] == 0)
            place.append(lang.clamp(reach // strides[axis], 0, counts[axis] - 1))
        column = c * width + linear_index(reduced, kernel)
        element = x[(n, column, linear_index(place, counts))]
        return lang.sum(element, axis=reduced, where=lang.logical_and(*conditions))

    return compute((x.shape[0], x.shape[1] // width, *sizes), of, name=stem(ctx))
