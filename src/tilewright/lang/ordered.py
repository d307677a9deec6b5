"""Ordered definitions: in-place updates, scans (a tensor that reads itself), and scatters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tilewright import ir
from tilewright.analysis import update_of
from tilewright.ir import Access, DType, Expr, Index, Load, Stmt, Store
from tilewright.lang.axes import check_name, inferred_axis, ordered_axis, reduce_axis
from tilewright.lang.compute import (
    Shape,
    check_scope,
    finish,
    iters_of,
    parameter_names,
    split_reductions,
    to_pred,
)
from tilewright.lang.conversions import dtype_from, index_of, to_expr
from tilewright.lang.functions import cast, condition_of, maximum, minimum, select
from tilewright.lang.source import Place, here, problem
from tilewright.lang.tensors import Definition, Tensor, TensorName, shape_of
from tilewright.lang.values import Axis, IndexExpr, IndexLike, Scalar, ValueLike
from tilewright.support import counted

#: What an update over reduction axes may combine elements by: operations that may be done in any order.
ACCUMULATE: Final = ("add", "mul", "max", "min")


@dataclass(frozen=True, slots=True)
class Write:
    """One assignment of an update: the element, its new value, and where it happens."""

    indices: tuple[IndexLike | Scalar, ...]
    value: ValueLike
    where: Scalar | None = field(default=None)


def write(
    indices: tuple[IndexLike | Scalar, ...] | IndexLike | Scalar,
    value: ValueLike,
    where: Scalar | None = None,
) -> Write:
    """``T[indices] = value`` where the condition holds, as the result of an update's function."""
    return Write(indices if isinstance(indices, tuple) else (indices,), value, where)


def update(
    tensor: Tensor,
    axes: Sequence[Axis | IndexLike],
    fn: Callable[..., Write | Sequence[Write] | ValueLike],
    name: str | None = None,
    *,
    hint: str = "t",
) -> Tensor:
    """The tensor after ordered changes: for each point of ``axes``, in order, what ``fn`` says.

    ``fn(t, i, j, …)`` reads the tensor as it stands by ``t[…]`` and returns ``lang.write(indices, value)``,
    several of them (done one after another), or a value for ``t[i, j, …]``. Axes are extents or
    ``lang.ordered_axis`` (visited in order, the last fastest), ``lang.axis`` (any order: each write and
    each read of ``t`` then has that axis as one and the same index) and ``lang.reduce_axis`` (any order: the
    function then returns one write of ``t[where]`` combined with a value by ``+``, ``*``, ``lang.maximum`` or
    ``lang.minimum``, such as a histogram's; schedules may reorder it and ``rfactor`` gives threads copies).
    Reductions in values (``lang.sum``) are computed before the update. The given tensor keeps its contents;
    where nobody else needs them they are overwritten in place, and of ``lang.undef`` there are none.

    Raises ProgramError for a function of other indices, writes of another rank or type, writes of several
    axes' values to one element, unless these axes are ordered, and what is no accumulation over
    reduction axes.
    """
    at = here()
    names = parameter_names(fn, len(axes), skip=1)
    if len(names) != len(axes):
        raise problem(
            f"the function's indices are ({', '.join(names)}) and {len(axes)} axes are given",
            "fn(t, i, j, …): the tensor, then one index an axis",
        )
    iterators = tuple(
        a if isinstance(a, Axis) else ordered_axis(a, n) for a, n in zip(axes, names, strict=True)
    )
    box = [inferred_axis(f"d{n}") for n in range(tensor.rank)] if tensor.inferred else None
    extents = tensor.extents if box is None else tuple(a.hi - a.lo for a in box)
    origin = None if box is None else tuple(a.lo for a in box)
    out = Tensor(extents, tensor.dtype, _checked(name), tensor.name or hint, None, at, origin)
    result = fn(out, *iterators)
    writes = list(result) if isinstance(result, tuple | list) else [result]
    body = _body(out, iterators, writes, at)
    _check_parallel(out, iterators, body, at)
    _check_accumulation(out, iterators, body, at)
    base = None if tensor.undefined else tensor
    definition = Definition(iters_of(iterators), body, None, at, base=base)
    finish(definition, [out])
    return out


def _checked(name: str | None) -> str | None:
    return None if name is None else check_name(name, "tensor")


