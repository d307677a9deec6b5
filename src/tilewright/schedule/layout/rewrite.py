"""Rewriting a program for a new layout of one tensor: accesses, and the axes of its producer (ALT, Sec. 6).

With the layout ``S`` as a map from old to new indices, the producer's loops ``L`` become ``L' = S(L)``:
every access in it is rewritten by ``L := S^-1(L')``, and the tensor itself is accessed at ``L'``. All other
accesses ``T[x]`` become ``T[S(x)]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.ir import (
    I64,
    ZERO,
    Access,
    Binary,
    Buffer,
    Compare,
    Const,
    Env,
    Expr,
    If,
    Index,
    Iter,
    Load,
    OfIndex,
    Program,
    Select,
    Stage,
    Stmt,
    Store,
    condition_of,
    fresh_name,
    ge0,
    iter_env,
    map_exprs,
    map_loads,
    prove_ge0,
    simplify,
    simplify_deep,
    simplify_expr,
    simplify_pred,
    stmt_loads,
    stmt_writes,
    substitute_body,
    var,
)
from tilewright.schedule.producer.stages import find_tensor, refused
from tilewright.support import ScheduleError

Indices = tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A change of layout: the new shape, the index maps, and names for the new axes.

    ``forward`` maps old indices to new ones; it may look at the ranges of their variables. ``inverse`` maps
    new indices to old ones. ``padding`` says that not every new index is the image of an old one: then
    ``inverse`` may leave the old shape. ``copies`` says that several new indices hold one old element, so
    that stores cannot be rewritten by ``forward``.
    """

    shape: Indices
    forward: Callable[[Indices, Env], Indices]
    inverse: Callable[[Indices], Indices]
    names: Callable[[Sequence[str]], list[str]]
    padding: bool = False
    copies: bool = False


def tensor_of(program: Program, name: str) -> Buffer:
    """The tensor to be laid out anew; ScheduleError where there is none, or it has an index map already."""
    found = find_tensor(program, name)
    if found.layout is not None:
        raise ScheduleError(
            f"tensor {name!r} has an index map of its own",
            hint="make that its shape first: layout_adopt",
        )
    return found


def check_dim(tensor: Buffer, dim: int) -> None:
    """Refuse a dimension that the tensor does not have."""
    if not 0 <= dim < len(tensor.shape):
        raise ScheduleError(
            f"tensor {tensor.name!r} has no dimension {dim}",
            hint=f"its dimensions are 0 to {len(tensor.shape) - 1}",
        )


