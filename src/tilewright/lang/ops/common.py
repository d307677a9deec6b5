"""Helpers of the operators: names of stages, broadcasting, argument checks."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import ir
from tilewright.lang.source import problem
from tilewright.lang.values import IndexExpr


def stem(name: str | None, fallback: str) -> str:
    """The beginning of the names of an operator's inner stages."""
    return name or fallback


def axis_of(axis: int, rank: int, what: str) -> int:
    """A dimension counted from 0; negative ones count from the end.

    Raises ProgramError where the tensor has no such dimension.
    """
    if not -rank <= axis < rank:
        raise problem(f"axis {axis} of {what} of {rank} dimensions")
    return axis % rank


def axes_of(axes: Sequence[int] | int | None, rank: int, what: str) -> tuple[int, ...]:
    """Different dimensions in increasing order; all of them for ``None``.

    Raises ProgramError where the tensor lacks one of them, or one is named twice.
    """
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    found = sorted({axis_of(a, rank, what) for a in given})
    if len(found) != len(given):
        raise problem(f"an axis of {what} is named twice: {list(given)}")
    return tuple(found)


def is_one(extent: IndexExpr) -> bool:
    """Whether an extent is the constant 1."""
    return extent.index.is_const and extent.index.as_int() == 1


def same(a: IndexExpr, b: IndexExpr) -> bool:
    """Whether two extents are known to be equal."""
    return a.index == b.index


def constant(extent: IndexExpr, what: str) -> int:
    """An extent that has to be a constant.

    Raises ProgramError where it is symbolic.
    """
    if not extent.index.is_const:
        raise problem(f"{what} is symbolic ({extent.index})", "it has to be a constant")
    return extent.index.as_int()


def broadcast_shape(shapes: Sequence[Sequence[IndexExpr]], what: str) -> tuple[IndexExpr, ...]:
    """The common shape of several under numpy's broadcasting rules.

    Raises ProgramError where two extents differ and neither is 1.
    """
    rank = max((len(s) for s in shapes), default=0)
    out: list[IndexExpr] = []
    for d in range(rank):
        extent = IndexExpr(ir.ONE)
        for s in shapes:
            at = d - (rank - len(s))
            if at < 0 or is_one(s[at]):
                continue
            if not is_one(extent) and not same(extent, s[at]):
                raise problem(
                    f"the shapes of {what} do not fit: {s[at].index} beside {extent.index} in dimension {d}",
                    "extents must agree or be 1, counted from the last",
                )
            extent = s[at]
        out.append(extent)
    return tuple(out)


def broadcast_indices(shape: Sequence[IndexExpr], indices: Sequence[IndexExpr]) -> tuple[IndexExpr, ...]:
    """The element that stands at ``indices`` of a larger shape which ``shape`` is broadcast to."""
    last = indices[len(indices) - len(shape) :]
    return tuple(IndexExpr(ir.ZERO) if is_one(s) else i for s, i in zip(shape, last, strict=True))


def pairs(padding: int | Sequence[int | tuple[int, int]], rank: int) -> tuple[tuple[int, int], ...]:
    """Padding before and after each spatial dimension, from one number, one a dimension, or pairs.

    Raises ProgramError for another number of entries.
    """
    items = [padding] * rank if isinstance(padding, int) else list(padding)
    if len(items) != rank:
        raise problem(f"{len(items)} paddings for {rank} spatial dimensions")
    return tuple((p, p) if isinstance(p, int) else (p[0], p[1]) for p in items)


def per_dimension(value: int | Sequence[int], rank: int, what: str) -> tuple[int, ...]:
    """One positive number a dimension, from one for all or a sequence.

    Raises ProgramError for another number of entries, and for numbers below 1.
    """
    items = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(items) != rank or any(v < 1 for v in items):
        raise problem(f"{what} is {value}", f"give a positive integer or {rank} of them")
    return items


def spatial_names(rank: int) -> tuple[str, ...]:
    """``w``, ``h w`` or ``d h w``; ``s0 s1 …`` beyond three dimensions."""
    return ("d", "h", "w")[3 - rank :] if rank <= 3 else tuple(f"s{n}" for n in range(rank))
