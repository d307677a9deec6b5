"""split_terms: a sum of several terms, or of products with sums, becomes a stage for each product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product as combinations
from typing import Final

from tilewright.analysis import operands_of, reduction_of, starts_at_zero
from tilewright.ir import LOCAL, Binary, Buffer, Expr, Load, Program, Stage, Store, stmt_loads, store
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import check_name, stage_called, taken_names
from tilewright.schedule.rewrite.factor_out import product
from tilewright.support import ScheduleError

MAX_TERMS: Final = 16
"""Products of the longest sum: expanding sums in several factors multiplies their terms."""


@primitive("split_terms", phase="program")
def split_terms(program: Program, stage: str, name: str, apart: bool) -> Program:
    """Sum each product of ``stage`` by itself, sums in products expanded; stages are called ``<name>1`` …

    The later ones add to what the first has made; ``apart`` they make tensors of their own, which ``stage``
    adds up. (ISA Mapper, Sec. 2.3: distribution.) Results of floating-point programs are rounded differently.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> A, B, D = (lang.placeholder((4,), name=n) for n in "ABD")
    >>> k = lang.reduce_axis(4, "k")
    >>> C = lang.compute((2,), lambda i: lang.sum((A[k] + D[k]) * B[k], axis=k), name="C")
    >>> print(Schedule(lang.program([A, B, D], [C])).split_terms("C", "T", False))
    func main:
        for i in 0:2:
            for k in 0:4:
                block C(par i=i, red k=k):
                    init:
                        C[i] = f32(0.0)
                    C[i] = (C[i] + (A[k] * B[k]))
        for T1_i in 0:2:
            for T1_k in 0:4:
                block T1(par i=T1_i, red k=T1_k):
                    C[i] = (C[i] + (D[k] * B[k]))

    Raises ScheduleError where the stage is no sum from zero without conditions, has one product alone or more
    than :data:`MAX_TERMS`, and for names that are taken.
    """
    old = stage_called(program, stage)
    update = reduction_of(old)
    plain = update is not None and update.op == "add" and not update.guard and starts_at_zero(old)
    if update is None or not plain or not isinstance(old.body, Store) or update.old in _loads(update.term):
        raise ScheduleError(f"stage {stage!r} is no sum from zero without conditions")
    terms = list(_expanded(update.term))
    if not 1 < len(terms) <= MAX_TERMS:
        raise ScheduleError(f"stage {stage!r} sums {len(terms)} products: from 2 to {MAX_TERMS} can be split")
    own = [f"{name}{n}" for n in range(0 if apart else 1, len(terms))]
    check_name(own[0], taken_names(program), *own[1:])
    (w,) = old.body.writes
    here = Load(w.buffer, w.indices, w.value.dtype)
    added: tuple[Stage, ...]
    if not apart:
        first = replace(old, body=store(w.buffer, w.indices, Binary("add", here, terms[0])))
        added = tuple(
            Stage(n, old.iters, store(w.buffer, w.indices, Binary("add", here, t)), None, old.source)
            for n, t in zip(own, terms[1:], strict=True)
        )
        return program.with_stages(_in_place(program, old, (first, *added)))
    parts = [Load(n, w.indices, here.dtype) for n in own]
    added = tuple(
        Stage(
            p.buffer,
            old.iters,
            store(p.buffer, p.indices, Binary("add", p, t)),
            store(p.buffer, p.indices, _start(old)),
            old.source,
        )
        for p, t in zip(parts, terms, strict=True)
    )
    total: Expr = parts[0]
    for p in parts[1:]:
        total = Binary("add", total, p)
    iters = tuple(it for it in old.iters if it.kind != "red")
    last = replace(old, iters=iters, body=store(w.buffer, w.indices, total), init=None)
    shape = program.buffer(w.buffer).shape
    made = tuple(Buffer(n, shape, here.dtype, LOCAL) for n in own)
    stages = _in_place(program, old, (*added, last))
    return replace(program, stages=stages, temps=(*program.temps, *made))


def _in_place(program: Program, old: Stage, new: tuple[Stage, ...]) -> tuple[Stage, ...]:
    return tuple(x for s in program.stages for x in (new if s == old else (s,)))


def _start(stage: Stage) -> Expr:
    assert isinstance(stage.init, Store)
    return stage.init.writes[0].value


def _expanded(e: Expr) -> Iterator[Expr]:
    """The products whose sum an expression is."""
    terms = operands_of(e, "add")
    if len(terms) > 1:
        for t in terms:
            yield from _expanded(t)
        return
    factors = operands_of(e, "mul")
    if all(len(operands_of(f, "add")) == 1 for f in factors):
        yield e
        return
    for chosen in combinations(*(operands_of(f, "add") for f in factors)):
        yield from _expanded(product(chosen))


def _loads(e: Expr) -> list[Load]:
    return list(stmt_loads(store("_", (), e)))