def relayout(program: Program, tensor: Buffer, layout: Layout) -> Program:
    """The program with ``tensor`` laid out anew."""
    new = tensor.with_(shape=layout.shape)

    def declared(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(new if b.name == tensor.name else b for b in buffers)

    stages = tuple(_stage(program, s, tensor, layout) for s in program.stages)
    return replace(
        program,
        inputs=declared(program.inputs),
        outputs=declared(program.outputs),
        temps=declared(program.temps),
        stages=stages,
    )


def _stage(program: Program, stage: Stage, tensor: Buffer, layout: Layout) -> Stage:
    if tensor.name in stage.writes:
        axes = axes_of(stage, tensor)
        if axes is not None:
            return _rebuilt(program, stage, tensor, layout, axes)
        if layout.copies:
            raise refused(
                stage,
                f"stage {stage.name!r} does not define {tensor.name!r} element by element over its whole"
                " shape, so its copies cannot be kept equal",
            )
    elif tensor.name not in {ld.buffer for ld in stmt_loads(stage.body)} | _init_loads(stage):
        return stage
    env = iter_env(stage.iters)
    return replace(
        stage,
        body=_moved(stage.body, tensor.name, layout, env),
        init=None if stage.init is None else _moved(stage.init, tensor.name, layout, env),
    )


def _init_loads(stage: Stage) -> set[str]:
    return set() if stage.init is None else {ld.buffer for ld in stmt_loads(stage.init)}


def _moved(s: Stmt, name: str, layout: Layout, env: Env) -> Stmt:
    """``s`` with every access to the tensor at its new place."""

    def place(indices: Indices) -> Indices:
        return tuple(simplify_deep(x, env) for x in layout.forward(indices, env))

    def of_load(ld: Load) -> Expr:
        return Load(name, place(ld.indices), ld.dtype) if ld.buffer == name else ld

    return map_stores(
        map_loads(s, of_load),
        lambda a: Access(name, place(a.indices), a.value) if a.buffer == name else a,
    )


def map_stores(s: Stmt, fn: Callable[[Access], Access]) -> Stmt:
    """``s`` with every access that is written replaced."""
    match s:
        case Store():
            return Store(tuple(fn(a) for a in s.writes))
        case If():
            return If(s.cond, map_stores(s.then, fn), None if s.orelse is None else map_stores(s.orelse, fn))
        case _:
            return s


def axes_of(stage: Stage, tensor: Buffer) -> tuple[str, ...] | None:
    """The iterators that run over the tensor's dimensions, each over a whole one; ``None`` if others do."""
    parts = [stage.body] if stage.init is None else [stage.init, stage.body]
    places = {idx for s in parts for b, idx in stmt_writes(s) if b == tensor.name}
    places |= {ld.indices for s in parts for ld in stmt_loads(s) if ld.buffer == tensor.name}
    if len(places) != 1:
        return None
    if any(not isinstance(s, Store | If) or (isinstance(s, If) and s.orelse is not None) for s in parts):
        return None
    names = [x.as_var() for x in next(iter(places))]
    its = {it.name: it for it in stage.iters}
    found: list[str] = []
    for name, size in zip(names, tensor.shape, strict=True):
        it = its.get(name or "")
        if it is None or it.kind != "par" or it.lo != ZERO or it.hi != size or it.name in found:
            return None
        found.append(it.name)
    for it in stage.iters:
        if not (it.lo.vars | it.hi.vars).isdisjoint(found):
            return None
    return tuple(found)


def _rebuilt(program: Program, stage: Stage, tensor: Buffer, layout: Layout, axes: tuple[str, ...]) -> Stage:
    """The producer over the new axes."""
    taken = {it.name for it in stage.iters if it.name not in axes} | {p.name for p in program.params}
    names: list[str] = []
    for base in layout.names(axes):
        names.append(fresh_name(base, taken))
        taken.add(names[-1])
    new = [Iter(n, ZERO, size, "par") for n, size in zip(names, layout.shape, strict=True)]
    at = min(n for n, it in enumerate(stage.iters) if it.name in axes)
    others = [it for it in stage.iters if it.name not in axes]
    before = sum(it.name not in axes for it in stage.iters[:at])
    iters = (*others[:before], *new, *others[before:])
    env = iter_env(iters)
    # the tensor's own accesses go to the new axes; placeholders keep them out of the substitution of the old
    marks = tuple(var(f"@{n}") for n in range(len(names)))
    here = tuple(var(n) for n in names)
    old = dict(zip(axes, (simplify(x, env) for x in layout.inverse(here)), strict=True))
    final = {f"@{n}": x for n, x in enumerate(here)}

    def of_load(ld: Load) -> Expr:
        return Load(tensor.name, marks, ld.dtype) if ld.buffer == tensor.name else ld

    def of_store(a: Access) -> Access:
        return Access(a.buffer, marks, a.value) if a.buffer == tensor.name else a

    def rebuild(s: Stmt) -> Stmt:
        s = map_stores(map_loads(s, of_load), of_store)
        s = substitute_body(substitute_body(s, old), final)
        s = map_exprs(s, lambda x: simplify_deep(x, env), lambda e: _decided(simplify_expr(e, env), env))
        where, inner = condition_of(s)
        left = simplify_pred(where, env)
        return inner if not left else If(left, inner)

    body, init = rebuild(stage.body), None if stage.init is None else rebuild(stage.init)
    if layout.padding:
        inside: list[Index] = []
        for name, size in zip(axes, tensor.shape, strict=True):
            inside += [c for c in (old[name], size - 1 - old[name]) if not prove_ge0(c, env)]
        if inside:
            body, init = _guarded(stage, tensor, body, init, inside)
    return replace(stage, iters=iters, body=body, init=init)


def _decided(e: Expr, env: Env) -> Expr:
    """The chosen value where the condition of a selection always holds."""
    if isinstance(e, Select):
        found = bounds_of(e.cond)
        if found is not None and all(prove_ge0(x, env) for x in found):
            return e.a
    return e


def bounds_of(e: Expr, *, whole: bool = True) -> tuple[Index, ...] | None:
    """The indices that are 0 or more exactly where a condition is true; ``None`` where it is no such.

    Without ``whole`` those that are, of conditions that ask for more as well.
    """
    match e:
        case Binary(op="and", a=a, b=b):
            parts = [bounds_of(x, whole=whole) for x in (a, b)]
            return None if None in parts else tuple(x for part in parts for x in part or ())
        case Compare(op=op, a=OfIndex(index=x, dtype=t), b=OfIndex(index=y)) if t.holds_indices:
            found = {"ge": x - y, "gt": x - y - 1, "le": y - x, "lt": y - x - 1}
            if op in found:
                return (found[op],)
    return None if whole else ()


def _guarded(
    stage: Stage, tensor: Buffer, body: Stmt, init: Stmt | None, inside: list[Index]
) -> tuple[Stmt, Stmt | None]:
    """Zeros in the padding: plain values are chosen, running values are started at zero and left there."""
    if len(stage.writes) > 1:
        raise refused(
            stage, f"stage {stage.name!r} defines several tensors, so {tensor.name!r} cannot be padded"
        )
    if init is not None:
        where = tuple(ge0(c) for c in inside)
        own, body = condition_of(body)
        return If((*where, *own), body), _chosen(init, inside)
    if not isinstance(body, Store) or stage.is_reduction:
        raise refused(stage, f"stage {stage.name!r} is not a plain definition of {tensor.name!r}")
    return _chosen(body, inside), None


def _chosen(s: Stmt, inside: list[Index]) -> Stmt:
    condition: Expr | None = None
    for c in inside:
        test = Compare("ge", OfIndex(c, I64), OfIndex(ZERO, I64))
        condition = test if condition is None else Binary("and", condition, test)
    assert condition is not None
    chosen = condition

    def of_store(a: Access) -> Access:
        kind = a.value.dtype.kind
        zero = Const(0.0 if kind == "float" else False if kind == "bool" else 0, a.value.dtype)
        return a if a.value == zero else Access(a.buffer, a.indices, Select(chosen, a.value, zero))

    return map_stores(s, of_store)


def joined(names: Sequence[str]) -> str:
    """The name of an axis made of several."""
    return "_".join(names)


def digits(name: str, count: int) -> list[str]:
    """Names of the axes that one axis becomes: ``i_o, i_i`` or ``i_0, i_1, i_2`` …"""
    return [f"{name}_o", f"{name}_i"] if count == 2 else [f"{name}_{n}" for n in range(count)]


def replaced(old: Indices, dim: int, count: int, new: Sequence[Index]) -> Indices:
    """``old`` with ``count`` entries from ``dim`` on replaced."""
    return (*old[:dim], *new, *old[dim + count :])
