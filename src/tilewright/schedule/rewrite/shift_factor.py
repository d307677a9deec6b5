"""shift_factor: signed bytes become unsigned ones, 128 more, and sums are corrected by what that adds."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.ir import (
    I8,
    I32,
    LOCAL,
    U8,
    ZERO,
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
    store,
    var,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import check_name, operand_of, stage_called, taken_names
from tilewright.schedule.rewrite.factor_out import factor_type, product, sum_of_products, zero
from tilewright.support import ScheduleError

SHIFT: Final = 128
"""What is added to signed bytes: they are unsigned ones then."""


@primitive("shift_factor", phase="program")
def shift_factor(program: Program, stage: str, operand: int, name: str) -> Program:
    """Multiply the ``operand``-th load of ``stage``, signed bytes, as unsigned bytes: 128 more than it is.

    ``sum(a * b) = sum((a + 128) * b) - 128 * sum(b)``, exactly, in ``i32``: for instructions that take one
    factor unsigned. The tensor ``name`` is the operand shifted, ``<name>_sum`` the products, ``<name>_rest``
    the sums of the other factor; the stage puts them together. (ISA Mapper, Sec. 2.3: distributing.)

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> A, B = lang.placeholder((4, 8), "i8", name="A"), lang.placeholder((8, 6), "i8", name="B")
    >>> k = lang.reduce_axis(8, "k")
    >>> C = lang.compute(
    ...     (4, 6), lambda i, j: lang.sum(lang.cast(A[i, k], "i32") * lang.cast(B[k, j], "i32"), k), name="C"
    ... )
    >>> for s in Schedule(lang.program([A, B], [C])).shift_factor("C", 0, "U").program.stages:
    ...     print(f"{s.name}: {s.body.writes[0].value}")
    U: cast((cast(A[d0, d1], i32, wrap) + i32(128)), u8, wrap)
    U_rest: (U_rest[j] + cast(B[k, j], i32, wrap))
    U_sum: (U_sum[i, j] + (cast(U[i, k], i32, wrap) * cast(B[k, j], i32, wrap)))
    C: (U_sum[i, j] - (U_rest[j] * i32(128)))

    Raises ScheduleError where the stage is no sum of two such factors in ``i32``, for an operand of another
    type, and for names that are taken.
    """
    old = stage_called(program, stage)
    parts = [f"{name}_sum", f"{name}_rest"]
    check_name(name, taken_names(program), *parts)
    load = operand_of(old, operand)
    factors = sum_of_products(old)
    elements = [factor_type(f) for f in factors]
    if len(factors) != 2 or load not in elements or load.dtype != I8 or factors[0].dtype != I32:
        raise ScheduleError(
            f"operand {operand} of stage {stage!r} is no factor of signed bytes in a sum of products in i32"
        )
    if any(it.lo.vars or it.hi.vars for it in old.iters):
        raise ScheduleError(f"the range of an axis of stage {stage!r} depends on other axes")
    (w,) = old.body.writes if isinstance(old.body, Store) else ()
    at = elements.index(load)
    shape = program.buffer(load.buffer).shape
    here = tuple(var(f"d{n}") for n in range(len(shape)))
    shifted = Binary("add", Cast(Load(load.buffer, here, I8), I32), Const(SHIFT, I32))
    made = Stage(
        name,
        tuple(Iter(f"d{n}", ZERO, extent, "par") for n, extent in enumerate(shape)),
        store(name, here, Cast(shifted, U8)),
    )
    other = factors[1 - at]
    rest = _summed(old, parts[1], [other], [it for it in old.iters if it.name in other.vars])
    mine = Cast(Load(name, load.indices, U8), I32)
    sums = _summed(old, parts[0], [mine, other] if at == 0 else [other, mine], list(old.iters))
    par = tuple(it for it in old.iters if it.kind == "par")
    back = Binary("mul", rest[1], Const(SHIFT, I32))
    last = replace(old, iters=par, body=store(w.buffer, w.indices, Binary("sub", sums[1], back)), init=None)
    n = program.stages.index(old)
    stages = (*program.stages[:n], made, rest[0], sums[0], last, *program.stages[n + 1 :])
    temps = (*program.temps, Buffer(name, shape, U8, LOCAL), rest[2], sums[2])
    return replace(program, stages=stages, temps=temps)


def _summed(old: Stage, name: str, factors: list[Expr], spanned: list[Iter]) -> tuple[Stage, Load, Buffer]:
    """A sum of products over all reduction axes, its element, and its buffer."""
    par = [it for it in spanned if it.kind == "par"]
    red = [it for it in old.iters if it.kind == "red"]
    indices = tuple(var(it.name) - it.lo for it in par) or (ZERO,)
    total = Load(name, indices, I32)
    stage = Stage(
        name,
        (*par, *red),
        store(name, indices, Binary("add", total, product(factors))),
        store(name, indices, zero(total)),
        old.source,
    )
    return stage, total, Buffer(name, tuple(it.extent for it in par) or (ZERO + 1,), I32, LOCAL)
