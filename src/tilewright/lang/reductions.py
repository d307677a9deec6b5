"""Reductions inside expressions: sum, prod, max, min, any, all, argmax, argmin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tilewright import ir
from tilewright.analysis import better
from tilewright.ir import Const, DType, Expr, Index
from tilewright.lang.conversions import to_expr
from tilewright.lang.functions import condition_of
from tilewright.lang.source import Place, here, problem
from tilewright.lang.values import Axis, AxisName, Scalar, ValueLike, no_arithmetic

Kind: TypeAlias = Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]

_OPS: Final = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """A reduction of ``values`` over ``axes`` (where ``where`` holds) that is not a stage yet.

    ``free`` are the axes of others that it depends on, in no particular order.
    """

    kind: Kind
    values: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    where: Expr | None
    place: Place
    free: frozenset[AxisName]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """Element types of the results."""
        return tuple(v.dtype for v in self.values)

    def identity(self) -> tuple[Const, ...]:
        """What the results start from."""
        t = self.dtypes[0]
        if self.kind in ("argmax", "argmin"):
            start = t.min_value if self.kind == "argmax" else t.max_value
            return ir.Const(start, t), ir.Const(ir.I64.max_value, ir.I64)
        zero: float | int | bool = False if t.kind == "bool" else 0.0 if t.is_float else 0
        one: float | int | bool = True if t.kind == "bool" else 1.0 if t.is_float else 1
        start = {
            "sum": zero, "any": zero, "prod": one, "all": one, "max": t.min_value, "min": t.max_value
        }[self.kind]  # fmt: skip
        return (ir.Const(start, t),)

    def combine(self, current: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The results after one more element; the order of elements does not matter (but for rounding)."""
        if self.kind not in ("argmax", "argmin"):
            return (ir.Binary(_OPS[self.kind], current[0], self.values[0]),)
        (best, at), (x, k) = current, self.values
        return better("gt" if self.kind == "argmax" else "lt", best, at, x, k)


class ReductionName(str):
    """The name of a result of a reduction inside expressions; carries the reduction."""

    __slots__ = ("output", "reduction")

    reduction: Reduction
    output: int


def result(reduction: Reduction, output: int = 0) -> Scalar:
    """A result of a reduction as a scalar."""
    name = ReductionName(f"{reduction.kind}{output}@{id(reduction):x}")
    name.reduction, name.output = reduction, output
    return Scalar(ir.Load(name, (), reduction.dtypes[output]))


def free_axes(exprs: Iterable[Expr]) -> set[AxisName]:
    """The axes that expressions depend on, through inner reductions too."""
    out: set[AxisName] = set()
    for e in exprs:
        out.update(v for v in e.vars if isinstance(v, AxisName))
        for ld in ir.loads(e):
            if isinstance(ld.buffer, ReductionName):
                out |= ld.buffer.reduction.free
    return out


def _reduction(
    kind: Kind, values: tuple[Expr, ...], axes: tuple[Axis, ...], where: Scalar | None
) -> Reduction:
    condition = None if where is None else condition_of(where, f"`where` of lang.{kind}")
    free = free_axes(values if condition is None else (*values, condition))
    for a in axes:
        free.update(v for v in a.lo.vars | a.hi.vars if isinstance(v, AxisName))
    free -= {a.key for a in axes}
    return Reduction(kind, values, axes, condition, here(), frozenset(free))


def _axes(axis: Axis | Sequence[Axis], kind: str) -> tuple[Axis, ...]:
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    for a in axes:
        if not isinstance(a, Axis):
            raise problem(f"the axis of lang.{kind} is {a!r}", "make one: k = lang.reduce_axis(extent)")
        if a.kind != "red":
            raise problem(
                f"lang.{kind} over the axis {a.name!r}, which is not a reduction axis",
                "make one: k = lang.reduce_axis(extent)",
            )
    if not axes:
        raise problem(f"lang.{kind} over no axis", "give axis=k or axis=(k, l)")
    if len({a.key for a in axes}) < len(axes):
        raise problem(f"lang.{kind} names an axis twice")
    return axes


def _fold(kind: Kind, x: ValueLike, axis: Axis | Sequence[Axis], where: Scalar | None) -> Scalar:
    axes = _axes(axis, kind)
    value = to_expr(x, None, f"the operand of lang.{kind}")
    boolean = value.dtype.kind == "bool"
    if boolean and kind not in ("any", "all"):
        raise problem(
            f"lang.{kind} of conditions", "use lang.any or lang.all, or cast to a number: lang.cast(x, 'i32')"
        )
    if not boolean and kind in ("any", "all"):
        raise problem(f"lang.{kind} of values of type {value.dtype}", "compare them with something")
    if value.dtype.small:
        raise no_arithmetic(value.dtype)
    if value.dtype in (ir.F16, ir.BF16):
        wide = result(_reduction(kind, (_in_f32(value),), axes, where))
        return Scalar(ir.Cast(wide.expr, value.dtype))
    return result(_reduction(kind, (value,), axes, where))


