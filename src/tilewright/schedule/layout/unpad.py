"""layout_unpad: elements at the ends of a dimension of a tensor that nobody reads are left out."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import (
    Buffer,
    Const,
    Env,
    Expr,
    Index,
    Iter,
    Load,
    Pred,
    Program,
    Select,
    Stage,
    Store,
    children,
    condition_of,
    iter_env,
    prove_ge0,
    stmt_loads,
)
from tilewright.schedule.layout.rewrite import (
    Indices,
    Layout,
    axes_of,
    bounds_of,
    check_dim,
    relayout,
    replaced,
    tensor_of,
)
from tilewright.schedule.producer.stages import refused
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("layout_unpad", phase="program")
def layout_unpad(program: Program, tensor: str, dim: int, before: int, after: int) -> Program:
    """Take ``before`` elements in front of dimension ``dim`` of ``tensor`` away, and ``after`` behind it.

    The inverse of ``layout_pad``, and of what ``layout_split`` and ``layout_unfold`` put past the end.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((8,), name="X")
    >>> Y = lang.compute((8,), lambda i: X[i], name="Y")
    >>> Z = lang.compute((8,), lambda i: Y[i] * 2, name="Z")
    >>> s = Schedule(lang.program([X], [Z])).layout_pad("Y", 0, 0, 2)
    >>> print(s)
    func main:
        alloc Y: f32[10] global
        for i in 0:10:
            block Y(par i=i):
                Y[i] = select(ge(i64[-i + 7], i64[0]), X[i], f32(0.0))
        for Z_i in 0:8:
            block Z(par i=Z_i):
                Z[i] = (Y[i] * f32(2.0))
    >>> print(s.layout_unpad("Y", 0, 0, 2))
    func main:
        alloc Y: f32[8] global
        for i in 0:8:
            block Y(par i=i):
                Y[i] = X[i]
        for Z_i in 0:8:
            block Z(par i=Z_i):
                Z[i] = (Y[i] * f32(2.0))

    Source: ALT, Sec. 4.1.2. Raises ScheduleError where such an element may be read, and in an output where it
    may be other than zero.
    """
    found = tensor_of(program, tensor)
    layout = unpad_layout(found, dim, before, after)
    size = found.shape[dim]
    for stage in program.stages:
        env = iter_env(stage.iters)
        if tensor in stage.writes:
            if axes_of(stage, found) is None:
                raise refused(
                    stage,
                    f"stage {stage.name!r} does not define {tensor!r} element by element over its shape",
                )
            continue
        for x, known in _reads(stage, tensor, dim):
            if not all(_holds(y, known, env) for y in (x - before, size - after - 1 - x)):
                raise refused(
                    stage,
                    f"stage {stage.name!r} reads {tensor!r} at {x} in dimension {dim}, which may be among the"
                    " elements taken away",
                )
    if any(b.name == tensor for b in program.outputs):
        for stage in program.producers(tensor):
            _check_zero(stage, found, dim, before, after)
    return relayout(program, found, layout)


def unpad_layout(tensor: Buffer, dim: int, before: int, after: int) -> Layout:
    """The change of layout that :func:`layout_unpad` is. Raises ScheduleError for impossible amounts."""
    check_dim(tensor, dim)
    left = tensor.shape[dim] - (before + after)
    if before < 0 or after < 0 or not prove_ge0(left - 1, {}):
        raise ScheduleError(
            f"{before} and {after} elements cannot be taken from dimension {dim} of {tensor.name!r}, which"
            f" has {tensor.shape[dim]}",
            hint="take 0 or more, and leave one",
        )

    def forward(old: Indices, env: Env) -> Indices:
        return replaced(old, dim, 1, [old[dim] - before])

    def inverse(new: Indices) -> Indices:
        return replaced(new, dim, 1, [new[dim] + before])

    return Layout(replaced(tensor.shape, dim, 1, [left]), forward, inverse, lambda old: list(old))


def _reads(stage: Stage, tensor: str, dim: int) -> list[tuple[Index, tuple[Index, ...]]]:
    """Where a stage reads along a dimension, each place with indices that are 0 or more where it does."""
    found: list[tuple[Index, tuple[Index, ...]]] = []

    def visit(e: Expr, known: tuple[Index, ...]) -> None:
        if isinstance(e, Load) and e.buffer == tensor:
            found.append((e.indices[dim], known))
        if isinstance(e, Select):
            visit(e.cond, known)
            visit(e.a, (*known, *(bounds_of(e.cond, whole=False) or ())))
            visit(e.b, known)
            return
        for child in children(e):
            visit(child, known)

    for s in (stage.body,) if stage.init is None else (stage.init, stage.body):
        where, body = condition_of(s)
        known = tuple(c.index for c in where if c.index is not None and c.op == "ge")
        if isinstance(body, Store):
            for a in body.writes:
                visit(a.value, known)
        else:
            found += [(ld.indices[dim], ()) for ld in stmt_loads(s) if ld.buffer == tensor]
    return found


def _holds(x: Index, known: Sequence[Index], env: Env) -> bool:
    return prove_ge0(x, env) or any(prove_ge0(x - each, env) for each in known)


def _check_zero(stage: Stage, tensor: Buffer, dim: int, before: int, after: int) -> None:
    """Refuse unless a stage writes zeros to the elements taken away."""
    axes = axes_of(stage, tensor)
    assert axes is not None  # it was asked for before
    size = tensor.shape[dim]
    for low, high in ((Index(0), Index(before)), (size - after, size)):
        if low == high:
            continue
        its = [Iter(it.name, low, high, it.kind) if it.name == axes[dim] else it for it in stage.iters]
        env = iter_env(its)
        first = stage.body if stage.init is None else stage.init
        stays = stage.init is None or _never(condition_of(stage.body)[0], env)
        if not (stays and isinstance(first, Store) and all(_is_zero(a.value, env) for a in first.writes)):
            raise refused(
                stage,
                f"stage {stage.name!r} may write more than zeros to the elements of {tensor.name!r} that are"
                " taken away",
                hint="outputs lose padding only",
            )


def _never(condition: Pred, env: Env) -> bool:
    """Whether one of the constraints of a condition never holds."""
    return any(c.index is not None and c.op == "ge" and prove_ge0(-c.index - 1, env) for c in condition)


def _is_zero(e: Expr, env: Env) -> bool:
    match e:
        case Const(value=value):
            return value == 0
        case Select(cond=cond, a=a, b=b):
            never = any(prove_ge0(-x - 1, env) for x in bounds_of(cond, whole=False) or ())
            return (never or _is_zero(a, env)) and _is_zero(b, env)
        case _:
            return False
