"""tensorize: a nest becomes one instruction of the machine."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import replace

from tilewright.ir import (
    GLOBAL,
    TILE,
    ZERO,
    Along,
    Binary,
    Block,
    Cast,
    Const,
    Env,
    Exec,
    Expr,
    For,
    If,
    Index,
    Load,
    LoopFunction,
    Pred,
    Stmt,
    Store,
    Window,
    WindowMode,
    buffers_of,
    replace_at,
    simplify,
    substitute_index,
    var,
)
from tilewright.schedule.common import constant_extent, env_at, find_loop, refusal
from tilewright.schedule.loop.blockize import opaque_block
from tilewright.schedule.nests import chain
from tilewright.schedule.registry import primitive
from tilewright.support import TargetError
from tilewright.target import Instruction, Move, Operand, find_operation


class _MismatchError(Exception):
    """What keeps a nest from being an instruction."""


@primitive("tensorize", phase="loop")
def tensorize(func: LoopFunction, loop: str, instr: str) -> LoopFunction:
    """Do ``loop``, with everything in it, by the instruction ``instr`` of a target's table.

    The nest must compute what the instruction does: ``c[...] += cast(a[...]) * cast(b[...])`` in the element
    types of its operands, one loop for each of its axes. Which loop is which axis, and which factor which
    operand, is found. Axes along which the instruction works lane by lane are not part of the nest: a vector
    loop around it has as many lanes as it takes. Instructions that move or clear tiles are nests of
    ``t[...] = s[...]`` and ``t[...] = 0``. An operand with a scope, such as ``tile``, must be there.

    Code generation asks that the last axis of ``a`` and ``b`` lies together in memory, and operands that move
    with the lanes side by side: ``set_layout`` and ``stage`` put them there.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> A = lang.placeholder((8,), "bf16", name="A")
    >>> B = lang.placeholder((8, 16), "bf16", name="B")
    >>> k = lang.reduce_axis(8, "k")
    >>> C = lang.compute(
    ...     (16,), lambda j: lang.sum(lang.cast(A[k], "f32") * lang.cast(B[k, j], "f32"), k), name="C"
    ... )
    >>> s = Schedule(lang.program([A, B], [C])).split("k", 2).reorder("k_o", "j", "k_i")
    >>> s = s.decompose_init("C", "k_o").vectorize("j")
    >>> print(s)
    func main:
        for j_init in 0:16:
            block C_init(par j=j_init):
                C[j] = f32(0.0)
        for k_o in 0:4:
            for j in 0:16 vector:
                for k_i in 0:2:
                    block C(par j=j, red k=k_i + 2*k_o):
                        C[j] = (C[j] + (cast(A[k], f32, wrap) * cast(B[k, j], f32, wrap)))
    >>> print(s.tensorize("k_i", "vdpbf16ps"))
    func main:
        for j_init in 0:16:
            block C_init(par j=j_init):
                C[j] = f32(0.0)
        for k_o in 0:4:
            for j in 0:16 vector:
                block C(red k_o=k_o, par j=j):
                    vdpbf16ps(C[j], A[2*k_o:+2], B[2*k_o:+2, j])

    Raises ScheduleError where the nest does not match, saying what differs.
    """
    place, node = find_loop(func, loop)
    try:
        instruction = find_operation(instr)
    except TargetError as error:
        raise refusal(func, error.what, hint=error.hint, at=[loop]) from None
    nest = chain(node)
    inner = nest[-1].body
    if not isinstance(inner, Block):
        raise refusal(
            func,
            f"{loop!r} is not a perfect nest around one block, as {instr} needs it",
            hint="decompose_init and reorder first",
            at=[loop],
        )
    extents: dict[str, int] = {}
    for f in nest:
        extents[f.var] = constant_extent(func, place, f, f"an axis of {instr}")
        if f.lo != ZERO:
            raise refusal(func, f"{f.var!r} does not start at 0", at=[f.var])
    block = opaque_block(func, place, node, inner.name, inner.stage, "tensorize")
    conditions, term = _innermost(block.body)
    for f in nest:
        if any(f.var in c.vars for c in conditions):
            raise refusal(
                func,
                f"a condition of block {inner.name!r} depends on {f.var!r}, and {instr} does that axis whole",
                hint="split by a divisor of the extent, or pad",
                at=[f.var, inner.name],
            )
    env = {**env_at(place), **{name: (ZERO, Index(n - 1)) for name, n in extents.items()}}
    try:
        scopes = {name: known.scope for name, known in buffers_of(func).items()}
        windows = _windows(term, instruction, extents, env, scopes)
    except _MismatchError as error:
        raise refusal(func, f"block {inner.name!r} is not what {instr} does: {error}", at=[loop]) from None
    # where the block runs stays its own condition; those inside of its body go around the instruction
    own = conditions[len(inner.where) :]
    body: Stmt = If(own, Exec(instr, windows)) if own else Exec(instr, windows)
    return func.with_body(replace_at(func.body, place.path, replace(block, body=body, where=inner.where)))


def _innermost(s: Stmt) -> tuple[Pred, Stmt]:
    """The statement inside of loops and conditions, and those conditions."""
    found: Pred = ()
    while True:
        if isinstance(s, If) and s.orelse is None:
            found, s = (*found, *s.cond), s.then
        elif isinstance(s, For):
            s = s.body
        else:
            return found, s


def _windows(
    s: Stmt,
    operation: Instruction | Move,
    extents: Mapping[str, int],
    env: Env,
    scopes: Mapping[str, str],
) -> tuple[Window, ...]:
    """The operands of the instruction, in its order: result, a, b, or result and source."""
    axes = dict(operation.axes if isinstance(operation, Move) else operation.inner_axes)
    if not _fits(axes, extents, operation.partial):
        wanted = ", ".join(f"{name} of {n}" for name, n in axes.items())
        given = ", ".join(f"{name} of {n}" for name, n in extents.items())
        most = ", or less" if operation.partial else ""
        raise _MismatchError(f"its axes are {wanted}{most}, the loops {given}")
    candidates: list[list[tuple[Load, Operand]]]
    if isinstance(operation, Move):
        moved = _moved(s, operation)
        operands = [operation.result, *([operation.source] if operation.source is not None else [])]
        candidates = [list(zip(moved, operands, strict=True))]
    else:
        result, left, right = _product(s, operation)
        candidates = [
            [(result, operation.result), (a, operation.a), (b, operation.b)]
            for a, b in ((left, right), (right, left))
        ]
    written: WindowMode = "w" if isinstance(operation, Move) else "rw"
    reason = ""
    for names in itertools.permutations(extents):
        loops = dict(zip(axes, names, strict=True))
        if not all(_part_of(axis, extents[loops[axis]], n, operation.partial) for axis, n in axes.items()):
            continue
        for candidate in candidates:
            try:
                return tuple(
                    _window(load, operand, axes, extents, loops, env, scopes, "r" if n else written)
                    for n, (load, operand) in enumerate(candidate)
                )
            except _MismatchError as error:
                reason = reason or str(error)
    raise _MismatchError(reason)


def _fits(axes: Mapping[str, int], extents: Mapping[str, int], partial: Collection[str]) -> bool:
    """Whether the loops can be the axes, in some order."""
    return len(axes) == len(extents) and any(
        all(_part_of(axis, got, n, partial) for (axis, n), got in zip(axes.items(), given, strict=True))
        for given in itertools.permutations(extents.values())
    )


def _part_of(axis: str, extent: int, most: int, partial: Collection[str]) -> bool:
    return extent == most or (axis in partial and extent < most)


def _moved(s: Stmt, move: Move) -> list[Load]:
    """The element that a move writes, and the one that it reads, if any."""
    form = "a copy of elements" if move.source is not None else "a store of zeros"
    if not isinstance(s, Store) or len(s.writes) != 1:
        raise _MismatchError(f"{form} is needed")
    w = s.writes[0]
    written = Load(w.buffer, w.indices, w.value.dtype)
    if move.source is None:
        if not isinstance(w.value, Const) or w.value.value != 0:
            raise _MismatchError(f"{form} is needed")
        return [written]
    if not isinstance(w.value, Load):
        raise _MismatchError(f"{form} is needed")
    return [written, w.value]


def _product(s: Stmt, instruction: Instruction) -> tuple[Load, Load, Load]:
    """The accumulator and the two factors of ``c += cast(a) * cast(b)``."""
    total = instruction.result.dtype
    form = f"a sum of products in {total}, each factor a cast of an element to it, is needed"
    if not isinstance(s, Store) or len(s.writes) != 1:
        raise _MismatchError(form)
    w = s.writes[0]
    value = w.value
    old = Load(w.buffer, w.indices, value.dtype)
    if not isinstance(value, Binary) or value.op != "add" or value.dtype != total:
        raise _MismatchError(form)
    if old not in (value.a, value.b):
        raise _MismatchError(form)
    term = value.b if value.a == old else value.a
    if not isinstance(term, Binary) or term.op != "mul":
        raise _MismatchError(form)
    factors: list[Load] = []
    for e in (term.a, term.b):
        inner: Expr = e.a if isinstance(e, Cast) and e.mode == "wrap" else e
        if not isinstance(inner, Load):
            raise _MismatchError(form)
        factors.append(inner)
    return old, factors[0], factors[1]


def _window(
    ld: Load,
    operand: Operand,
    axes: Mapping[str, int],
    extents: Mapping[str, int],
    loops: Mapping[str, str],
    env: Env,
    scopes: Mapping[str, str],
    mode: WindowMode,
) -> Window:
    """The elements of ``ld`` that one execution touches."""
    if ld.dtype != operand.dtype:
        raise _MismatchError(f"{ld.buffer} has elements of {ld.dtype}, {operand.name} is of {operand.dtype}")
    scope = scopes.get(ld.buffer, "")
    # lanes of an operand in memory may be in vector registers, too
    if (operand.scope or scope == TILE) and scope != operand.scope:
        raise _MismatchError(
            f"{ld.buffer} is in {scope or GLOBAL} scope, {operand.name} in {operand.scope or 'memory'}"
        )
    along: dict[str, Along] = {}
    indices = [simplify(i, env) for i in ld.indices]
    for axis, loop in loops.items():
        moved = [d for d, i in enumerate(indices) if loop in i.vars]
        if axis not in operand.axes:
            if moved:
                raise _MismatchError(f"{ld.buffer} moves with {loop!r}, {operand.name} has no such axis")
            continue
        step = indices[moved[0]].coefficient(loop) if len(moved) == 1 else 0
        if step < 1 or loop in (indices[moved[0]] - var(loop) * step).vars:
            raise _MismatchError(f"{loop!r} must move {ld.buffer} along one dimension, by equal steps")
        alone = all(a.dim != moved[0] for a in along.values())
        if not operand.strided(axis) and (step > 1 or not (alone or operand.overlaps)):
            raise _MismatchError(
                f"{loop!r} must move {ld.buffer} along one dimension of its own by single elements"
            )
        along[axis] = Along(moved[0], extents[loop], step)
    slowest = loops.get(operand.axes[0])
    if slowest is not None and extents[slowest] % operand.group:
        raise _MismatchError(
            f"{slowest!r} must have a multiple of {operand.group} iterations, "
            f"as {operand.name} has groups of so many"
        )
    start = dict.fromkeys(loops.values(), ZERO)
    spans = [1] * len(indices)
    for a in along.values():
        spans[a.dim] += (a.count - 1) * a.step
    return Window(
        ld.buffer,
        tuple(substitute_index(i, start) for i in indices),
        tuple(spans),
        mode,
        tuple(along[axis] for axis in operand.axes if axis in along) if len(axes) > 1 else (),
    )