def _body(out: Tensor, iterators: tuple[Axis, ...], writes: Sequence[object], at: Place) -> Stmt:
    steps: list[Stmt] = []
    for w in writes:
        if not isinstance(w, Write):
            if len(iterators) != out.rank:
                raise problem(
                    f"the update has {len(iterators)} axes, the tensor {counted(out.rank, 'dimension')}",
                    "return lang.write(indices, value)",
                )
            w = Write(iterators, w)  # type: ignore[arg-type]  # `to_expr` below checks it
        value = to_expr(w.value, out.dtype, "the value of the update")
        where = tuple(index_of(i, f"index {n} of {out.label}") for n, i in enumerate(w.indices))
        if len(where) != out.rank:
            raise problem(f"{out.label} has {out.rank} dimensions and is written with {len(where)} indices")
        condition = None if w.where is None else condition_of(w.where, "`where` of lang.write")
        exprs = [value, *(ir.OfIndex(i, ir.I64) for i in where), *([] if condition is None else [condition])]
        check_scope(iterators, (), exprs, at)
        value, *rest = split_reductions(out, exprs, iterators, at)
        where = tuple(e.index for e in rest[: out.rank] if isinstance(e, ir.OfIndex))
        condition = None if condition is None else rest[-1]
        step: Stmt = Store((Access(out.ref(here()), where, value),))
        steps.append(step if condition is None else ir.If(to_pred(condition), step))
    if not steps:
        raise problem("the update writes nothing", "return lang.write(indices, value)", at)
    return ir.seq(*steps)


def _check_parallel(out: Tensor, iterators: tuple[Axis, ...], body: Stmt, at: Place) -> None:
    accesses = [i for b, i in ir.stmt_writes(body) if b == out.ref()]
    accesses += [ld.indices for ld in ir.stmt_loads(body) if ld.buffer == out.ref()]
    for a in iterators:
        if a.kind != "par":
            continue
        if not any(all(idx[d] == a.index for idx in accesses) for d in range(out.rank)):
            raise problem(
                f"the axis {a.name!r} of the update is not ordered and its values touch one element",
                f"make it lang.ordered_axis(…), or index {out.label} by it in every access",
                at,
            )


def _check_accumulation(out: Tensor, iterators: tuple[Axis, ...], body: Stmt, at: Place) -> None:
    """Refuse reduction axes of an update whose result depends on their order."""
    reduced = [a.name for a in iterators if a.kind == "red"]
    if not reduced:
        return
    _, step = ir.condition_of(body)
    if isinstance(step, Store) and len(step.writes) == 1:
        update = update_of(step.writes[0])
        reads = [ld for ld in ir.stmt_loads(body) if ld.buffer == out.ref()]
        if (
            update is not None
            and update.op in ACCUMULATE
            and all(ld == update.old for ld in reads)
            and update.old not in ir.loads(update.term)
        ):
            return
    raise problem(
        f"the update is in no order along the reduction axis {reduced[0]!r}, and its result depends on it",
        "return lang.write(where, t[where] + value), or with lang.maximum or lang.minimum; "
        "else use lang.ordered_axis",
        at,
    )


def scan(
    shape: Shape,
    fn: Callable[..., ValueLike],
    axis: int = 0,
    name: str | None = None,
    dtype: DType | str = "f32",
    *,
    reverse: bool = False,
    hint: str = "t",
) -> Tensor:
    """The tensor whose element is ``fn(t, i, j, …)``, where ``t`` is the tensor itself.

    Elements are made in increasing order along ``axis``; ``t`` may be read at smaller indices of it:
    ``lang.scan((n,), lambda t, i: lang.select(i == 0, x[0], a * t[i - 1] + x[i]))``. Reads below the first
    element must hide behind ``lang.select``. With ``reverse`` in decreasing order, reading larger indices.

    Raises ProgramError for a function of other indices, an axis that the shape does not have, and reads of
    ``t`` that are not known to be made before.
    """
    at = here()
    extents = shape_of(shape)
    names = parameter_names(fn, len(extents), skip=1)
    if len(names) != len(extents):
        raise problem(
            f"the function's indices are ({', '.join(names)}) "
            f"and the shape has {counted(len(extents), 'dimension')}",
            "fn(t, i, j, …): the tensor, then one index a dimension",
        )
    if not -len(extents) <= axis < len(extents):
        raise problem(f"axis {axis} of a tensor of {len(extents)} dimensions")
    axis %= len(extents)
    iterators = [
        Axis(ir.ZERO, e, check_name(n, "axis"), "ord" if d == axis else "par")
        for d, (n, e) in enumerate(zip(names, extents, strict=True))
    ]
    out = Tensor(extents, dtype_from(dtype), _checked(name), hint, None, at)
    # backwards, step t makes the element extent - 1 - t
    places = [IndexExpr(a.hi - 1 - a.index) if reverse and d == axis else a for d, a in enumerate(iterators)]
    value = to_expr(fn(out, *places), out.dtype, "the result of the function given to lang.scan")
    check_scope(iterators, (), [value], at)
    (value,) = split_reductions(out, [value], tuple(iterators), at)
    where = tuple(p.index for p in places)
    own = [ld for ld in ir.loads(value) if ld.buffer == out.ref()]
    _check_earlier(out, own, axis, iterators, where[axis], reverse)
    if any(i != where[d] for ld in own for d, i in enumerate(ld.indices) if d != axis):
        # an element needs others of earlier steps: the ordered axis goes outermost
        iterators = [iterators[axis], *iterators[:axis], *iterators[axis + 1 :]]
    body = Store((Access(out.ref(), where, value),))
    finish(Definition(iters_of(iterators), body, None, at), [out])
    return out


