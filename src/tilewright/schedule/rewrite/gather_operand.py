"""gather_operand: an operand of a stage becomes a tensor of its own, indexed by the stage's axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import (
    LOCAL,
    Access,
    Buffer,
    Iter,
    Load,
    Program,
    Stage,
    Store,
    map_loads,
    var,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import (
    check_bounds,
    check_name,
    operand_of,
    stage_called,
    taken_names,
    with_operand,
)
from tilewright.support import ScheduleError


@primitive("gather_operand", phase="program")
def gather_operand(program: Program, stage: str, operand: int, axes: Sequence[str], name: str) -> Program:
    """Compute the ``operand``-th load of ``stage`` (counted from 0) into a tensor ``name[axes...]`` first.

    The load may then be packed, transposed or kept close by scheduling the new stage ``name`` like any other,
    e.g. computing it at a loop of its consumer. ``axes`` are all iterators that the load depends on, in the
    order of the new tensor's dimensions.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> A, B = lang.placeholder((4, 5), name="A"), lang.placeholder((6, 10), name="B")
    >>> k = lang.reduce_axis(5, "k")
    >>> C = lang.compute((4, 6), lambda i, j: lang.sum(A[i, k] * B[j, 2 * k], axis=k), name="C")
    >>> s = Schedule(lang.program([A, B], [C]))
    >>> print(s)
    func main:
        for i in 0:4:
            for j in 0:6:
                for k in 0:5:
                    block C(par i=i, par j=j, red k=k):
                        init:
                            C[i, j] = f32(0.0)
                        C[i, j] = (C[i, j] + (A[i, k] * B[j, 2*k]))
    >>> print(s.gather_operand("C", 1, ("k", "j"), "P"))
    func main:
        alloc P: f32[5, 6] local
        for k in 0:5:
            for j in 0:6:
                block P(par k=k, par j=j):
                    P[k, j] = B[j, 2*k]
        for i in 0:4:
            for C_j in 0:6:
                for C_k in 0:5:
                    block C(par i=i, par j=C_j, red k=C_k):
                        init:
                            C[i, j] = f32(0.0)
                        C[i, j] = (C[i, j] + (A[i, k] * P[k, j]))

    Raises ScheduleError for an unknown stage or operand, axes that are not those of the load, ranges that
    depend on other axes, indices that may be out of bounds, or a name that is taken.
    """
    old = stage_called(program, stage)
    load = operand_of(old, operand)
    check_name(name, taken_names(program))
    iters = {it.name: it for it in old.iters}
    used = {v for i in load.indices for v in i.vars}
    if set(axes) != used or len(set(axes)) != len(axes):
        raise ScheduleError(
            f"{load} depends on {', '.join(sorted(used))}, not on {', '.join(axes)}",
            hint="name each of its iterators once",
        )
    if any((iters[a].lo.vars | iters[a].hi.vars) for a in axes):
        raise ScheduleError(f"the range of an axis of {load} depends on other axes")
    check_bounds(program, old, load, "gather operands that are in bounds for all values of the iterators")
    # the new tensor starts at zero in every dimension
    shift = {a: iters[a].lo for a in axes}
    indices = tuple(var(a) - shift[a] for a in axes)
    buffer = Buffer(name, tuple(iters[a].extent for a in axes), load.dtype, LOCAL)
    domain = tuple(Iter(a, iters[a].lo, iters[a].hi, "par") for a in axes)
    made = Stage(name, domain, Store((Access(name, indices, load),)), None, old.source)
    new_load = Load(name, indices, load.dtype)
    body = map_loads(old.body, lambda ld: new_load if ld == load else ld)
    return with_operand(program, old, replace(old, body=body), made, buffer)
