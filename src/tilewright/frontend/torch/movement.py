"""Operators of ATen that move elements, and those that make tensors of known ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tilewright.frontend.torch.writer import Made, Number, Operand, Rules, Value, Writer
from tilewright.ir import dtype_of, is_open


def viewed(w: Writer, self: Value, *_: Any, **__: Any) -> Made:
    """The elements in their order, under the shape that torch says."""
    return w.reshape(self, w.out.sizes)


def permuted(w: Writer, self: Value, dims: Sequence[int]) -> Made:
    """The axes in another order."""
    return w.transpose(self, [w.axis(dim, self.rank) for dim in dims])


def swapped(w: Writer, self: Value, dim0: int = 0, dim1: int = 1) -> Made:
    """Two axes in each other's place."""
    order = [*range(self.rank)]
    if len(order) > 1:
        a, b = w.axis(dim0, self.rank), w.axis(dim1, self.rank)
        order[a], order[b] = order[b], order[a]
    return w.transpose(self, order)


def bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Where a slice of an axis begins and ends, both inside of it."""
    start, end = 0 if start is None else start, size if end is None else end
    start, end = (n + size if n < 0 else n for n in (start, end))
    start = min(max(start, 0), size)
    return start, min(max(end, start), size)


def sliced(
    w: Writer, self: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Made:
    """Every so many elements of a part of an axis."""
    axis = w.axis(dim, self.rank)
    count = w.out.sizes[axis]
    if is_open(count) and not is_open(start) and (start or 0) >= 0:
        # torch knows where it ends
        return w.slice(self, axis, start or 0, (start or 0) + count * step, step)
    return w.slice(self, axis, *bounds(self.shape[axis], start, end), step)


def selected(w: Writer, self: Value, dim: int, index: int) -> Made:
    """One element of an axis, which goes."""
    axis = w.axis(dim, self.rank)
    at = index + self.shape[axis] if index < 0 else index
    return w.reshape(w.slice(self, axis, at, at + 1), w.out.sizes)


def replaced(w: Writer, x: Value, part: Value, axis: int, start: int, step: int = 1) -> Value:
    """A tensor with another in place of as many elements of an axis, from a first one on."""
    size, count = x.shape[axis], part.shape[axis]
    part = w.to(part, x.dtype)
    if not count:
        return x
    if step == 1:
        stop = start + count
        before = [w.slice(x, axis, 0, start)] if start else []
        after = [w.slice(x, axis, stop, size)] if stop != size else []
        parts = [*before, part, *after]
        return part if len(parts) == 1 else w.add("Concat", *parts, axis=axis)
    # each place is read from the new elements or the old ones
    table = np.arange(size)
    table[start::step][:count] = size + np.arange(count)
    return w.add("Gather", w.add("Concat", x, part, axis=axis), w.constant(table.astype(np.int64)), axis=axis)


def slice_scatter(
    w: Writer,
    self: Value,
    src: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Made:
    """A tensor with another in place of a slice."""
    axis = w.axis(dim, self.rank)
    return replaced(w, self, src, axis, bounds(self.shape[axis], start, end)[0], step)


def select_scatter(w: Writer, self: Value, src: Value, dim: int, index: int) -> Made:
    """A tensor with another in place of one element of an axis."""
    axis = w.axis(dim, self.rank)
    at = index + self.shape[axis] if index < 0 else index
    shape = [1 if a == axis else n for a, n in enumerate(self.shape)]
    return replaced(w, self, w.expand(w.reshape(src, shape), shape), axis, at)


def joined(w: Writer, tensors: Sequence[Value], dim: int = 0) -> Made:
    """Tensors one after another along an axis; empty vectors, which torch still allows, are left out."""
    parts = [x for x in tensors if x.shape != (0,)] or list(tensors[:1])
    parts = [w.to(x, w.out.dtype) for x in parts]
    return parts[0] if len(parts) == 1 else w.add("Concat", *parts, axis=w.axis(dim, parts[0].rank))


def split(w: Writer, self: Value, split_sizes: Sequence[int], dim: int = 0) -> Made:
    """Consecutive parts of an axis."""
    axis, at, parts = w.axis(dim, self.rank), 0, []
    for size in split_sizes:
        parts.append(w.slice(self, axis, at, at + size))
        at += size
    return parts


def repeated(w: Writer, self: Value, repeats: Sequence[int]) -> Made:
    """A tensor again and again along each axis."""
    x = w.reshape(self, (1,) * (len(repeats) - self.rank) + self.shape)
    return x if all(n == 1 for n in repeats) else w.add("Tile", x, w.ints(repeats))


def flipped(w: Writer, self: Value, dims: Sequence[int]) -> Made:
    """Axes backwards."""
    axes = sorted({w.axis(dim, self.rank) for dim in dims}) if self.rank else []
    if not axes or 0 in self.shape:
        return self
    sizes = [self.shape[axis] for axis in axes]
    ends = w.ints([-size - 1 for size in sizes])
    return w.add(
        "Slice", self, w.ints([size - 1 for size in sizes]), ends, w.ints(axes), w.ints([-1] * len(axes))
    )


def padded(w: Writer, self: Value, pad: Sequence[int], value: Number = 0) -> Made:
    """Borders of one value, the last axis first in what says how wide; negative ones cut."""
    before, after = [0] * self.rank, [0] * self.rank
    for at in range(len(pad) // 2):
        before[-1 - at], after[-1 - at] = pad[2 * at], pad[2 * at + 1]
    return w.add("Pad", self, w.ints([*before, *after]), w.number(value, self.dtype), mode="constant")


def diagonal(w: Writer, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Made:
    """The elements of two axes where the second is ahead by an offset, as the last axis."""
    a, b = w.axis(dim1, self.rank), w.axis(dim2, self.rank)
    rest = [axis for axis in range(self.rank) if axis not in (a, b)]
    x = w.transpose(self, [*rest, a, b])
    rows, columns = x.shape[-2:]
    count = w.out.sizes[-1]
    flat = w.reshape(x, [*x.shape[:-2], rows * columns])
    first = offset if offset >= 0 else -offset * columns
    places = first + np.arange(count) * (columns + 1)
    if not count:
        return w.slice(flat, flat.rank - 1, 0, 0)
    return w.add("Gather", flat, w.constant(places.astype(np.int64)), axis=flat.rank - 1)


def unfolded(w: Writer, self: Value, dimension: int, size: int, step: int) -> Made:
    """Windows of an axis, their elements as the last axis."""
    w.require(self.rank > 0, "windows of one number")
    axis = w.axis(dimension, self.rank)
    count = w.out.sizes[axis]
    places = np.arange(count)[:, None] * step + np.arange(size)[None, :]
    made = w.add("Gather", self, w.constant(places.astype(np.int64)), axis=axis)
    rest = [at for at in range(made.rank) if at != axis + 1]
    return w.transpose(made, [*rest, axis + 1])


def diagonal_scatter(
    w: Writer, self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Made:
    """A tensor with another in place of a diagonal of two axes."""
    a, b = w.axis(dim1, self.rank), w.axis(dim2, self.rank)
    rest = [axis for axis in range(self.rank) if axis not in (a, b)]
    order = [*rest, a, b]
    x = w.transpose(self, order)
    rows, columns = x.shape[-2:]
    count = src.shape[-1]
    if not count:
        return self
    first = offset if offset >= 0 else -offset * columns
    table = np.arange(rows * columns)
    table[first + np.arange(count) * (columns + 1)] = rows * columns + np.arange(count)
    flat = w.reshape(x, [*x.shape[:-2], rows * columns])
    both = w.add("Concat", flat, w.to(src, x.dtype), axis=flat.rank - 1)
    made = w.add("Gather", both, w.constant(table.astype(np.int64)), axis=flat.rank - 1)
    return w.transpose(w.reshape(made, x.shape), [order.index(axis) for axis in range(self.rank)])


def strided(
    w: Writer, self: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Made:
    """Elements by their places in a row-major tensor's memory."""
    places = np.array(storage_offset or 0, np.int64)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        shape = [count if at == axis else 1 for at in range(len(size))]
        places = places + (np.arange(count, dtype=np.int64) * step).reshape(shape)
    total = math.prod(self.shape)
    if not math.prod(size):
        return w.full(size, 0, self.dtype)
    w.require(bool((places >= 0).all() and (places < total).all()), "it reads beyond its tensor")
    flat = w.reshape(self, [total])
    return w.add("Gather", flat, w.constant(np.ascontiguousarray(np.broadcast_to(places, size))), axis=0)


