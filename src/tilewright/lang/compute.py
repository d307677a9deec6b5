"""Defining tensors element by element: ``compute``, with the reductions inside it made stages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

from tilewright import ir
from tilewright.ir import Access, DType, Expr, Index, Iter, IterKind, Load, Pred, Stmt, Store
from tilewright.lang.axes import axis_env, check_name
from tilewright.lang.conversions import dtype_from, to_expr
from tilewright.lang.reductions import Reduction, ReductionName, free_axes
from tilewright.lang.source import Place, here, problem
from tilewright.lang.tensors import Definition, Tensor, TensorName, shape_of
from tilewright.lang.values import Axis, IndexLike, ValueLike, show_index
from tilewright.support import counted

Shape = tuple[IndexLike, ...] | list[IndexLike] | IndexLike


@overload
def compute(
    shape: Shape,
    fn: Callable[..., tuple[ValueLike, ...]],
    name: str | Sequence[str] | None = ...,
    dtype: DType | str | None = ...,
    axes: Sequence[str] | None = ...,
    *,
    hint: str = ...,
) -> tuple[Tensor, ...]: ...
@overload
def compute(
    shape: Shape,
    fn: Callable[..., ValueLike],
    name: str | None = ...,
    dtype: DType | str | None = ...,
    axes: Sequence[str] | None = ...,
    *,
    hint: str = ...,
) -> Tensor: ...
def compute(
    shape: Shape,
    fn: Callable[..., Any],
    name: str | Sequence[str] | None = None,
    dtype: DType | str | None = None,
    axes: Sequence[str] | None = None,
    *,
    hint: str = "t",
) -> Tensor | tuple[Tensor, ...]:
    """The tensor whose element at ``(i, j, …)`` is ``fn(i, j, …)``.

    ``fn`` may reduce anywhere (``lang.sum(A[i, k] * B[k, j], axis=k)``): a reduction that is the whole result
    is the stage itself, any other becomes a stage before it. A tuple makes a stage of several outputs, and a
    tuple of tensors. Iterators are called like ``fn``'s parameters, or as ``axes`` says. ``name`` must be
    unique in a program; without one the program chooses a name after ``hint``.

    Raises ``ProgramError`` at the user's line for anything that is not a well-formed definition.
    """
    at = here()
    extents = shape_of(shape)
    iterators = _iterators(extents, fn, axes)
    value = fn(*iterators)
    many = isinstance(value, tuple)
    values = value if isinstance(value, tuple) else (value,)
    wanted = None if dtype is None else dtype_from(dtype)
    exprs = [to_expr(v, wanted, "the result of the function given to lang.compute") for v in values]
    names = tensor_names(name, len(values) if many else None)
    made = define(iterators, exprs, names, hint, at)
    return made if many else made[0]


def _iterators(
    extents: tuple[Index, ...], fn: Callable[..., Any], axes: Sequence[str] | None
) -> tuple[Axis, ...]:
    names = tuple(axes) if axes is not None else parameter_names(fn, len(extents))
    if len(names) != len(extents):
        whose = "the axes are" if axes is not None else "the function's indices are"
        listed = ", ".join(names)
        raise problem(
            f"{whose} ({listed}) and the shape has {counted(len(extents), 'dimension')}",
            "one index a dimension",
        )
    return tuple(Axis(ir.ZERO, e, check_name(n, "axis")) for n, e in zip(names, extents, strict=True))


_DEFAULTS = "ijklmnpq"


def parameter_names(fn: Callable[..., Any], count: int, skip: int = 0) -> tuple[str, ...]:
    """Names of a function's parameters after ``skip``, or ``i, j, k …`` where it takes ``*indices``."""
    code = getattr(fn, "__code__", None)
    if code is None or inspect.ismethod(fn) or code.co_flags & inspect.CO_VARARGS:
        return tuple(_DEFAULTS[:count]) if count <= len(_DEFAULTS) else tuple(f"d{n}" for n in range(count))
    # parameters with defaults bind values early (`lambda i, A=A: …`); they are no indices
    last = code.co_argcount - len(getattr(fn, "__defaults__", None) or ())
    names: tuple[str, ...] = code.co_varnames[skip:last]
    # `lambda _, j:` and the like: an underscore names nothing
    return tuple(n.strip("_") or f"d{pos}" for pos, n in enumerate(names))


