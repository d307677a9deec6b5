"""Moving elements about: transposes, reshapes, slices, concatenation, padding, gathers, scatters."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import ir
from tilewright.lang.boundary import boundary
from tilewright.lang.compute import compute
from tilewright.lang.functions import select
from tilewright.lang.ops.common import axis_of, broadcast_indices, constant, is_one, same
from tilewright.lang.ordered import Write, combined, scatter_axis, update, wrapped, write
from tilewright.lang.source import problem
from tilewright.lang.tensors import Tensor, shape_of
from tilewright.lang.values import IndexExpr, IndexLike, Scalar, ValueLike


def transpose(x: Tensor, order: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """Dimension ``n`` of the result is dimension ``order[n]`` of ``x``; reversed for ``None``.

    Raises ProgramError where ``order`` is no order of the dimensions.
    """
    perm = tuple(range(x.rank))[::-1] if order is None else tuple(order)
    if sorted(perm) != list(range(x.rank)):
        raise problem(f"{perm} does not order {x.rank} dimensions")

    def element(*i: IndexExpr) -> Scalar:
        return x[tuple(i[perm.index(d)] for d in range(x.rank))]

    return compute(tuple(x.shape[d] for d in perm), element, name, hint="transpose")


def reshape(x: Tensor, shape: Sequence[IndexLike], name: str | None = None) -> Tensor:
    """The elements of ``x`` in row-major order with other extents.

    Runs of dimensions with the same number of elements are matched, so that indices stay simple; inside a run
    that is not one dimension on both sides the extents must be constants.
    """
    new = tuple(IndexExpr(s) for s in shape_of(tuple(shape)))
    runs = _runs(x.shape, new)

    def element(*i: IndexExpr) -> Scalar:
        out: list[IndexExpr] = []
        for old_dims, new_dims in runs:
            if len(old_dims) == 1 and len(new_dims) == 1:
                out.append(i[new_dims[0]])
                continue
            flat = IndexExpr(ir.ZERO)
            for d in new_dims:
                flat = flat * constant(new[d], "an extent of a reshape") + i[d]
            where: list[IndexExpr] = []
            for n, d in enumerate(reversed(old_dims)):
                size = constant(x.shape[d], "an extent of a reshape")
                where.append(flat if n == len(old_dims) - 1 else flat % size)
                flat = flat // size if size > 0 else flat
            out.extend(reversed(where))
        return x[tuple(out)]

    return compute(new, element, name, hint="reshape")


def _runs(old: Sequence[IndexExpr], new: Sequence[IndexExpr]) -> list[tuple[list[int], list[int]]]:
    """Shortest runs of dimensions of both shapes that hold equally many elements."""
    out: list[tuple[list[int], list[int]]] = []
    a = b = 0
    while a < len(old) or b < len(new):
        left: list[int] = []
        right: list[int] = []
        if a < len(old) and b < len(new) and same(old[a], new[b]):
            out.append(([a], [b]))
            a, b = a + 1, b + 1
            continue
        size_left = size_right = 1
        while not (left or right) or size_left != size_right:
            if a < len(old) and (size_left <= size_right or b == len(new)):
                size_left *= constant(old[a], "an extent of a reshape")
                left.append(a)
                a += 1
            elif b < len(new):
                size_right *= constant(new[b], "an extent of a reshape")
                right.append(b)
                b += 1
            else:
                shapes = [", ".join(str(s.index) for s in side) for side in (old, new)]
                raise problem(f"a reshape from ({shapes[0]}) to ({shapes[1]}) changes the number of elements")
        out.append((left, right))
    return out


def expand(x: Tensor, shape: Sequence[IndexLike], name: str | None = None) -> Tensor:
    """``x`` broadcast to a larger shape.

    Raises ProgramError where the shape has fewer dimensions, or the extents do not broadcast.
    """
    new = tuple(IndexExpr(s) for s in shape_of(tuple(shape)))
    if len(new) < x.rank:
        raise problem(f"{x.label} has {x.rank} dimensions and cannot become {len(new)}")
    for s, t in zip(x.shape, new[len(new) - x.rank :], strict=True):
        if not is_one(s) and not same(s, t):
            raise problem(f"extent {s.index} of {x.label} cannot become {t.index}")

    def element(*i: IndexExpr) -> Scalar:
        return x[broadcast_indices(x.shape, i)]

    return compute(new, element, name, hint="expand")


def tile(x: Tensor, repeats: Sequence[int], name: str | None = None) -> Tensor:
    """``x`` repeated along each dimension."""

    def element(*i: IndexExpr) -> Scalar:
        where = [
            at if r == 1 else at % constant(s, "a repeated extent")
            for at, r, s in zip(i, repeats, x.shape, strict=True)
        ]
        return x[tuple(where)]

    shape = tuple(s * r for s, r in zip(x.shape, repeats, strict=True))
    return compute(shape, element, name, hint="tile")


def strided_slice(
    x: Tensor,
    starts: Sequence[IndexLike],
    shape: Sequence[IndexLike],
    steps: Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """``x[start + i·step]`` in every dimension, ``shape`` elements of it; steps may be negative, not 0."""
    step = tuple(steps or (1,) * x.rank)

    def element(*i: IndexExpr) -> Scalar:
        return x[tuple(at * s + b for at, s, b in zip(i, step, starts, strict=True))]

    return compute(tuple(shape), element, name, hint="slice")


def concat(tensors: Sequence[Tensor], axis: int = 0, name: str | None = None) -> Tensor:
    """Tensors one after another along ``axis``.

    Raises ProgramError where the other extents differ.
    """
    first = tensors[0]
    d = axis_of(axis, first.rank, "a concatenation")
    ends: list[IndexExpr] = []
    for t in tensors:
        if t.rank != first.rank or not all(same(t.shape[n], first.shape[n]) for n in range(t.rank) if n != d):
            raise problem(f"{t.label} does not fit beside {first.label} along dimension {d}")
        ends.append(t.shape[d] if not ends else ends[-1] + t.shape[d])

    def element(*i: IndexExpr) -> Scalar:
        def part(n: int) -> Scalar:
            start = ends[n - 1] if n else IndexExpr(ir.ZERO)
            return tensors[n][(*i[:d], i[d] - start, *i[d + 1 :])]

        out = part(len(tensors) - 1)
        for n in range(len(tensors) - 2, -1, -1):
            out = select(i[d] < ends[n], part(n), out)
        return out

    shape = (*first.shape[:d], ends[-1], *first.shape[d + 1 :])
    return compute(shape, element, name, hint="concat")


def pad(
    x: Tensor,
    padding: Sequence[tuple[int, int]],
    value: ValueLike | None = None,
    mode: str = "constant",
    name: str | None = None,
) -> Tensor:
    """``x`` with elements before and after each dimension, see ``lang.boundary``; negative ones cut off."""
    view = boundary(x, value, mode)

    def element(*i: IndexExpr) -> Scalar:
        return view[tuple(at - lo for at, (lo, _) in zip(i, padding, strict=True))]

    shape = tuple(s + lo + hi for s, (lo, hi) in zip(x.shape, padding, strict=True))
    return compute(shape, element, name, hint="pad")


def gather(x: Tensor, indices: Tensor, axis: int = 0, name: str | None = None) -> Tensor:
    """``x`` with dimension ``axis`` replaced by those of ``indices`` (negative from the end; clamped)."""
    d = axis_of(axis, x.rank, "a gather")

    def element(*i: IndexExpr) -> Scalar:
        at = wrapped(indices[i[d : d + indices.rank]], x.shape[d])
        return x[(*i[:d], at, *i[d + indices.rank :])]

    shape = (*x.shape[:d], *indices.shape, *x.shape[d + 1 :])
    return compute(shape, element, name, hint="gather")


def gather_elements(x: Tensor, indices: Tensor, axis: int = 0, name: str | None = None) -> Tensor:
    """``x[…, indices[p], …]`` at each point ``p`` of ``indices`` (negative from the end; clamped)."""
    d = axis_of(axis, x.rank, "a gather")

    def element(*i: IndexExpr) -> Scalar:
        return x[(*i[:d], wrapped(indices[i], x.shape[d]), *i[d + 1 :])]

    return compute(indices.shape, element, name, hint="gather_elements")


def gather_nd(x: Tensor, indices: Tensor, batch: int = 0, name: str | None = None) -> Tensor:
    """``x`` at the index tuples in the last dimension of ``indices``, after ``batch`` common dimensions."""
    width = constant(indices.shape[-1], "the length of an index tuple")
    outer = indices.rank - 1

    def element(*i: IndexExpr) -> Scalar:
        points = [
            wrapped(indices[(*i[:outer], IndexExpr(ir.index(n)))], x.shape[batch + n]) for n in range(width)
        ]
        return x[(*i[:batch], *points, *i[outer:])]

    shape = (*indices.shape[:-1], *x.shape[batch + width :])
    return compute(shape, element, name, hint="gather_nd")


def scatter_nd(
    x: Tensor, indices: Tensor, updates: Tensor, reduction: str | None = None, name: str | None = None
) -> Tensor:
    """``x`` with the slices at the index tuples in the last dimension of ``indices`` replaced or combined.

    Updates happen in order, those that combine integers in any; ``reduction`` is add, mul, max or min.
    """
    width = constant(indices.shape[-1], "the length of an index tuple")
    outer = indices.rank - 1

    def step(t: Tensor, *p: IndexExpr) -> Write:
        point = [wrapped(indices[(*p[:outer], IndexExpr(ir.index(n)))], x.shape[n]) for n in range(width)]
        where = (*point, *p[outer:])
        new = updates[p]
        return write(where, new if reduction is None else combined(reduction, t[where], new))

    axes = [scatter_axis(reduction, x)(e, f"p{d}") for d, e in enumerate(updates.extents)]
    return update(x, axes, step, name, hint="scatter_nd")