def arange(w: Writer, start: Number, end: Number, step: Number = 1, **_: Any) -> Made:
    """Numbers in even steps."""
    kind = dtype_of(w.out.dtype)
    count = w.out.sizes[0]
    if kind.is_float:
        made = start + np.arange(count, dtype=np.float64) * step
        return w.constant(made.astype(kind.numpy))
    return w.constant((int(start) + np.arange(count) * int(step)).astype(kind.numpy))


def full(w: Writer, like: object, fill_value: Operand = 0, **_: Any) -> Made:
    """A tensor of one value, of a size or as another tensor is."""
    return w.expand(w.to(fill_value, w.out.dtype), w.out.sizes)


def scalar_tensor(w: Writer, s: Operand, **_: Any) -> Made:
    """A tensor of rank 0."""
    return w.to(s, w.out.dtype)


def zeros(w: Writer, *_: Any, **__: Any) -> Made:
    """Zeros; in place of memory whose contents nobody has said, too."""
    return w.full(w.out.sizes, 0, w.out.dtype)


def triangle(upper: bool) -> Any:
    """The elements on one side of a diagonal, zeros elsewhere."""

    def rule(w: Writer, self: Value, diagonal: int = 0) -> Made:
        return w.add("Trilu", self, w.number(diagonal, "i64"), upper=int(upper))

    return rule