def tensor_names(name: str | Sequence[str] | None, count: int | None) -> list[str | None]:
    """A name for each of ``count`` tensors (``None``: a single one); ProgramError where they differ."""
    if count is None:
        if name is not None and not isinstance(name, str):
            raise problem("several names for one tensor", "give one name, or return a tuple")
        return [None if name is None else check_name(name, "tensor")]
    if name is None:
        return [None] * count
    names: list[str] = [f"{name}_{n}" for n in range(count)] if isinstance(name, str) else list(name)
    if len(names) != count:
        raise problem(f"{counted(len(names), 'name')} for {counted(count, 'tensor')}")
    return [check_name(n, "tensor") for n in names]


def define(
    iterators: tuple[Axis, ...],
    exprs: list[Expr],
    names: list[str | None],
    hint: str,
    at: Place,
) -> tuple[Tensor, ...]:
    """The tensors whose elements over ``iterators`` are ``exprs``, with a stage for each inner reduction."""
    whole = _whole_reductions(exprs)
    label = next((n for n in names if n), hint)
    if whole is not None:
        reds = list(dict.fromkeys(w.reduction for w in whole))
        first = reds[0]
        check_scope(iterators, first.axes, [e for r in reds for e in _parts(r)], at)
        outputs: list[Tensor] = []
        for w, n in zip(whole, names, strict=True):
            outputs.append(_tensor(iterators, w.reduction.dtypes[w.output], n, hint, at))
        targets: dict[tuple[int, int], Tensor] = {
            (reds.index(w.reduction), w.output): t for w, t in zip(whole, outputs, strict=True)
        }
        _reduction_stage(reds, iterators, targets, label, at)
        return tuple(outputs)
    check_scope(iterators, (), exprs, at)
    values = [_resolve(e, iterators, label) for e in exprs]
    outs = tuple(_tensor(iterators, v.dtype, n, hint, at) for v, n in zip(values, names, strict=True))
    where = tuple(a.index for a in iterators)
    body = Store(tuple(Access(t.ref(), where, v) for t, v in zip(outs, values, strict=True)))
    finish(Definition(iters_of(iterators), body, None, at), outs)
    return outs


def _tensor(axes: Sequence[Axis], dtype: DType, name: str | None, hint: str, at: Place) -> Tensor:
    """A tensor with an element for each point of ``axes``."""
    shape = tuple(a.hi - a.origin for a in axes)
    return Tensor(shape, dtype, name, hint, None, at, tuple(a.origin for a in axes))


def finish(definition: Definition, outputs: Iterable[Tensor]) -> None:
    """Bind tensors to their definition after checking its accesses."""
    check_bounds(definition)
    for t in outputs:
        t.definition = definition
        definition.outputs.append(t)


def iters_of(axes: Iterable[Axis], kind: IterKind | None = None) -> tuple[Iter, ...]:
    """Axes as iterators of a stage."""
    return tuple(Iter(a.key, a.lo, a.hi, kind or a.kind) for a in axes)


def _parts(r: Reduction) -> list[Expr]:
    bounds = [ir.OfIndex(b, ir.I64) for a in r.axes for b in (a.lo, a.hi)]
    return [*r.values, *bounds, *([] if r.where is None else [r.where])]


def _whole_reductions(exprs: list[Expr]) -> list[ReductionName] | None:
    """The results that the expressions are, where all are results of one pass over the same axes."""
    found: list[ReductionName] = []
    for e in exprs:
        if not (isinstance(e, Load) and isinstance(e.buffer, ReductionName)):
            return None
        found.append(e.buffer)
    first = found[0].reduction
    for f in found:
        if [a.key for a in f.reduction.axes] != [
            a.key for a in first.axes
        ] or f.reduction.where != first.where:
            return None
    return found if len(set(found)) == len(found) else None


