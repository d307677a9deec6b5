"""Axes taken apart at the divisors that indices divide them by: then ``i // 4`` and ``i % 4`` are affine.

A grouped convolution reads ``X[ic + 2*(oc//4)]``: with ``oc = 4*oc_0 + oc_1`` that is ``X[ic + 2*oc_0]``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilewright.ir import (
    ZERO,
    FloorDiv,
    Index,
    Iter,
    MinMax,
    Mod,
    Stage,
    Stmt,
    map_exprs,
    simplify_deep,
    simplify_expr,
    stmt_loads,
    stmt_writes,
    substitute_index,
    var,
)


def in_digits(stage: Stage) -> tuple[Stage, tuple[tuple[str, int], ...]]:
    """The stage with such axes taken apart, and for each of its axes the old axis and its stride there.

    Axes begin at 0 afterwards. An axis whose divisors do not divide one another and its extent stays whole.
    """
    divisors = {it.name: _divisors(stage, it) for it in stage.iters}
    taken = {it.name for it in stage.iters}
    iters: list[Iter] = []
    origins: list[tuple[str, int]] = []
    values: dict[str, Index] = {}
    for it in stage.iters:
        cuts = divisors[it.name]
        if not cuts:
            if it.lo != ZERO:
                values[it.name] = var(it.name) + it.lo
            iters.append(replace(it, lo=ZERO, hi=it.extent))
            origins.append((it.name, 1))
            continue
        extent = it.extent.as_int()
        total = Index(0)
        for n, (stride, above) in enumerate(zip((*cuts, 1), (extent, *cuts), strict=True)):
            name = _fresh(f"{it.name}_{n}", taken)
            iters.append(Iter(name, ZERO, Index(above // stride), it.kind))
            origins.append((it.name, stride))
            total = total + var(name) * stride
        values[it.name] = total
    if not values:
        return stage, tuple(origins)
    env = {it.name: (ZERO, it.hi - 1) for it in iters}

    def rewritten(part: Stmt) -> Stmt:
        return map_exprs(
            part,
            lambda i: simplify_deep(substitute_index(i, values, lambda e: e.substitute(values)), env),
            lambda e: simplify_expr(e.substitute(values), env),
        )

    init = None if stage.init is None else rewritten(stage.init)
    return replace(stage, iters=tuple(iters), body=rewritten(stage.body), init=init), tuple(origins)


def _divisors(stage: Stage, it: Iter) -> tuple[int, ...]:
    """Where an axis is cut, the largest divisor first; empty where it stays whole."""
    if it.lo != ZERO or not it.extent.is_const:
        return ()
    found: set[int] = set()
    for i in _indices(stage):
        _collect(i, it.name, found)
    extent = it.extent.as_int()
    cuts = tuple(sorted((d for d in found if 1 < d < extent), reverse=True))
    whole = all(above % d == 0 for d, above in zip(cuts, (extent, *cuts), strict=False))
    return cuts if whole else ()


def _indices(stage: Stage) -> Iterable[Index]:
    for part in (stage.body, stage.init):
        if part is None:
            continue
        for ld in stmt_loads(part):
            yield from ld.indices
        for _, indices in stmt_writes(part):
            yield from indices


def _collect(x: Index, axis: str, found: set[int]) -> None:
    for atom, _ in x.terms:
        if isinstance(atom, FloorDiv | Mod):
            step = _place(atom.arg, axis)
            if step is not None:
                found.add(step * atom.divisor)
                found.add(step)
            _collect(atom.arg, axis, found)
        elif isinstance(atom, MinMax):
            for arg in atom.args:
                _collect(arg, axis, found)


def _place(x: Index, axis: str) -> int | None:
    """``d`` where an index is ``axis // d``; ``None`` for others."""
    if x == var(axis):
        return 1
    if x.const == 0 and len(x.terms) == 1:
        ((atom, c),) = x.terms
        if c == 1 and isinstance(atom, FloorDiv):
            inner = _place(atom.arg, axis)
            return None if inner is None else inner * atom.divisor
    return None


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
