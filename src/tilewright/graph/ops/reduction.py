"""Reductions over axes, arg-reductions, global pooling and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright import lang
from tilewright.graph.operand import At, Ix, Operand, Place, compute, scanned
from tilewright.graph.ops.common import (
    Scalar,
    cast,
    convert_tensor,
    insert_axes,
    is_float,
    number,
    share_of,
    size_of,
    stem,
    wide,
)
from tilewright.graph.registry import AxesAsked, Context, Kind, operator


def reduce_over(
    ctx: Context,
    x: Operand,
    axes: Sequence[int],
    combine: Callable[..., Scalar],
    term: Callable[[Scalar], Scalar] = lambda a: a,
    keepdims: bool = True,
    name: str = "",
) -> Operand:
    """The stage that combines `term` of the elements along `axes`, which stay as sizes of one or vanish."""
    rank = len(x.shape)
    kept = [axis for axis in range(rank) if axis not in axes]
    shape = [1 if axis in axes else x.shape[axis] for axis in range(rank)]
    if not keepdims:
        shape = [x.shape[axis] for axis in kept]
    reduced = {axis: lang.reduce_axis(x.shape[axis], f"r{axis}") for axis in axes}

    def of(*index: Ix) -> Scalar:
        outer = [index[axis] for axis in kept] if keepdims else index
        element = term(x[insert_axes(outer, dict(reduced), rank)])
        return combine(element, axis=list(reduced.values())) if reduced else element

    return compute(shape, of, name=name or stem(ctx))


def _axes(ctx: Context, rank: int) -> tuple[int, ...]:
    given = ctx.axes_from("axes", 1, AxesAsked(rank))
    if not given:
        return () if ctx.flag("noop_with_empty_axes", False) else tuple(range(rank))
    return tuple(sorted({ctx.normal_axis(axis, rank) for axis in given}))


@operator(
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
    kind=Kind.REDUCTION,
    static=(1,),
)
def reduce(ctx: Context, x: Operand, axes: Operand | None = None) -> Operand:
    """A reduction over the axes that an attribute or an input names, or over all."""
    over = _axes(ctx, len(x.shape))
    keep = ctx.flag("keepdims", True)
    count = size_of([x.shape[axis] for axis in over])
    op = ctx.node.op.removeprefix("Reduce")
    if op == "Max" or op == "Min":
        if x.dtype == "bool":
            x = convert_tensor(ctx, x, "u8")
            best = reduce_over(ctx, x, over, lang.max if op == "Max" else lang.min, keepdims=keep)
            return compute(best.shape, lambda *i: best[i] != number(0, "u8"), name=f"{stem(ctx)}_bool")
        return _extreme(ctx, x, over, lang.max if op == "Max" else lang.min, keep)
    inner = wide(x.dtype)
    x = convert_tensor(ctx, x, inner)
    if op == "LogSumExp":
        return _log_sum_exp(ctx, x, over, keep)
    combine = lang.prod if op == "Prod" else lang.sum
    terms: dict[str, Callable[[Scalar], Scalar]] = {
        "L1": lang.absolute,
        "L2": lambda a: a * a,
        "SumSquare": lambda a: a * a,
    }
    total = reduce_over(ctx, x, over, combine, terms.get(op, lambda a: a), keep)
    return _finish(ctx, op, total, count, inner)


def _extreme(
    ctx: Context, x: Operand, axes: Sequence[int], combine: Callable[..., Scalar], keep: bool
) -> Operand:
    """The largest or smallest elements; of numbers in half precision they are found in single, exactly."""
    wider = convert_tensor(ctx, x, wide(x.dtype))
    return as_dtype(ctx, reduce_over(ctx, wider, axes, combine, keepdims=keep), x.dtype)


def _finish(ctx: Context, op: str, total: Operand, count: int, inner: str) -> Operand:
    """What follows the sum: the mean's factor, a root, a logarithm; and back to the input's dtype."""
    outer = ctx.type(0).dtype

    def of(*i: Ix) -> Scalar:
        value = total[i]
        if op == "Mean":
            # Integers divide exactly as the standard's evaluator does: through floor division.
            value = (
                value * share_of(count, inner) if is_float(inner) else value // number(max(count, 1), inner)
            )
        elif op == "L2":
            value = (
                lang.sqrt(value)
                if is_float(inner)
                else cast(lang.sqrt(cast(value, inner, "f64")), "f64", inner)
            )
        elif op == "LogSum":
            value = lang.log(value)
        return cast(value, inner, outer)

    if op in ("Mean", "L2", "LogSum") or inner != outer:
        return compute(total.shape, of, name=f"{stem(ctx)}_out")
    return total


def _log_sum_exp(ctx: Context, x: Operand, axes: Sequence[int], keep: bool) -> Operand:
    """log(sum(exp(x - m))) + m with m the maximum, so that no exponential overflows."""
    inner, outer = x.dtype, ctx.type(0).dtype
    if not is_float(inner):
        raise ctx.unsupported(f"{ctx.node.op} of {inner}")
    rank = len(x.shape)
    best = reduce_over(ctx, x, axes, lang.max, name=f"{stem(ctx)}_max")
    # An infinite maximum would make inf - inf below: subtract nothing there.
    shift = compute(
        best.shape,
        lambda *i: lang.select(lang.isinf(best[i]), number(0, inner), best[i]),
        name=f"{stem(ctx)}_shift",
    )

    def centred(*index: Ix) -> Scalar:
        row = tuple(0 if axis in axes else index[axis] for axis in range(rank))
        return lang.exp(x[index] - shift[row])

    powers = compute(x.shape, centred, name=f"{stem(ctx)}_exp")
    total = reduce_over(ctx, powers, axes, lang.sum, keepdims=keep, name=f"{stem(ctx)}_sum")

    def of(*index: Ix) -> Scalar:
        row: Place = index if keep else insert_axes(index, dict.fromkeys(axes, 0), rank)
        return cast(lang.log(total[index]) + shift[row], inner, outer)

    return compute(total.shape, of, name=f"{stem(ctx)}_out")


@operator("ArgMax", "ArgMin", kind=Kind.REDUCTION)
def arg_reduce(ctx: Context, x: Operand) -> Operand:
    """The position of the largest or smallest element along an axis, the first or the last of equals."""
    rank = len(x.shape)
    axis = ctx.axis("axis", rank, 0)
    keep = ctx.flag("keepdims", True)
    last = ctx.flag("select_last_index", False)
    size = x.shape[axis]
    k = lang.reduce_axis(size, "k")
    find = lang.argmax if ctx.node.op == "ArgMax" else lang.argmin
    shape = [1 if a == axis else n for a, n in enumerate(x.shape)]
    ctx.require(size != 0 or 0 in shape, f"the axis {axis} that it searches has no elements")
    if not keep:
        del shape[axis]

    def at(index: Sequence[At]) -> lang.Scalar:
        outer = [i for a, i in enumerate(index) if a != axis] if keep else index
        place: At = size - 1 - k if last else k
        return x[insert_axes(outer, {axis: place}, rank)]

    best = compute(shape, lambda *i: find(at(i), axis=k), name=stem(ctx))
    if not last and best.dtype == "i64":
        return best

    def of(*index: Ix) -> Scalar:
        found = cast(best[index], best.dtype, "i64")
        return number(size - 1, "i64") - found if last else found

    return compute(shape, of, name=f"{stem(ctx)}_out", dtype="i64")


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", kind=Kind.REDUCTION)
def global_pool(ctx: Context, x: Operand) -> Operand:
    """A reduction over all axes after the channels."""
    ctx.require(len(x.shape) >= 2, "its input has no channels")
    axes = range(2, len(x.shape))
    if ctx.node.op == "GlobalMaxPool":
        return _extreme(ctx, x, axes, lang.max, True)
    inner = wide(x.dtype)
    x = convert_tensor(ctx, x, inner)
    if ctx.node.op == "GlobalAveragePool":
        total = reduce_over(ctx, x, axes, lang.sum)
        return _finish(ctx, "Mean", total, size_of(x.shape[2:]), inner)
    p = ctx.integer("p", 2)
    total = reduce_over(ctx, x, axes, lang.sum, lambda a: lang.pow(lang.absolute(a), number(p, inner)))
    return compute(
        total.shape, lambda *i: lang.pow(total[i], number(1.0 / p, inner)), name=f"{stem(ctx)}_out"
    )


@operator("CumSum", "CumProd", kind=Kind.OPAQUE, static=(1,))
def cumulative(ctx: Context, x: Operand, axis: Operand) -> Operand:
    """The sum or product of the elements before each one along an axis, itself included or not.

    Each is made of the one before it; rows are independent of each other.
    """
    (axis_,) = ctx.static_axes(1, AxesAsked(len(x.shape))) or (0,)
    along = ctx.normal_axis(axis_, len(x.shape))
    exclusive, backwards = ctx.flag("exclusive", False), ctx.flag("reverse", False)
    inner = wide(x.dtype)
    wider = convert_tensor(ctx, x, inner)
    product = ctx.node.op == "CumProd"
    last = x.shape[along] - 1

    def at(index: Sequence[Ix], place: Ix) -> Place:
        return tuple(place if a == along else i for a, i in enumerate(index))

    def step(made: Operand, *index: Ix) -> Scalar:
        k = index[along]
        before = made[at(index, k - 1)]
        newest = k - 1 if exclusive else k
        element = wider[at(index, last - newest if backwards else newest)]
        first = number(1 if product else 0, inner) if exclusive else element
        return lang.select(k < 1, first, before * element if product else before + element)

    total = scanned(x.shape, along, step, stem(ctx), inner)
    if backwards:
        forwards = total
        total = compute(x.shape, lambda *i: forwards[at(i, last - i[along])], name=f"{stem(ctx)}_back")
    return as_dtype(ctx, total, x.dtype)


def as_dtype(ctx: Context, x: Operand, dtype: str) -> Operand:
    """The tensor converted, or itself."""
    if x.dtype == dtype:
        return x
    return compute(x.shape, lambda *i: lang.cast(x[i], dtype), name=f"{stem(ctx)}_out")
