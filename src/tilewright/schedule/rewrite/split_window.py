"""split_window: a sum over neighbours becomes sums of two neighbours, of two such sums, and so on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tilewright.analysis import Update, extent_of, reduction_of
from tilewright.ir import (
    ZERO,
    Binary,
    Buffer,
    Const,
    DType,
    Expr,
    Iter,
    Load,
    Program,
    Stage,
    Store,
    fresh_name,
    iter_env,
    loads,
    simplify_expr,
    store,
    var,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import stage_called, taken_names
from tilewright.support import ScheduleError

#: Operators whose parts may be taken in any order; of the second ones parts may overlap.
APART: Final = ("add", "mul")
OVERLAPPING: Final = ("min", "max")


@dataclass(frozen=True, slots=True)
class _Found:
    """The update of a stage along a window, and its first term by the place where the window begins."""

    update: Update
    first: Expr
    along: Iter
    window: Iter


@primitive("split_window", phase="program")
def split_window(program: Program, stage: str, axis: str, window: str) -> Program:
    """Compute what ``stage`` reduces along ``window`` from results for two neighbours, four, eight.

    Terms depend on ``axis`` and ``window`` by their sum alone, so that neighbours share them. With ``n``
    terms a result takes ``log2(n)`` operations and one for each binary digit of ``n``, of extrema (which may
    overlap) one. No term is taken away again: integers are exact, floats are added in another order.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((12,), name="X")
    >>> k = lang.reduce_axis(5, "k")
    >>> s = Schedule(lang.program([X], [lang.compute((8,), lambda x: lang.sum(X[x + k], k), name="S")]))
    >>> print(s.split_window("S", "x", "k"))
    func main:
        alloc S_1: f32[12] global
        alloc S_2: f32[11] global
        alloc S_4: f32[9] global
        for x in 0:12:
            block S_1(par x=x):
                S_1[x] = X[x]
        for S_2_x in 0:11:
            block S_2(par x=S_2_x):
                S_2[x] = (S_1[x] + S_1[x + 1])
        for S_4_x in 0:9:
            block S_4(par x=S_4_x):
                S_4[x] = (S_2[x] + S_2[x + 2])
        for S_x in 0:8:
            block S(par x=S_x):
                S[x] = (S_4[x] + S_1[x + 4])

    Raises ScheduleError for an unknown stage or axis, and for what is no such reduction from its neutral
    value, of two terms and more, over a constant range.
    """
    old = stage_called(program, stage)
    found = _found(old, axis, window)
    if found is None or program.buffer(found.update.write.buffer).layout is not None:
        raise ScheduleError(
            f"stage {stage!r} does not reduce neighbours along {axis!r} by {window!r}",
            hint="terms must depend on the sum of an axis and of the window alone, over a constant range",
        )
    write, op = found.update.write, found.update.op
    whole, count = program.buffer(write.buffer), found.window.extent.as_int()
    dim = next(n for n, i in enumerate(write.indices) if i == var(axis))
    taken, made, temps = taken_names(program), list[Stage](), list[Buffer]()
    buffers: dict[int, Buffer] = {}

    def read(terms: int, at: int) -> Load:
        indices = tuple(i + at if n == dim else i for n, i in enumerate(write.indices))
        return Load(buffers[terms].name, indices, whole.dtype)

    terms = 1
    while terms < count:
        name = fresh_name(f"{stage}_{terms}", taken)
        taken.add(name)
        extent = found.along.extent + (count - terms)
        shape = tuple(extent if n == dim else size for n, size in enumerate(whole.shape))
        buffers[terms] = replace(whole, name=name, shape=shape)
        temps.append(buffers[terms])
        iters = tuple(
            replace(it, hi=extent) if it.name == axis else it for it in old.iters if it.name != window
        )
        if terms == 1:
            value, init = found.first, None
            if any(it.kind == "red" for it in iters):
                value = replace(found.update, old=read(1, 0)).by(value)
                init = store(name, write.indices, Const(_neutral(op, whole.dtype), whole.dtype))
        else:
            iters = tuple(it for it in iters if it.kind == "par")
            value, init = Binary(op, read(terms // 2, 0), read(terms // 2, terms // 2)), None
        made.append(Stage(name, iters, store(name, write.indices, value), init, old.source))
        terms *= 2
    terms //= 2
    parts = [read(terms, 0)]
    if op in OVERLAPPING:
        parts.append(read(terms, count - terms))
    at = terms
    while at < count and op in APART:
        while at + terms > count:
            terms //= 2
        parts.append(read(terms, at))
        at += terms
    total: Expr = parts[0]
    for part in parts[1:]:
        total = Binary(op, total, part)
    pars = tuple(it for it in old.iters if it.kind == "par")
    made.append(replace(old, iters=pars, body=store(write.buffer, write.indices, total), init=None))
    where = program.stages.index(old)
    stages = (*program.stages[:where], *made, *program.stages[where + 1 :])
    return replace(program, stages=stages, temps=(*program.temps, *temps))


def window_of(stage: Stage) -> tuple[str, str] | None:
    """An axis of a stage and its innermost window, to be split, where that takes fewer operations."""
    for window in reversed(stage.iters):
        for along in stage.iters:
            found = _found(stage, along.name, window.name)
            if found is None:
                continue
            n, extent = window.extent.as_int(), extent_of(along.extent)
            digits = 1 if found.update.op in OVERLAPPING else max(1, n.bit_count() - 1)
            if ((n - 1).bit_length() - 1 + digits) * (extent + n - 1) < n * extent:
                return along.name, window.name
    return None


def _found(stage: Stage, axis: str, window: str) -> _Found | None:
    known = {it.name: it for it in stage.iters}
    update = reduction_of(stage)
    if axis not in known or window not in known or update is None or update.guard:
        return None
    along, over = known[axis], known[window]
    constant = over.lo.is_const and over.extent.is_const
    if (
        not constant
        or along.lo != ZERO
        or (along.kind, over.kind) != ("par", "red")
        or over.extent.as_int() < 2
    ):
        return None
    if any(it.kind == "ord" or {axis, window} & (it.lo.vars | it.hi.vars) for it in stage.iters):
        return None
    own = [it.name for it in stage.iters if it.kind == "par"]
    start = stage.init
    if update.op not in (*APART, *OVERLAPPING) or sorted(
        i.as_var() or "" for i in update.write.indices
    ) != sorted(own):
        return None
    if (
        not isinstance(start, Store)
        or len(start.writes) != 1
        or start.writes[0].indices != update.write.indices
    ):
        return None
    value = start.writes[0].value
    if not isinstance(value, Const) or value.value != _neutral(update.op, update.old.dtype):
        return None
    indices = [i for ld in loads(update.term) for i in ld.indices if {axis, window} & i.vars]
    if not indices or not all({axis, window} <= i.vars for i in indices):
        return None
    first = update.term.substitute({window: over.lo})
    moved = first.substitute({axis: var(axis) + var(window) - over.lo})
    env = iter_env(stage.iters)
    if simplify_expr(moved, env) != simplify_expr(update.term, env):
        return None
    return _Found(update, first, along, over)


def _neutral(op: str, dtype: DType) -> float | int | bool:
    """What changes nothing: of the type's least and greatest values those of extrema."""
    match op:
        case "min":
            return dtype.max_value
        case "max":
            return dtype.min_value
        case _:
            return int(op == "mul")