def check_scope(iterators: Sequence[Axis], reduced: Sequence[Axis], exprs: Iterable[Expr], at: Place) -> None:
    """Raise ProgramError for an axis that is no iterator of the stage and of no reduction around it."""
    known = {a.key for a in (*iterators, *reduced)}
    for name in sorted(free_axes(exprs)):
        if name in known:
            continue
        if name.axis.kind == "red":
            raise problem(
                f"the reduction axis {name.axis.name!r} is used outside of a reduction over it",
                f"wrap the term: lang.sum(…, axis={name.axis.name})",
                at,
            )
        raise problem(
            f"the axis {name.axis.name!r} does not belong to this definition",
            "use the indices that the function is given",
            at,
        )


def split_reductions(out: Tensor, exprs: Sequence[Expr], scope: tuple[Axis, ...], at: Place) -> list[Expr]:
    """Expressions of an ordered definition of ``out``, its reductions computed by stages before it.

    Raises ProgramError for reductions of what the definition itself changes.
    """
    for e in exprs:
        for r in _reductions(e):
            if any(ld.buffer == out.ref() for part in _parts(r) for ld in ir.loads(part)):
                raise problem(
                    f"lang.{r.kind} reads {out.label}, which the definition around it changes",
                    "make its axis one of the update: lang.reduce_axis(…)",
                    at,
                )
    return [_resolve(e, scope, out.name or out.hint) for e in exprs]


def _reductions(e: Expr) -> Iterable[Reduction]:
    """The reductions of an expression, also those inside of others."""
    for ld in ir.loads(e):
        if isinstance(ld.buffer, ReductionName):
            yield ld.buffer.reduction
            for part in _parts(ld.buffer.reduction):
                yield from _reductions(part)


def _resolve(e: Expr, scope: tuple[Axis, ...], label: str) -> Expr:
    """Replace results of reductions by loads of tensors that stages of their own define."""
    if not any(isinstance(ld.buffer, ReductionName) for ld in ir.loads(e)):
        return e
    made: dict[Reduction, dict[int, tuple[Tensor, tuple[Index, ...]]]] = {}

    def of_load(node: Load) -> Expr:
        name = node.buffer
        if not isinstance(name, ReductionName):
            return node
        if name.reduction not in made:
            made[name.reduction] = _split_off(name.reduction, scope, label)
        tensor, where = made[name.reduction][name.output]
        return Load(tensor.ref(name.reduction.place), where, node.dtype)

    return map_loads(e, of_load)


def map_loads(e: Expr, fn: Callable[[Load], Expr]) -> Expr:
    """Replace all loads of an expression, inside opaque indices too."""

    def of_index(i: Index) -> Index:
        return ir.substitute_index(i, {}, lambda inner: map_loads(inner, fn))

    def visit(node: Expr) -> Expr:
        return fn(node) if isinstance(node, Load) else node

    return ir.map_expr(ir.map_indices(e, of_index), visit)


def _split_off(
    r: Reduction, scope: tuple[Axis, ...], label: str
) -> dict[int, tuple[Tensor, tuple[Index, ...]]]:
    axes = tuple(a for a in scope if a.key in r.free)
    for a in axes:
        if not a.inferred and (a.lo.vars or a.hi.vars):
            raise problem(
                f"the inner reduction depends on the axis {a.name!r}, whose range depends on other axes",
                "compute the inner reduction over a rectangle, with `where`, in a stage of its own",
                r.place,
            )
    outputs = {
        n: _tensor(axes, t, None, f"{label}_{r.kind}" + ("" if n == len(r.dtypes) - 1 else "_value"), r.place)
        for n, t in enumerate(r.dtypes)
    }
    _reduction_stage([r], axes, {(0, n): t for n, t in outputs.items()}, label, r.place)
    return {n: (t, tuple(a.index for a in axes)) for n, t in outputs.items()}