def _check_earlier(
    out: Tensor, own: list[Load], axis: int, iterators: list[Axis], at: Index, reverse: bool
) -> None:
    t = iterators[axis]
    env: dict[str, tuple[Index, Index]] = {a.key: (a.lo, a.hi - 1) for a in iterators}
    for ld in own:
        gap = ld.indices[axis] - at if reverse else at - ld.indices[axis]
        if not ir.prove_ge0(gap - 1, env):
            place = ld.buffer.place if isinstance(ld.buffer, TensorName) else None
            raise problem(
                f"the scan reads an element of {out.label} that is not known to be made before",
                f"read it at larger indices {t.name}, e.g. {t.name} + 1"
                if reverse
                else f"read it at smaller indices {t.name}, e.g. {t.name} - 1",
                place,
            )


_COMBINE: Final[dict[str, Callable[[Scalar, Scalar], Scalar]]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": lambda a, b: maximum(a, b),
    "min": lambda a, b: minimum(a, b),
}


def scatter(
    init: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int = 0,
    reduction: Literal["add", "mul", "max", "min"] | None = None,
    name: str | None = None,
) -> Tensor:
    """``init`` with ``t[…, indices[p], …]`` set to, or combined with, ``updates[p]`` for all ``p`` in order.

    ``indices`` (an integer tensor) and ``updates`` have one shape, of the rank of ``init``; the index stands
    in dimension ``axis``, the others are those of ``p``. Negative indices count from the end; those out of
    range are clamped. Of equal indices the last one wins, or all are combined (floats in order).

    Raises ProgramError for ranks and extents that do not fit each other, indices that are no integers, and
    an unknown ``reduction``.
    """
    if not (init.rank == indices.rank == updates.rank):
        raise problem(
            f"lang.scatter of ranks {init.rank}, {indices.rank} and {updates.rank}", "they must agree"
        )
    if not -init.rank <= axis < init.rank:
        raise problem(f"axis {axis} of a tensor of {init.rank} dimensions")
    if not indices.dtype.is_integer:
        raise problem(f"the indices of lang.scatter are {indices.dtype}", "they must be integers")
    if indices.extents != updates.extents:
        raise problem("the indices and updates of lang.scatter have different shapes")
    axis %= init.rank
    names = [f"p{d}" for d in range(init.rank)]
    axes = [scatter_axis(reduction, init)(e, n) for e, n in zip(updates.extents, names, strict=True)]

    def step(t: Tensor, *p: IndexExpr) -> Write:
        where = (*p[:axis], wrapped(indices[p], init.shape[axis]), *p[axis + 1 :])
        new = updates[p]
        return write(where, new if reduction is None else combined(reduction, t[where], new))

    return update(init, axes, step, name)


def scatter_axis(reduction: str | None, init: Tensor) -> Callable[[IndexLike, str], Axis]:
    """What makes the axes of a scatter: integers are combined in any order, everything else in order."""
    return reduce_axis if reduction is not None and init.dtype.is_integer else ordered_axis


def combined(reduction: str, old: Scalar, new: Scalar) -> Scalar:
    """An element of a scatter after one update; raises ProgramError for an unknown ``reduction``."""
    if reduction not in _COMBINE:
        raise problem(f"lang.scatter has no reduction {reduction!r}", f"one of {', '.join(_COMBINE)}")
    return _COMBINE[reduction](old, new)


def wrapped(x: Scalar, extent: IndexExpr) -> IndexExpr:
    """An index from data: negative ones count from the end, the result is clamped to ``[0, extent)``."""
    wide = cast(x, "i64")
    positive: Expr = select(wide < 0, wide + extent, wide).expr
    return IndexExpr(ir.imin(ir.imax(ir.index(ir.Opaque(positive)), 0), extent.index - 1))