def places_of_triangle(upper: bool) -> Any:
    """The rows and columns of the elements on one side of a diagonal."""

    def rule(w: Writer, row: int, col: int, offset: int = 0, **_: Any) -> Made:
        places = (np.triu_indices if upper else np.tril_indices)(row, offset, col)
        return w.constant(np.stack(places).astype(dtype_of(w.out.dtype).numpy))

    return rule


RULES: Final[Rules] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "view.default",
                "_unsafe_view.default",
                "reshape.default",
                "squeeze.default",
                "squeeze.dim",
                "squeeze.dims",
                "view_copy.default",
                "unsqueeze.default",
            ),
            viewed,
        ),
        "permute.default": permuted,
        "permute_copy.default": permuted,
        "transpose.int": swapped,
        "t.default": swapped,
        "slice.Tensor": sliced,
        "select.int": selected,
        "slice_scatter.default": slice_scatter,
        "select_scatter.default": select_scatter,
        "cat.default": joined,
        "split_with_sizes.default": split,
        "repeat.default": repeated,
        "flip.default": flipped,
        "constant_pad_nd.default": padded,
        "diagonal.default": diagonal,
        "as_strided.default": strided,
        "diagonal_scatter.default": diagonal_scatter,
        "unfold.default": unfolded,
        "arange.start_step": arange,
        **dict.fromkeys(("full.default", "full_like.default", "fill.Scalar", "fill.Tensor"), full),
        "scalar_tensor.default": scalar_tensor,
        **dict.fromkeys(("empty.memory_format", "empty_strided.default", "empty_permuted.default"), zeros),
        "tril.default": triangle(False),
        "triu.default": triangle(True),
        "tril_indices.default": places_of_triangle(False),
        "triu_indices.default": places_of_triangle(True),
    }
)
