"""split_scan: a scan in parts, which are side by side, and what is before each part."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tilewright.analysis import Scan, scan_of
from tilewright.ir import (
    I64,
    ONE,
    ZERO,
    Binary,
    Compare,
    Expr,
    If,
    Index,
    Iter,
    Load,
    OfIndex,
    Pred,
    Program,
    Select,
    Stage,
    Stmt,
    buffer,
    floordiv,
    fresh_name,
    ge0,
    iter_env,
    map_exprs,
    mod,
    prove_ge0,
    simplify_deep,
    simplify_expr,
    store,
    substitute_body,
    substitute_index,
    var,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import check_name, stage_called, taken_names
from tilewright.support import ScheduleError


@primitive("split_scan", phase="program")
def split_scan(program: Program, stage: str, factor: int, name: str) -> Program:
    """Scan parts of ``factor`` elements by themselves, in a stage ``name``, and combine them afterwards.

    ``stage`` must be a scan: each element is the one before it along the ordered axis ``t`` plus (times, or
    the maximum or minimum with) another value. The stage ``name`` scans each part from its own beginning,
    ``<name>_before`` scans what the parts come to, and ``stage`` combines each element with what is before
    its part, in any order. Both scans may be split again. Their axes ``t_o`` and ``t_i`` number parts and
    what is in a part. (Blelloch, Prefix Sums and Their Applications, 1990: blocks, then sums of blocks.)

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((64,), name="X")
    >>> S = lang.scan((64,), lambda s, t: lang.select(t == 0, X[0], s[t - 1] + X[t]), name="S")
    >>> s = Schedule(lang.program([X], [S])).split_scan("S", 8, "P")
    >>> for stage in s.program.stages:
    ...     print([f"{it.kind} {it.name}" for it in stage.iters], stage.body.writes[0].value.b)
    ['par t_o', 'ord t_i'] (P[t_o, t_i - 1] + X[t_i + 8*t_o])
    ['ord t_o'] (P_before[t_o - 1] + P[t_o, 7])
    ['par t'] (P_before[t//8 - 1] + P[t//8, t%8])

    Sums of floating-point numbers are rounded differently. Raises ScheduleError for other stages, for parts
    that are not shorter than the axis, and for a name that is taken.
    """
    old = stage_called(program, stage)
    check_name(name, taken_names(program))
    scan = scan_of(old)
    if scan is None:
        raise ScheduleError(
            f"stage {stage!r} is no scan that can be in parts",
            hint="each element must be select(t == 0, first, op(element before, term)) with +, *, max or min",
        )
    if any(it.lo != ZERO or it.hi.vars & {other.name for other in old.iters} for it in old.iters):
        raise ScheduleError(
            f"the ranges of the axes of stage {stage!r} do not all start at 0, or depend on others"
        )
    count = floordiv(scan.axis.extent + (factor - 1), factor) if factor > 0 else ONE
    if factor < 1 or (count.is_const and count.as_int() < 2):
        raise ScheduleError(
            f"stage {stage!r} cannot be in parts of {factor}", hint="give fewer elements than its axis has"
        )
    return _split(program, old, scan, factor, count, name)


def _split(program: Program, old: Stage, scan: Scan, factor: int, count: Index, name: str) -> Program:
    held = program.buffer(scan.buffer)
    used = {it.name for it in old.iters} | {p.name for p in program.params}
    t = scan.axis.name
    outer = fresh_name(f"{t}_o", used)
    inner = fresh_name(f"{t}_i", used | {outer})
    o, i = var(outer), var(inner)
    total = fresh_name(f"{name}_before", {*taken_names(program), name})

    def axes(*own: Iter) -> tuple[Iter, ...]:
        return tuple(new for it in old.iters for new in (own if it == scan.axis else (it,)))

    def place(*own: Index) -> tuple[Index, ...]:
        return tuple(new for it in old.iters for new in (own if it == scan.axis else (var(it.name),)))

    def extents(*own: Index) -> tuple[Index, ...]:
        return tuple(new for it in old.iters for new in (own if it == scan.axis else (it.extent,)))

    def stage(name: str, iters: tuple[Iter, ...], step: Stmt, at: Index, guard: Pred) -> Stage:
        """A stage of ``step`` with ``at`` in place of ``t``; of ``guard`` what is not known to hold."""
        env = iter_env(iters)
        known = [c.index is not None and prove_ge0(substitute_index(c.index, {t: at}), env) for c in guard]
        kept = tuple(c for c, always in zip(guard, known, strict=True) if not always)
        body = substitute_body(If(kept, step) if kept else step, {t: at})
        body = map_exprs(body, lambda x: simplify_deep(x, env), lambda e: simplify_expr(e, env))
        return replace(old, name=name, iters=iters, body=body)

    def loaded(name: str, *own: Index) -> Load:
        return Load(name, place(*own), held.dtype)

    def combined(before: Expr, new: Expr) -> Expr:
        return Binary(scan.op, before, new)

    # the last part may end early
    inside = (ge0(scan.axis.hi - 1 - var(t)), *scan.guard)
    part, lane = Iter(outer, ZERO, count, "par"), Iter(inner, ZERO, Index(factor), "ord")
    first = Select(_is("eq", var(t), 0), scan.first, scan.term)
    local = Select(_is("eq", i, 0), first, combined(loaded(name, o, i - 1), scan.term))
    end = loaded(name, o, Index(factor - 1))
    running = Select(_is("eq", o, 0), end, combined(loaded(total, o - 1), end))
    number, offset = floordiv(var(t), factor), mod(var(t), factor)
    here = loaded(name, number, offset)
    result = Select(_is("lt", var(t), factor), here, combined(loaded(total, number - 1), here))
    steps = (
        stage(name, axes(part, lane), store(name, place(o, i), local), o * factor + i, inside),
        stage(
            total,
            axes(Iter(outer, ZERO, count - 1, "ord")),
            store(total, place(o), running),
            o * factor + (factor - 1),
            scan.guard,
        ),
        stage(
            old.name,
            axes(replace(scan.axis, kind="par")),
            store(scan.buffer, scan.indices, result),
            var(t),
            scan.guard,
        ),
    )
    n = program.stages.index(old)
    shapes = {name: extents(count, Index(factor)), total: extents(count - 1)}
    return replace(
        program,
        temps=(*program.temps, *(buffer(b, shape, held.dtype) for b, shape in shapes.items())),
        stages=(*program.stages[:n], *steps, *program.stages[n + 1 :]),
    )


def _is(op: Literal["eq", "lt"], x: Index, n: int) -> Expr:
    return Compare(op, OfIndex(x, I64), OfIndex(Index(n), I64))
