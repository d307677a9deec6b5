"""factor_out: factors that some of a sum's axes do not move are multiplied after the sum over these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.analysis import operands_of, reduction_of, starts_at_zero
from tilewright.ir import (
    LOCAL,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    Iter,
    Load,
    Program,
    Stage,
    Store,
    stmt_loads,
    store,
    var,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import (
    check_name,
    operand_of,
    stage_called,
    taken_names,
    with_operand,
)
from tilewright.support import ScheduleError


@primitive("factor_out", phase="program")
def factor_out(program: Program, stage: str, operands: Sequence[int], name: str) -> Program:
    """Sum the products of ``stage`` without ``operands`` (by number, from 0) into a tensor ``name`` first.

    The first sum goes over the reduction axes that the operands do not depend on; the stage multiplies and
    sums the rest. Constants are factored out in any case. (ISA Mapper, Sec. 2.3: factoring, as for separable
    depthwise convolutions.) Results of floating-point programs are rounded differently.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> A, D, P = (lang.placeholder(s, name=n) for s, n in (((4, 3), "A"), ((3,), "D"), ((8,), "P")))
    >>> d = lang.reduce_axis(3, "d")
    >>> C = lang.compute((4, 8), lambda i, k: lang.sum(A[i, d] * D[d] * P[k], axis=d), name="C")
    >>> print(Schedule(lang.program([A, D, P], [C])).factor_out("C", (2,), "T"))
    func main:
        alloc T: f32[4] local
        for i in 0:4:
            for d in 0:3:
                block T(par i=i, red d=d):
                    init:
                        T[i] = f32(0.0)
                    T[i] = (T[i] + (A[i, d] * D[d]))
        for C_i in 0:4:
            for k in 0:8:
                block C(par i=C_i, par k=k):
                    C[i, k] = (T[i] * P[k])

    Raises ScheduleError where the stage is no sum of products without conditions, where the operands depend
    on all of its reduction axes, or are all of its factors, and for a name that is taken.
    """
    old = stage_called(program, stage)
    check_name(name, taken_names(program))
    taken = [operand_of(old, n) for n in operands]
    factors = sum_of_products(old)
    outer = [f for f in factors if isinstance(f, Const) or any(ld in taken for ld in _loads(f))]
    inner = [f for f in factors if f not in outer]
    if not outer or not inner:
        raise ScheduleError(f"the operands {tuple(operands)} are none or all factors of stage {stage!r}")
    moved = {v for f in outer for v in f.vars}
    done = [it for it in old.iters if it.kind == "red" and it.name not in moved]
    if not done:
        raise ScheduleError(
            f"the operands {tuple(operands)} depend on all reduction axes of stage {stage!r}",
            hint="factor out operands that some of the sum does not move",
        )
    used = {v for f in inner for v in f.vars}
    kept = [it for it in old.iters if it not in done and it.name in used]
    if any(it.lo.vars or it.hi.vars for it in (*kept, *done)):
        raise ScheduleError(f"the range of an axis of stage {stage!r} depends on other axes")
    (w,) = old.body.writes if isinstance(old.body, Store) else ()
    indices = tuple(var(it.name) - it.lo for it in kept) or (var(done[0].name) * 0,)
    shape = tuple(it.extent for it in kept) or (done[0].extent * 0 + 1,)
    part = Load(name, indices, w.value.dtype)
    made = Stage(
        name,
        (*(Iter(it.name, it.lo, it.hi, "par") for it in kept), *done),
        store(name, indices, Binary("add", part, product(inner))),
        store(name, indices, zero(part)),
        old.source,
    )
    rest = tuple(it for it in old.iters if it not in done)
    value: Expr = product([part, *outer])
    init = old.init
    if any(it.kind == "red" for it in rest):
        value = Binary("add", Load(w.buffer, w.indices, w.value.dtype), value)
    else:
        init = None
    new = replace(old, iters=rest, body=store(w.buffer, w.indices, value), init=init)
    return with_operand(program, old, new, made, Buffer(name, shape, w.value.dtype, LOCAL))


def sum_of_products(stage: Stage) -> list[Expr]:
    """The factors that a stage sums, starting from zero; ScheduleError where it does something else."""
    update = reduction_of(stage)
    if update is not None and update.op == "add" and not update.guard and starts_at_zero(stage):
        if update.old not in _loads(update.term):
            return operands_of(update.term, "mul")
    raise ScheduleError(
        f"stage {stage.name!r} is no sum of products from zero without conditions",
        hint="decompose it, or take its padding apart first",
    )


def product(factors: Sequence[Expr]) -> Expr:
    """The product of factors from the left."""
    total = factors[0]
    for f in factors[1:]:
        total = Binary("mul", total, f)
    return total


def zero(e: Expr) -> Const:
    """The zero of an expression's type."""
    return Const(0.0 if e.dtype.is_float else 0, e.dtype)


def _loads(e: Expr) -> list[Load]:
    return list(stmt_loads(store("_", (), e)))


def factor_type(e: Expr) -> Load | None:
    """The element that a factor is, itself or converted; ``None`` for anything else."""
    inner = e.a if isinstance(e, Cast) and e.mode == "wrap" else e
    return inner if isinstance(inner, Load) else None
