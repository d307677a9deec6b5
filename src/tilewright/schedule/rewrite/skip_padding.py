"""skip_padding: a reduction leaves out the terms that padding makes neutral."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.analysis import Update, reduction_of
from tilewright.ir import (
    Binary,
    Cast,
    Compare,
    Condition,
    Const,
    Expr,
    If,
    Index,
    OfIndex,
    Pred,
    Program,
    Select,
    Store,
    ge0,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import stage_called
from tilewright.support import ScheduleError

_NEUTRAL: Final = {"add": 0.0, "max": float("-inf"), "min": float("inf"), "mul": 1.0}


@primitive("skip_padding", phase="program")
def skip_padding(program: Program, stage: str) -> Program:
    """Turn ``acc += select(inside, x, 0) * w`` of the reduction ``stage`` into ``if inside: acc += x * w``.

    The condition on iterators can then trim loops and be decided tile by tile; no tap of the padding is
    computed. Likewise for maxima over ``select(inside, x, -inf)``. Results are the same but where ``w`` is
    infinite or NaN (0 times that is NaN). Raises ScheduleError where the stage has no such term.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X, W = lang.placeholder((8,), name="X"), lang.placeholder((3,), name="W")
    >>> k = lang.reduce_axis(3, "k")
    >>> P = lang.compute((10,), lambda i: lang.select((i >= 1) & (i < 9), X[i - 1], 0.0), name="P")
    >>> C = lang.compute((8,), lambda i: lang.sum(P[i + k] * W[k], axis=k), name="C")
    >>> s = Schedule(lang.program([X, W], [C])).inline_stage("P")
    >>> print(s)
    func main:
        for i in 0:8:
            for k in 0:3:
                block C(par i=i, red k=k):
                    init:
                        C[i] = f32(0.0)
                    C[i] = (C[i] + (select(and(ge(i64[i + k], i64[1]), lt(i64[i + k], i64[9])),
                        X[i + k - 1], f32(0.0)) * W[k]))
    >>> print(s.skip_padding("C"))
    func main:
        for i in 0:8:
            for k in 0:3:
                block C(par i=i, red k=k):
                    init:
                        C[i] = f32(0.0)
                    if i + k - 1 >= 0 and -i - k + 8 >= 0:
                        C[i] = (C[i] + (X[i + k - 1] * W[k]))
    """
    old = stage_called(program, stage)
    update = reduction_of(old)
    found = None if update is None else _rewrite(update)
    if found is None:
        raise ScheduleError(
            f"stage {stage!r} has no term that padding makes neutral",
            hint="inline the padding stage into the reduction first",
        )
    new = replace(old, body=found)
    return program.with_stages(tuple(new if s.name == stage else s for s in program.stages))


def _rewrite(update: Update) -> If | None:
    bare = _without_padding(update.term, update.op) if update.op in _NEUTRAL else None
    if bare is None:
        return None
    # besides the terms that are left out already
    pred, term = (*update.guard, *bare[0]), bare[1]
    return If(pred, Store((replace(update.write, value=update.by(term)),)))


def _without_padding(term: Expr, op: str) -> tuple[Pred, Expr] | None:
    """The condition under which ``term`` is not neutral, and the term where it holds."""
    if isinstance(term, Select) and isinstance(term.b, Const) and float(term.b.value) == _NEUTRAL[op]:
        pred = conditions(term.cond)
        if pred is None:
            return None
        inner = _without_padding(term.a, op)
        return (pred, term.a) if inner is None else ((*pred, *inner[0]), inner[1])
    if op == "add" and isinstance(term, Cast) and term.mode == "wrap":
        # zero is zero in every type
        bare = _without_padding(term.a, op)
        return None if bare is None else (bare[0], replace(term, a=bare[1]))
    if op == "add" and isinstance(term, Binary) and term.op == "mul":
        left, right = _without_padding(term.a, op), _without_padding(term.b, op)
        if left is None and right is None:
            return None
        pred = (*(left[0] if left else ()), *(right[0] if right else ()))
        return pred, Binary("mul", left[1] if left else term.a, right[1] if right else term.b)
    return None


def conditions(e: Expr) -> Pred | None:
    """A conjunction of comparisons of indices as a predicate; ``None`` for other expressions."""
    if isinstance(e, Binary) and e.op == "and":
        a, b = conditions(e.a), conditions(e.b)
        return None if a is None or b is None else (*a, *b)
    if isinstance(e, Compare):
        left, right = _as_index(e.a), _as_index(e.b)
        if left is None or right is None:
            return None
        forms: dict[str, Condition] = {
            "ge": ge0(left - right),
            "gt": ge0(left - right - 1),
            "le": ge0(right - left),
            "lt": ge0(right - left - 1),
        }
        return (forms[e.op],) if e.op in forms else None
    return None


def _as_index(e: Expr) -> Index | None:
    if isinstance(e, OfIndex):
        return e.index if e.dtype.holds_indices else None
    if isinstance(e, Const) and e.dtype.is_integer:
        return Index(int(e.value))
    return None