def _reduction_stage(
    reds: list[Reduction],
    axes: tuple[Axis, ...],
    targets: dict[tuple[int, int], Tensor],
    label: str,
    at: Place,
) -> None:
    """Define the targets, keyed by reduction and output, by one stage; missing outputs get buffers too."""
    first = reds[0]
    where = tuple(a.index for a in axes)
    scope = (*axes, *first.axes)
    starts: list[Access] = []
    updates: list[Access] = []
    all_targets: list[Tensor] = []
    for rn, r in enumerate(reds):
        tensors = [
            targets.get((rn, n)) or _tensor(axes, t, None, f"{label}_value", at)
            for n, t in enumerate(r.dtypes)
        ]
        all_targets.extend(tensors)
        inner = Reduction(
            r.kind, tuple(_resolve(v, scope, label) for v in r.values), r.axes, None, r.place, r.free
        )
        current: tuple[Expr, ...] = tuple(Load(t.ref(), where, t.dtype) for t in tensors)
        for t, start, new in zip(tensors, inner.identity(), inner.combine(current), strict=True):
            starts.append(Access(t.ref(), where, start))
            updates.append(Access(t.ref(), where, new))
    body: Stmt = Store(tuple(updates))
    if first.where is not None:
        body = ir.If(to_pred(_resolve(first.where, scope, label)), body)
    iters = (*iters_of(axes, "par"), *iters_of(first.axes, "red"))
    finish(Definition(iters, body, Store(tuple(starts)), at), all_targets)


def to_pred(e: Expr) -> Pred:
    """A condition as a predicate: comparisons of indices become affine conditions, the rest stays opaque."""
    if isinstance(e, ir.Binary) and e.op == "and":
        return to_pred(e.a) + to_pred(e.b)
    if isinstance(e, ir.Const) and e.value is True:
        return ()
    if isinstance(e, ir.Compare) and isinstance(e.a, ir.OfIndex) and isinstance(e.b, ir.OfIndex):
        a, b = e.a.index, e.b.index
        affine = {
            "lt": ir.ge0(b - a - 1), "le": ir.ge0(b - a), "gt": ir.ge0(a - b - 1), "ge": ir.ge0(a - b),
            "eq": ir.eq0(a - b),
        }  # fmt: skip
        if e.op in affine:
            return (affine[e.op],)
    return (ir.holds(e),)


def check_bounds(definition: Definition) -> None:
    """Refuse loads and stores that are certainly out of bounds; those under a condition are the user's."""
    if any(it.extent == ir.ZERO for it in definition.iters):
        return  # nothing is read or stored

    def of_index(i: Index) -> None:
        for e in ir.walk_index(i):
            if isinstance(e, Load):
                of_access(e.buffer, e.indices)

    def of_access(buffer: str, indices: tuple[Index, ...]) -> None:
        if not isinstance(buffer, TensorName):
            return
        t = buffer.tensor
        for n, (i, size) in enumerate(zip(indices, t.extents, strict=True)):
            if any(not isinstance(a, ir.Var | ir.Opaque) for a, _ in i.terms) or not size.is_const:
                continue
            env = axis_env((i,))
            lo, hi = ir.int_range(i, env)
            if any(not (b.is_const or a == b) for a, b in env.values()):
                continue
            if lo is not None and hi is not None and lo <= hi and (lo < 0 or hi >= size.as_int()):
                raise problem(
                    f"index {n} of {t.label}, {show_index(i)}, runs from {lo} to {hi} "
                    f"and the extent is {size.as_int()}",
                    "read outside through lang.boundary(A, …), clamp, or guard the read by lang.select",
                    buffer.place,
                )

    def of_expr(e: Expr) -> None:
        match e:
            case ir.Select():
                of_expr(e.cond)
            case Load():
                of_access(e.buffer, e.indices)
                for i in e.indices:
                    of_index(i)
            case _:
                for k in ir.children(e):
                    of_expr(k)

    def of_stmt(s: Stmt) -> None:
        match s:
            case Store():
                for w in s.writes:
                    of_access(w.buffer, w.indices)
                    of_expr(w.value)
            case ir.Seq():
                for k in s.stmts:
                    of_stmt(k)
            case _:
                pass

    of_stmt(definition.body)
