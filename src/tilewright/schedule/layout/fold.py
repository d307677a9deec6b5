"""layout_fold: overlapping tiles of a tensor become one dimension again."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import (
    Access,
    Buffer,
    Const,
    Env,
    Expr,
    Index,
    Load,
    Program,
    Stage,
    Stmt,
    floordiv,
    imin,
    map_exprs,
    map_loads,
    substitute_body,
    var,
)
from tilewright.schedule.layout.rewrite import (
    Indices,
    Layout,
    axes_of,
    check_dim,
    joined,
    map_stores,
    relayout,
    replaced,
    tensor_of,
)
from tilewright.schedule.producer.stages import refused
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("layout_fold", phase="program")
def layout_fold(program: Program, tensor: str, dim: int, stride: int) -> Program:
    """Make dimensions ``dim`` and ``dim + 1``, tiles of which one begins every ``stride`` elements, one.

    The inverse of ``layout_unfold``, but for what that put past the end (``layout_unpad`` takes it away): the
    place ``(t, o)`` becomes ``stride*t + o``, so that what tiles share is stored once. Their copies must be
    equal: a stage that defines the tensor may depend on ``stride*t + o`` only; of an input the caller's
    copies are compared where arrays are converted.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10,), name="X")
    >>> Y = lang.compute((10,), lambda i: X[i] + 1, name="Y")
    >>> Z = lang.compute((10,), lambda i: Y[i] * 2, name="Z")
    >>> s = Schedule(lang.program([X], [Z])).layout_unfold("Y", 0, 4, 3)
    >>> print(s)
    func main:
        alloc Y: f32[3, 4] global
        for i_o in 0:3:
            for i_i in 0:4:
                block Y(par i_o=i_o, par i_i=i_i):
                    Y[i_o, i_i] = (X[i_i + 3*i_o] + f32(1.0))
        for i in 0:10:
            block Z(par i=i):
                Z[i] = (Y[min(2, i//3), i - 3*min(2, i//3)] * f32(2.0))
    >>> print(s.layout_fold("Y", 0, 3))
    func main:
        alloc Y: f32[10] global
        for i_o_i_i in 0:10:
            block Y(par i_o_i_i=i_o_i_i):
                Y[i_o_i_i] = (X[i_o_i_i] + f32(1.0))
        for i in 0:10:
            block Z(par i=i):
                Z[i] = (Y[i] * f32(2.0))

    Source: ALT, Sec. 4.1.2. Raises ScheduleError where copies may differ.
    """
    found = tensor_of(program, tensor)
    layout = fold_layout(found, dim, stride)
    for stage in program.producers(tensor):
        _check_copies(stage, found, dim, stride)
    return relayout(program, found, layout)


def fold_layout(tensor: Buffer, dim: int, stride: int) -> Layout:
    """The change of layout that :func:`layout_fold` is. Raises ScheduleError for no tiles."""
    check_dim(tensor, dim)
    check_dim(tensor, dim + 1)
    tiles, tile = tensor.shape[dim : dim + 2]
    if not tile.is_const or not 1 <= stride <= tile.as_int():
        raise ScheduleError(
            f"dimensions {dim} and {dim + 1} of {tensor.name!r}, [{tiles}, {tile}], are no tiles every"
            f" {stride}",
            hint="give the stride of layout_unfold",
        )

    def forward(old: Indices, env: Env) -> Indices:
        return replaced(old, dim, 2, [old[dim] * stride + old[dim + 1]])

    def inverse(new: Indices) -> Indices:
        t = imin(floordiv(new[dim], stride), tiles - 1)
        return replaced(new, dim, 1, [t, new[dim] - t * stride])

    def names(old: Sequence[str]) -> list[str]:
        return [*old[:dim], joined(old[dim : dim + 2]), *old[dim + 2 :]]

    return Layout(replaced(tensor.shape, dim, 2, [(tiles - 1) * stride + tile]), forward, inverse, names)


def _check_copies(stage: Stage, tensor: Buffer, dim: int, stride: int) -> None:
    """Refuse a stage that may give the copies of one element different values."""
    axes = axes_of(stage, tensor)
    if axes is not None:
        t, o = axes[dim : dim + 2]
        moved = {o: var("@") - var(t) * stride}
        parts = [stage.body] if stage.init is None else [stage.init, stage.body]
        if all(t not in _seen(substitute_body(_without(s, tensor.name), moved)) for s in parts):
            return
    raise refused(
        stage,
        f"stage {stage.name!r} may give the copies that tiles of {tensor.name!r} share different values",
        hint=f"dimensions {dim} and {dim + 1} must be those that layout_unfold made, every {stride} elements",
    )


def _without(s: Stmt, name: str) -> Stmt:
    """The statement without the places of a tensor in it."""

    def of_load(ld: Load) -> Expr:
        return Const(0, ld.dtype) if ld.buffer == name else ld

    def of_store(a: Access) -> Access:
        return Access(a.buffer, (), a.value) if a.buffer == name else a

    return map_stores(map_loads(s, of_load), of_store)


def _seen(s: Stmt) -> set[str]:
    """The variables of all indices in a statement."""
    found: set[str] = set()

    def index(x: Index) -> Index:
        found.update(x.vars)
        return x

    def expression(e: Expr) -> Expr:
        found.update(e.vars)
        return e

    map_exprs(s, index, expression)
    return found
