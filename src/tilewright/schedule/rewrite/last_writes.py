"""last_writes: for each element the last write to it, which are then done in any order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tilewright.ir import (
    I32,
    I64,
    ZERO,
    Access,
    Binary,
    Compare,
    Const,
    Expr,
    If,
    Index,
    Iter,
    Load,
    OfIndex,
    Opaque,
    Pred,
    Program,
    Stage,
    Store,
    buffer,
    condition_of,
    floordiv,
    fresh_name,
    holds,
    imax,
    imin,
    index,
    iter_env,
    mod,
    simplify_expr,
    stmt_loads,
    store,
    var,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import check_name, stage_called, taken_names
from tilewright.support import ScheduleError


@primitive("last_writes", phase="program")
def last_writes(program: Program, stage: str, name: str) -> Program:
    """Find in a tensor ``name`` which write of ``stage`` to an element is the last, and do only that one.

    ``stage`` must be an update in order whose values do not depend on what it changes, such as a scatter that
    replaces elements. ``<name>_start`` fills ``name`` with -1; the stage ``name`` keeps the largest number of
    a write to each element, in no order, so that threads can share it; ``stage`` then goes over the elements.
    Results are the same.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X, U = lang.placeholder((9,), name="X"), lang.placeholder((4,), name="U")
    >>> I = lang.placeholder((4,), "i32", name="I")
    >>> p = lang.program([X, I, U], [lang.scatter(X, I, U, name="S")])
    >>> s = Schedule(p).last_writes("S_update", "L")
    >>> for each in s.program.stages[2:]:
    ...     print([f"{it.kind} {it.name}" for it in each.iters], [it.extent for it in each.iters])
    ['red p0'] [Index(4)]
    ['par i0'] [Index(9)]

    Raises ScheduleError for other stages, sizes that are not constant, and a name that is taken.
    """
    old = stage_called(program, stage)
    check_name(name, taken_names(program), f"{name}_start")
    found = _replacing(program, old)
    if isinstance(found, str):
        raise ScheduleError(f"stage {stage!r} does not replace elements in order: {found}")
    return _rewritten(program, old, found, name)


@dataclass(frozen=True, slots=True)
class _Replacing:
    """``if guard: write``; of the iterators ``parallel`` the dimension that each of them numbers."""

    guard: Pred
    write: Access
    parallel: dict[str, int]


def _replacing(program: Program, stage: Stage) -> _Replacing | str:
    guard, body = condition_of(stage.body)
    if stage.init is not None or not isinstance(body, Store) or len(body.writes) != 1:
        return "it is not one write"
    (write,) = body.writes
    if not any(it.kind == "ord" for it in stage.iters) or any(it.kind == "red" for it in stage.iters):
        return "its iterators have no order"
    shape = program.buffer(write.buffer).shape
    if not all(it.lo == ZERO and it.extent.is_const for it in stage.iters) or not all(
        n.is_const for n in shape
    ):
        return "its sizes are not constant"
    if any(ld.buffer == write.buffer for ld in stmt_loads(stage.body)):
        return "its values depend on what it changes"
    parallel: dict[str, int] = {}
    for it in stage.iters:
        if it.kind == "par":
            at = [d for d, i in enumerate(write.indices) if i == var(it.name)]
            if not at:
                return f"its axis {it.name!r} is no index of what it writes"
            parallel[it.name] = at[0]
    return _Replacing(guard, write, parallel)


def _rewritten(program: Program, old: Stage, r: _Replacing, name: str) -> Program:
    held = program.buffer(r.write.buffer)
    ordered = [it for it in old.iters if it.kind == "ord"]
    count = prod(it.extent.as_int() for it in ordered)
    dtype = I32 if count <= int(I32.max_value) else I64
    taken = {it.name for it in old.iters} | {p.name for p in program.params}
    names = []
    for d in range(len(held.shape)):
        names.append(fresh_name(f"i{d}", taken))
        taken.add(names[-1])
    box = tuple(Iter(each, ZERO, extent, "par") for each, extent in zip(names, held.shape, strict=True))
    here = tuple(var(each) for each in names)

    start = Stage(f"{name}_start", box, store(name, here, Const(-1, dtype)), None, old.source)
    number = index(0)
    for it in ordered:
        number = number * it.extent.as_int() + var(it.name)
    latest = Binary("max", Load(name, r.write.indices, dtype), OfIndex(number, dtype))
    found: Stage = replace(
        old,
        name=name,
        iters=tuple(replace(it, kind="red") if it.kind == "ord" else it for it in old.iters),
        body=_where(r.guard, store(name, r.write.indices, latest)),
    )

    last = Load(name, here, dtype)
    at = imin(imax(index(Opaque(last)), 0), count - 1)
    values: dict[str, Index] = {}
    for it in reversed(ordered):
        extent = it.extent.as_int()
        values[it.name] = mod(at, extent) if it is not ordered[0] else at
        at = floordiv(at, extent)
    for it in old.iters:
        if it.kind == "par":
            d = r.parallel[it.name]
            own = here[d]
            values[it.name] = own if held.shape[d] == it.extent else imin(own, it.extent - 1)
    env = iter_env(box)
    value: Expr = simplify_expr(r.write.value.substitute(values), env)
    written = holds(Compare("ge", last, Const(0, dtype)))
    final = replace(old, iters=box, body=If((written,), store(held.name, here, value)))
    n = program.stages.index(old)
    return replace(
        program,
        temps=(*program.temps, buffer(name, held.shape, dtype)),
        stages=(*program.stages[:n], start, found, final, *program.stages[n + 1 :]),
    )


def _where(guard: Pred, step: Store) -> Store | If:
    return If(guard, step) if guard else step
