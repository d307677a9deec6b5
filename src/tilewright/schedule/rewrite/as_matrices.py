"""as_matrices: a sum of products becomes a product of two matrices, made of its operands as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.analysis import guards_of, narrowed, roles_of, unchanged
from tilewright.ir import (
    GLOBAL,
    I64,
    ZERO,
    Access,
    Binary,
    Buffer,
    Compare,
    Condition,
    Const,
    DType,
    Expr,
    Index,
    Iter,
    Load,
    OfIndex,
    Program,
    Select,
    Stage,
    Store,
    condition_of,
    floordiv,
    ge0,
    iter_env,
    mod,
    simplify_deep,
    simplify_expr,
    store,
    substitute_index,
    var,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import check_name, stage_called, taken_names
from tilewright.support import ScheduleError

#: Bytes of the widest access.
ACCESS = 16
AXES = ("b", "i", "j", "k")
"""Iterators of the matrices: several products side by side, rows, columns, terms."""


@primitive("as_matrices", phase="program")
def as_matrices(
    program: Program, stage: str, multiples: Sequence[int], name: str, *, narrow: bool = False
) -> Program:
    """Compute ``stage``, a sum of products, as products of matrices: the operands read into matrices first.

    Parallel axes that move one factor become rows ``i`` or columns ``j``, those that move both the number
    ``b`` of the product, reduction axes the terms ``k``. The matrices ``<name>_a[b, k, i]`` and
    ``<name>_b[b, k, j]`` hold the factors as the sum reads them, zero where a condition leaves a term out and
    beyond the last row, column and term: ``multiples`` says of what their extents are multiples. Their
    product is ``name[b, i, j]``, from which ``stage`` takes its result. Computed tile by tile where they are
    used, none of them is ever stored: a convolution is then a product without its matrices in memory.
    With ``narrow`` the matrices hold what factors are conversions or roundings of (f16, bf16, bytes, numbers
    that become TF32), and the product converts: what matrix units take.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X, W = lang.placeholder((6,), name="X"), lang.placeholder((2, 3), name="W")
    >>> r = lang.reduce_axis(3, "r")
    >>> C = lang.compute((2, 4), lambda o, x: lang.sum(W[o, r] * X[x + r], axis=r), name="C")
    >>> print(Schedule(lang.program([X, W], [C])).as_matrices("C", (1, 1, 4), "P"))
    func main:
        alloc P_a: f32[1, 4, 2] global
        alloc P_b: f32[1, 4, 4] global
        alloc P: f32[1, 2, 4] global
        for b in 0:1:
            for k in 0:4:
                for i in 0:2:
                    block P_a(par b=b, par k=k, par i=i):
                        P_a[b, k, i] = select(ge(i64[-k + 2], i64(0)), W[i, k], f32(0.0))
        for P_b_b in 0:1:
            for P_b_k in 0:4:
                for j in 0:4:
                    block P_b(par b=P_b_b, par k=P_b_k, par j=j):
                        P_b[b, k, j] = select(ge(i64[-k + 2], i64(0)), X[j + k], f32(0.0))
        for P_b_2 in 0:1:
            for P_i in 0:2:
                for P_j in 0:4:
                    for P_k in 0:4:
                        block P(par b=P_b_2, par i=P_i, par j=P_j, red k=P_k):
                            init:
                                P[b, i, j] = f32(0.0)
                            P[b, i, j] = (P[b, i, j] + (P_a[b, k, i] * P_b[b, k, j]))
        for o in 0:2:
            for x in 0:4:
                block C(par o=o, par x=x):
                    C[o, x] = P[0, o, x]

    Raises ScheduleError where the stage is no sum of products of two factors, where it has no rows or no
    columns, or sizes that are not known, for conditions that neither factor can hide, and for a taken name.
    """
    old = stage_called(program, stage)
    check_name(name, taken_names(program), f"{name}_a", f"{name}_b")
    roles = roles_of(old)
    if isinstance(roles, str):
        raise ScheduleError(
            f"stage {stage!r} is no product of matrices: {roles}", hint="schedule it as the sum that it is"
        )
    if len(multiples) != 3 or any(type(n) is not int or n < 1 for n in multiples):
        raise ScheduleError("multiples are three numbers from 1 on: for rows, columns and terms")
    batch, *sizes = roles.extents
    whole = [-(-n // m) * m for n, m in zip(sizes, multiples, strict=True)]
    shapes = {"b": batch, **dict(zip(AXES[1:], whole, strict=True))}
    # whatever an iterator is to the matrices, as part of that matrix's index
    values: dict[str, Index] = {}
    for axis, of in zip(AXES, (roles.batch, roles.rows, roles.columns, roles.sums), strict=True):
        values |= _parts(axis, of)
    real = {"b": batch, **dict(zip(AXES[1:], sizes, strict=True))}
    guards = guards_of(roles)
    assert not isinstance(guards, str)  # roles_of has asked
    left, right = guards
    made: list[Stage] = []
    buffers: list[Buffer] = []
    stored = [narrowed(factor) if narrow else (factor, unchanged) for factor in (roles.a, roles.b)]
    for suffix, axes, (factor, _), guard in zip("ab", ("bki", "bkj"), stored, (left, right), strict=True):
        iters = tuple(Iter(axis, ZERO, Index(shapes[axis]), "par") for axis in axes)
        inside = tuple(Iter(axis, ZERO, Index(real[axis]), "par") for axis in axes)
        env = iter_env(inside)
        value = simplify_expr(factor.substitute(values), env)
        for cond in (
            *_within(axes, real, shapes, value.dtype.bytes),
            *(_placed(c, values, env) for c in guard),
        ):
            value = Select(_holds(cond), value, zero_of(value.dtype))
        indices = tuple(var(axis) for axis in axes)
        buffers.append(Buffer(f"{name}_{suffix}", tuple(it.extent for it in iters), value.dtype, GLOBAL))
        body = Store((Access(f"{name}_{suffix}", indices, value),))
        made.append(Stage(f"{name}_{suffix}", iters, body, None, old.source))
    (w,) = _write(old)
    dtype = w.value.dtype
    place = tuple(var(axis) for axis in "bij")
    factors = [read(Load(f"{name}_{s}", tuple(map(var, axes)), e.dtype))
               for s, axes, (e, read) in zip("ab", ("bki", "bkj"), stored, strict=True)]  # fmt: skip
    iters = tuple(Iter(axis, ZERO, Index(shapes[axis]), "red" if axis == "k" else "par") for axis in AXES)
    total = Binary("add", Load(name, place, dtype), Binary("mul", factors[0], factors[1]))
    made.append(Stage(name, iters, store(name, place, total), store(name, place, zero_of(dtype)), old.source))
    buffers.append(Buffer(name, tuple(Index(shapes[axis]) for axis in "bij"), dtype, GLOBAL))
    here = tuple(_index(of) for of in (roles.batch, roles.rows, roles.columns))
    kept = tuple(it for it in old.iters if it.kind == "par")
    result = replace(old, iters=kept, body=store(w.buffer, w.indices, Load(name, here, dtype)), init=None)
    at = program.stages.index(old)
    stages = (*program.stages[:at], *made, result, *program.stages[at + 1 :])
    return replace(program, stages=stages, temps=(*program.temps, *buffers))


def _write(stage: Stage) -> tuple[Access, ...]:
    _, body = condition_of(stage.body)
    assert isinstance(body, Store)  # roles_of has seen it
    return body.writes


def _index(iters: Sequence[Iter]) -> Index:
    """The number of a point among those of ``iters``, the last one moving fastest."""
    total = ZERO
    for it in iters:
        total = total * it.extent.as_int() + var(it.name)
    return total


def _parts(axis: str, iters: Sequence[Iter]) -> dict[str, Index]:
    """The iterators by the number of their point."""
    out: dict[str, Index] = {}
    stride = 1
    for n, it in enumerate(reversed(iters)):
        at = floordiv(var(axis), stride)
        out[it.name] = at if n == len(iters) - 1 else mod(at, it.extent.as_int())
        stride *= it.extent.as_int()
    return out


def zero_of(dtype: DType) -> Const:
    """Zero."""
    return Const(0.0 if dtype.is_float else 0, dtype)


def _within(axes: str, real: dict[str, int], whole: dict[str, int], nbytes: int) -> list[Condition]:
    """Where an element is one of the sum's, and not one that fills up."""
    out = []
    for axis in axes:
        if real[axis] < whole[axis]:
            # groups of elements that lie together are in or out as a whole, for accesses of many at once
            group = next(n for n in (16, 8, 4, 2, 1) if real[axis] % n == 0 and n * nbytes <= ACCESS)
            out.append(ge0(Index(real[axis] // group - 1) - floordiv(var(axis), group)))
    return out


def _placed(c: Condition, values: dict[str, Index], env: dict[str, tuple[Index, Index]]) -> Condition:
    assert c.index is not None  # those of data are refused
    return replace(c, index=simplify_deep(substitute_index(c.index, values, lambda e: e), env))


def _holds(c: Condition) -> Expr:
    assert c.index is not None  # as above
    return Compare(c.op, OfIndex(c.index, I64), Const(0, I64))
