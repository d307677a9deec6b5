"""Conflicts between iterations of parallel loops, found among listed instances.

Two iterations of one execution of a ``parallel``, ``vector`` or ``thread`` loop conflict where they touch the
same cell and one of them writes it. Barriers separate the phases of a block's threads. Storage allocated
inside the loop is private to an iteration and never conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.ir import atomic_update
from tilewright.poly.statements import Instances, Statement
from tilewright.poly.values import Bools, Ints


@dataclass(frozen=True, slots=True)
class Race:
    """Two instances, ``first`` and ``second``, of different iterations of ``loop`` that touch one cell."""

    loop: str
    kind: str
    buffer: str
    first: str
    second: str
    stages: tuple[str, str]

    @property
    def who(self) -> str:
        """What conflicts, in words."""
        if self.loop.startswith("threads of"):
            return f"the {self.loop}"
        return f"iterations of the {self.kind} loop {self.loop}"


@dataclass(frozen=True, slots=True)
class _Accesses:
    statement: Statement
    buffer: str
    rows: Ints
    cells: Ints
    writes: bool
    update: str = ""  # the operation by which threads may update the element at once
    others: int = 0  # what is added to the numbers of the threads that do it


def races(instances: Instances) -> Iterator[Race]:
    """One race per loop that has any."""
    loops: dict[str, list[_Accesses]] = {}
    for s in instances.statements:
        for p in s.parallel:
            found = loops.setdefault(p.var, [])
            atomic = atomic_update(s.node, s.kinds) if p.kind.startswith("thread") else None
            by = {} if atomic is None else {atomic.buffer: atomic.op}
            found.extend(
                _Accesses(s, w.buffer, w.rows, w.cells, True, by.get(w.buffer, "")) for w in s.writes
            )
            found.extend(
                _Accesses(s, r.buffer, r.rows, r.cells, False, by.get(r.buffer, "")) for r in s.reads
            )
            if p.others:
                common = [r for r in s.reads if r.buffer not in instances.owned]
                found.extend(_Accesses(s, r.buffer, r.rows, r.cells, False, "", p.others) for r in common)
    for var, accesses in loops.items():
        written = {a.buffer for a in accesses if a.writes}
        kept = [a for a in accesses if a.buffer in written and len(a.rows)]
        if kept:
            race = _race(instances, var, kept)
            if race is not None:
                yield race


def _race(instances: Instances, var: str, accesses: list[_Accesses]) -> Race | None:
    cells = np.concatenate([a.cells for a in accesses])
    executions: list[Ints] = []
    phases: list[Ints] = []
    iterations: list[Ints] = []
    kind = ""
    for a in accesses:
        for p in a.statement.parallel:
            if p.var == var:
                kind = p.kind
                executions.append(p.execution[a.rows])
                phases.append(p.phase[a.rows])
                iterations.append(p.iteration[a.rows] + a.others)
    execution, phase, iteration = map(np.concatenate, (executions, phases, iterations))
    writes = np.repeat([a.writes for a in accesses], [len(a.rows) for a in accesses])
    group = _packed(execution, phase, cells, instances.cells)
    order = np.argsort(group, kind="stable")
    g, it, wr = group[order], iteration[order], writes[order]
    starts = np.flatnonzero(np.concatenate([[True], g[1:] != g[:-1]]))
    low, high = np.minimum.reduceat(it, starts), np.maximum.reduceat(it, starts)
    bad: Bools = (low != high) & np.logical_or.reduceat(wr, starts)
    if any(a.update for a in accesses):
        # updates by one operation meet each other as they like
        number = {op: n for n, op in enumerate(dict.fromkeys(["", *(a.update for a in accesses)]))}
        ops = np.repeat([number[a.update] for a in accesses], [len(a.rows) for a in accesses])[order]
        least, most = np.minimum.reduceat(ops, starts), np.maximum.reduceat(ops, starts)
        bad &= (least != most) | (least == 0)
    if not bad.any():
        return None
    k = int(np.flatnonzero(bad)[0])
    end = int(starts[k + 1]) if k + 1 < len(starts) else len(g)
    inside = np.arange(int(starts[k]), end)
    writer = int(inside[wr[inside]][0])
    other = int(inside[it[inside] != it[writer]][0])
    one, two = _locate(accesses, int(order[writer])), _locate(accesses, int(order[other]))
    return Race(
        var, kind, one[0].buffer, one[0].statement.describe(one[1]), two[0].statement.describe(two[1]),
        (one[0].statement.stage, two[0].statement.stage),
    )  # fmt: skip


def _packed(execution: Ints, phase: Ints, cells: Ints, count: int) -> Ints:
    """One number per (execution, phase, cell)."""
    phases = int(phase.max()) + 1
    if (int(execution.max()) + 1) * phases * count < 1 << 62:
        out: Ints = (execution * phases + phase) * count + cells
        return out
    _, inverse = np.unique(np.stack([execution, phase, cells]), axis=1, return_inverse=True)
    return inverse.astype(np.int64).ravel()


def _locate(accesses: list[_Accesses], position: int) -> tuple[_Accesses, int]:
    for a in accesses:
        if position < len(a.rows):
            return a, int(a.rows[position])
        position -= len(a.rows)
    raise AssertionError
