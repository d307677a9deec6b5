"""tensorize: a nest becomes one instruction of the machine."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tilewright.ir import (
    GLOBAL,
    TILE,
    ZERO,
    Along,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Compare,
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
    Select,
    Stmt,
    Store,
    Unary,
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
from tilewright.target import BUILT_IN, Instruction, Operand, Operations, find_operation

COMMUTATIVE: Final = frozenset({"add", "mul", "and", "or", "xor"})
"""Operations whose operands may change places; minima of zeros with two signs may not."""


class _MismatchError(Exception):
    """What keeps a nest from being an instruction."""


@primitive("tensorize", phase="loop")
def tensorize(
    func: LoopFunction, loop: str, instr: str, *, operations: Operations = BUILT_IN
) -> LoopFunction:
    """Do ``loop``, with everything in it, by the instruction ``instr`` of the schedule's target.

    The nest must compute what the instruction's stage does, ``c[...] += cast(a[...]) * cast(b[...])`` and the
    like, in the element types of its operands, one loop for each of its axes. Which loop is which axis, and
    which factor which operand, is found. Axes along which the instruction works lane by lane are not part of
    the nest: a vector loop around it has as many lanes as it takes. Instructions that move or clear tiles are
    nests of ``t[...] = s[...]`` and ``t[...] = 0``. An operand with a scope, such as ``tile``, must be there.

    What an operand in memory takes together lies together, and code generation asks that lanes lie side by
    side: ``set_layout`` and ``cache`` put them there before.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> A = lang.placeholder((8,), "bf16", name="A")
    >>> B = lang.placeholder((8, 16), "bf16", name="B")
    >>> k = lang.reduce_axis(8, "k")
    >>> C = lang.compute(
    ...     (16,), lambda j: lang.sum(lang.cast(A[k], "f32") * lang.cast(B[k, j], "f32"), k), name="C"
    ... )
    >>> s = Schedule(lang.program([A, B], [C])).split("k", 2).reorder("k_o", "j", "k_i")
    >>> s = s.decompose_init("C", "k_o").vectorize("j").set_layout("B", ("d0//2", "d1", "d0%2"))
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
        instruction = find_operation(instr, operations)
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
        windows = _windows(term, instruction, extents, env, buffers_of(func))
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
    operation: Instruction,
    extents: Mapping[str, int],
    env: Env,
    buffers: Mapping[str, Buffer],
) -> tuple[Window, ...]:
    """The operands of the instruction, in its order: the result first."""
    axes = dict(operation.inner_axes)
    if not _fits(axes, extents, operation.partial):
        wanted = ", ".join(f"{name} of {n}" for name, n in axes.items())
        given = ", ".join(f"{name} of {n}" for name, n in extents.items())
        most = ", or less" if operation.partial else ""
        raise _MismatchError(f"its axes are {wanted}{most}, the loops {given}")
    candidates = _bindings(s, operation)
    written: WindowMode = "rw" if operation.accumulates else "w"
    reason = ""
    for names in itertools.permutations(extents):
        loops = dict(zip(axes, names, strict=True))
        if not all(_part_of(axis, extents[loops[axis]], n, operation.partial) for axis, n in axes.items()):
            continue
        for found in candidates:
            try:
                return tuple(
                    _window(found[o.name], o, axes, extents, loops, env, buffers, "r" if n else written)
                    for n, o in enumerate(operation.operands)
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


def _bindings(s: Stmt, operation: Instruction) -> list[dict[str, Load]]:
    """The elements that can be the operands, by name: each way in which a statement is the instruction's."""
    (pattern,) = operation.stage.body.writes if isinstance(operation.stage.body, Store) else ()
    form = f"{pattern.buffer}[{', '.join(map(str, pattern.indices))}] = {pattern.value} is needed"
    if operation.epilogue or operation.stage.init is not None:
        raise _MismatchError("it is more than one assignment of an element")
    if not isinstance(s, Store) or len(s.writes) != 1:
        raise _MismatchError(form)
    w = s.writes[0]
    written = {pattern.buffer: Load(w.buffer, w.indices, w.value.dtype)}
    found = list(_unified(pattern.value, w.value, written))
    if not found:
        raise _MismatchError(form)
    return found


def _unified(pattern: Expr, value: Expr, bound: Mapping[str, Load]) -> Iterator[dict[str, Load]]:
    """The ways to bind operands so that an instruction's expression is a program's.

    Element types are compared by :func:`_window`, which names them.
    """
    if isinstance(pattern, Load):
        if isinstance(value, Load) and bound.get(pattern.buffer, value) == value:
            yield {**bound, pattern.buffer: value}
    elif isinstance(pattern, Cast) and isinstance(pattern.a, Load) and isinstance(value, Load):
        yield from _unified(pattern.a, value, bound)
    elif isinstance(pattern, Cast):
        if isinstance(value, Cast) and (pattern.dtype, pattern.mode) == (value.dtype, value.mode):
            yield from _unified(pattern.a, value.a, bound)
    elif isinstance(pattern, Const):
        if pattern == value or (
            isinstance(value, Const) and pattern.dtype != value.dtype and pattern.value == value.value
        ):
            yield dict(bound)
    elif isinstance(pattern, Binary):
        if not isinstance(value, Binary) or pattern.op != value.op:
            return
        orders = [(value.a, value.b)]
        if pattern.op in COMMUTATIVE and value.a != value.b:
            orders.append((value.b, value.a))
        for a, b in orders:
            for first in _unified(pattern.a, a, bound):
                yield from _unified(pattern.b, b, first)
    elif isinstance(pattern, Unary):
        if isinstance(value, Unary) and pattern.op == value.op:
            yield from _unified(pattern.a, value.a, bound)
    elif isinstance(pattern, Call) and isinstance(value, Call) and pattern.fn == value.fn:
        yield from _all_unified(pattern.args, value.args, bound)
    elif isinstance(pattern, Compare) and isinstance(value, Compare) and pattern.op == value.op:
        yield from _all_unified((pattern.a, pattern.b), (value.a, value.b), bound)
    elif isinstance(pattern, Select) and isinstance(value, Select):
        yield from _all_unified((pattern.cond, pattern.a, pattern.b), (value.cond, value.a, value.b), bound)


def _all_unified(
    patterns: Sequence[Expr], values: Sequence[Expr], bound: Mapping[str, Load]
) -> list[dict[str, Load]]:
    """The ways to bind operands so that several expressions are a program's, each by itself."""
    found: list[dict[str, Load]] = [dict(bound)]
    for p, v in zip(patterns, values, strict=True):
        found = [new for old in found for new in _unified(p, v, old)]
    return found


def _window(
    ld: Load,
    operand: Operand,
    axes: Mapping[str, int],
    extents: Mapping[str, int],
    loops: Mapping[str, str],
    env: Env,
    buffers: Mapping[str, Buffer],
    mode: WindowMode,
) -> Window:
    """The elements of ``ld`` that one execution touches."""
    if ld.dtype != operand.dtype:
        raise _MismatchError(f"{ld.buffer} has elements of {ld.dtype}, {operand.name} is of {operand.dtype}")
    scope = buffers[ld.buffer].scope
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
        together = [other for other, a in along.items() if a.dim == moved[0]]
        alone = all(_share(operand, axis, other) for other in together)
        if not alone or (not operand.strided(axis) and step != _step(operand, axis)):
            raise _MismatchError(
                f"{loop!r} must move {ld.buffer} along one dimension of its own by single elements"
            )
        along[axis] = Along(moved[0], extents[loop], step)
    slowest = loops.get(operand.axes[0]) if operand.axes else None
    if slowest is not None and extents[slowest] % operand.group:
        raise _MismatchError(
            f"{slowest!r} must have a multiple of {operand.group} iterations, "
            f"as {operand.name} has groups of so many"
        )
    if not operand.scope:
        _check_together(buffers[ld.buffer], operand, indices, along, loops, env)
    start = dict.fromkeys(loops.values(), ZERO)
    spans = [1] * len(indices)
    for a in along.values():
        spans[a.dim] += (a.count - 1) * a.step
    apart = len(axes) > 1 or any(a.step != 1 for a in along.values())
    return Window(
        ld.buffer,
        tuple(substitute_index(i, start) for i in indices),
        tuple(spans),
        mode,
        tuple(along[axis] for axis in operand.axes if axis in along) if apart else (),
    )


def _check_together(
    buffer: Buffer,
    operand: Operand,
    indices: Sequence[Index],
    along: Mapping[str, Along],
    loops: Mapping[str, str],
    env: Env,
) -> None:
    """That elements lie in memory as the instruction reads them; lanes are those of a loop around it."""
    axes = [axis for axis in operand.axes if axis in along]
    places = [_distances(buffer, indices, loops[axis], along[axis].count, env) for axis in axes]
    if len(axes) == 1 and not operand.strided(axes[0]):
        lies = places[0] == list(range(along[axes[0]].count))
    elif len(axes) == 2 and not operand.strided(axes[1]):
        lies = operand.row_step(*places) is not None
    else:
        return
    if lies:
        return
    fast = along[axes[-1]].dim
    order = (
        f"groups of {operand.group} along dimension {along[axes[0]].dim}, then " if operand.group > 1 else ""
    )
    raise _MismatchError(
        f"the elements of {buffer.name} that it takes together do not lie together in memory: "
        f"store {order}dimension {fast} innermost (set_layout, cache)"
    )


def _distances(buffer: Buffer, indices: Sequence[Index], loop: str, count: int, env: Env) -> list[int]:
    """Elements in memory from the first iteration of a loop to each; -1 where that is not known."""
    strides = _strides(buffer)

    def place(n: int) -> list[Index]:
        at = tuple(substitute_index(i, {loop: Index(n)}) for i in indices)
        return [simplify(p, env) for p in buffer.physical(at)]

    def distance(n: int) -> int | None:
        steps = [b - a for a, b in zip(first, place(n), strict=True)]
        if any(not step.is_const or (step.const and not n) for step, n in zip(steps, strides, strict=True)):
            return None
        return sum(step.const * n for step, n in zip(steps, strides, strict=True))

    first = place(0)
    if buffer.layout is None and count > 1:
        step = distance(1)
        found = [None if step is None else n * step for n in range(count)]
    else:
        found = [distance(n) for n in range(count)]
    return [-1 if d is None else d for d in found]


def _strides(buffer: Buffer) -> list[int]:
    """Elements in memory from one index of each physical dimension to the next; 0 where that is open."""
    out: list[int] = []
    stride = 1
    shape = buffer.physical_shape
    for extent, (before, after) in zip(
        reversed(shape), reversed(buffer.halo or ((0, 0),) * len(shape)), strict=True
    ):
        out.append(stride)
        stride *= extent.const + before + after if extent.is_const else 0
    return out[::-1]


def _step(operand: Operand, axis: str) -> int:
    """How far an instruction's operand moves along a dimension with an axis."""
    return next(i.coefficient(axis) for i in operand.indices if axis in i.vars)


def _share(operand: Operand, axis: str, other: str) -> bool:
    """Whether two axes may move an operand along one dimension."""
    if operand.overlapping(axis) or operand.overlapping(other):
        return True
    return any({axis, other} <= i.vars for i in operand.indices)