def _in_f32(e: Expr) -> Expr:
    """A value of half precision in f32; products and sums of others are not rounded first."""
    if isinstance(e, ir.Binary) and e.op in ("add", "sub", "mul"):
        return ir.Binary(e.op, _in_f32(e.a), _in_f32(e.b))
    return ir.Cast(e, ir.F32)


def sum(x: ValueLike, axis: Axis | Sequence[Axis], where: Scalar | None = None) -> Scalar:
    """The sum over ``axis`` of the elements for which ``where`` holds, in their own type; 0 for none.

    Of f16 and bf16, here as in the other reductions, in f32, and rounded once at the end.
    """
    return _fold("sum", x, axis, where)


def prod(x: ValueLike, axis: Axis | Sequence[Axis], where: Scalar | None = None) -> Scalar:
    """The product over ``axis`` of the elements for which ``where`` holds; 1 for none."""
    return _fold("prod", x, axis, where)


def max(x: ValueLike, axis: Axis | Sequence[Axis], where: Scalar | None = None) -> Scalar:
    """The largest element, NaN where one is NaN; the type's least value (``-inf``) for none."""
    return _fold("max", x, axis, where)


def min(x: ValueLike, axis: Axis | Sequence[Axis], where: Scalar | None = None) -> Scalar:
    """The smallest element, NaN where one is NaN; the type's greatest value (``inf``) for none."""
    return _fold("min", x, axis, where)


def any(x: Scalar, axis: Axis | Sequence[Axis], where: Scalar | None = None) -> Scalar:
    """Whether the condition holds somewhere."""
    return _fold("any", x, axis, where)


def all(x: Scalar, axis: Axis | Sequence[Axis], where: Scalar | None = None) -> Scalar:
    """Whether the condition holds everywhere."""
    return _fold("all", x, axis, where)


def _extremum(
    kind: Literal["argmax", "argmin"], x: ValueLike, axis: Axis | Sequence[Axis], where: Scalar | None
) -> Reduction:
    axes = _axes(axis, kind)
    value = to_expr(x, None, f"the operand of lang.{kind}")
    if value.dtype.kind == "bool":
        raise problem(f"lang.{kind} of conditions", "cast to a number: lang.cast(x, 'i32')")
    position = Index(0)
    for a in axes:
        extent = a.hi - a.lo
        if len(axes) > 1 and not extent.is_const:
            raise problem(
                f"lang.{kind} over several axes of which {a.name!r} has no constant extent",
                "reduce over one axis at a time",
            )
        position = position * (extent.as_int() if extent.is_const else 1) + (
            a.index if len(axes) == 1 else a.index - a.lo
        )
    return _reduction(kind, (value, ir.OfIndex(position, ir.I64)), axes, where)


def argmax(x: ValueLike, axis: Axis | Sequence[Axis], where: Scalar | None = None) -> Scalar:
    """The position (i64) of the largest element, the first of equal ones.

    A NaN beats every number, the first NaN later ones (as in numpy). Over several axes: the row-major
    position in their box. Where ``where`` holds nowhere: the greatest i64.
    """
    return result(_extremum("argmax", x, axis, where), 1)


def argmin(x: ValueLike, axis: Axis | Sequence[Axis], where: Scalar | None = None) -> Scalar:
    """The position (i64) of the smallest element; ties, NaN and ``where`` as in :func:`argmax`."""
    return result(_extremum("argmin", x, axis, where), 1)


def max_with_index(
    x: ValueLike, axis: Axis | Sequence[Axis], where: Scalar | None = None
) -> tuple[Scalar, Scalar]:
    """``(max, argmax)`` of one pass; returned as they are from ``compute`` they make one stage."""
    found = _extremum("argmax", x, axis, where)
    return result(found, 0), result(found, 1)


def min_with_index(
    x: ValueLike, axis: Axis | Sequence[Axis], where: Scalar | None = None
) -> tuple[Scalar, Scalar]:
    """``(min, argmin)`` of one pass; returned as they are from ``compute`` they make one stage."""
    found = _extremum("argmin", x, axis, where)
    return result(found, 0), result(found, 1)
