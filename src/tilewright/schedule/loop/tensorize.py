"""tensorize: a nest becomes one instruction of the machine."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

from tilewright.ir import (
    ZERO,
    Binary,
    Block,
    Cast,
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
from tilewright.target import Instruction, Operand, find_instruction


class _MismatchError(Exception):
    """What keeps a nest from being an instruction."""


@primitive("tensorize", phase="loop")
def tensorize(func: LoopFunction, loop: str, instr: str) -> LoopFunction:
    """Do ``loop``, with everything in it, by the instruction ``instr`` of a target's table.

    The nest must compute what the instruction does: ``c[...] += cast(a[...]) * cast(b[...])`` in the element
    types of its operands, one loop for each of its axes. Which loop is which axis, and which factor which
    operand, is found. Axes along which the instruction works lane by lane are not part of the nest: a vector
    loop around it has as many lanes as it takes.

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
        instruction = find_instruction(instr)
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
        windows = _windows(term, instruction, extents, env)
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
    s: Stmt, instruction: Instruction, extents: Mapping[str, int], env: Env
) -> tuple[Window, Window, Window]:
    """The operands of the instruction, in its order: result, a, b."""
    axes = dict(instruction.inner_axes)
    if sorted(axes.values()) != sorted(extents.values()):
        wanted = ", ".join(f"{name} of {n}" for name, n in axes.items())
        given = ", ".join(f"{name} of {n}" for name, n in extents.items())
        raise _MismatchError(f"its axes are {wanted}, the loops {given}")
    result, left, right = _product(s, instruction)
    reason = ""
    for names in itertools.permutations(extents):
        loops = dict(zip(axes, names, strict=True))
        if any(extents[loops[axis]] != n for axis, n in axes.items()):
            continue
        for a, b in ((left, right), (right, left)):
            try:
                return (
                    _window(result, instruction.result, instruction, loops, env, "rw"),
                    _window(a, instruction.a, instruction, loops, env, "r"),
                    _window(b, instruction.b, instruction, loops, env, "r"),
                )
            except _MismatchError as error:
                reason = reason or str(error)
    raise _MismatchError(reason)


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
    ld: Load, operand: Operand, instruction: Instruction, loops: Mapping[str, str], env: Env, mode: str
) -> Window:
    """The elements of ``ld`` that one execution touches."""
    if ld.dtype != operand.dtype:
        raise _MismatchError(f"{ld.buffer} has elements of {ld.dtype}, {operand.name} is of {operand.dtype}")
    extents = dict(instruction.inner_axes)
    along: dict[int, str] = {}
    indices = [simplify(i, env) for i in ld.indices]
    for axis, loop in loops.items():
        moved = [d for d, i in enumerate(indices) if loop in i.vars]
        if axis not in operand.axes:
            if moved:
                raise _MismatchError(f"{ld.buffer} moves with {loop!r}, {operand.name} has no such axis")
            continue
        if len(moved) != 1 or moved[0] in along or loop in (indices[moved[0]] - var(loop)).vars:
            raise _MismatchError(
                f"{loop!r} must move {ld.buffer} along one dimension of its own by single elements"
            )
        along[moved[0]] = axis
    order = [along[d] for d in sorted(along)]
    wanted = [axis for axis in operand.axes if axis in loops]
    if order != wanted:
        raise _MismatchError(
            f"{ld.buffer} has the axes in the order {', '.join(order)}, {operand.name} {', '.join(wanted)}"
        )
    start = dict.fromkeys(loops.values(), ZERO)
    return Window(
        ld.buffer,
        tuple(substitute_index(i, start) for i in indices),
        tuple(extents[along[d]] if d in along else 1 for d in range(len(indices))),
        "rw" if mode == "rw" else "r",
    )
