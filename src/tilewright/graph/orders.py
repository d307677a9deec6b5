"""Sums that alone a transposing stage reads: stored with their axes in the order in which it reads them.

    before                                          after
    t[n, c, h] += x[n, c, h + r] * f[c, r]          t[n, h, c] += x[n, c, h + r] * f[c, r]
    y[n, h, c] = t[n, c, h] + b[c]                  y[n, h, c] = t[n, h, c] + b[c]

The reader is then element by element, and what follows a contraction that way stays in its registers.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import Index, Load, Program, Stage, Stmt, Store, map_loads, map_stmt, stmt_loads


def in_order_of_readers(program: Program) -> Program:
    """The program with the axes of such sums, and of the stages that make them, in that order."""
    for temp in program.temps:
        producers, readers = program.producers(temp.name), program.consumers(temp.name)
        if len(producers) != 1 or len(readers) != 1 or temp.layout is not None:
            continue
        order = _order(producers[0], readers[0], temp.name)
        if order is not None and list(order) != sorted(order):
            program = _permuted(program, producers[0], readers[0], temp.name, order)
    return program


def _order(stage: Stage, reader: Stage, name: str) -> tuple[int, ...] | None:
    """The dimension of the buffer along which each iterator of its reader goes, ``None`` in other cases."""
    pars = [it.name for it in stage.iters if it.kind == "par"]
    if not stage.is_reduction or reader.is_reduction or stage.writes != (name,):
        return None
    own = [w.indices for w in _writes(stage.body)] + [
        ld.indices for ld in stmt_loads(stage.body) if ld.buffer == name
    ]
    if any([i.as_var() for i in indices] != pars for indices in own):
        return None
    reads = {tuple(i.as_var() for i in ld.indices) for ld in stmt_loads(reader.body) if ld.buffer == name}
    iters = [it.name for it in reader.iters]
    if len(reads) != 1:
        return None
    places = list(next(iter(reads)))
    if None in places or sorted(iters) != sorted(str(place) for place in places):
        return None
    return tuple(places.index(it) for it in iters)


def _writes(stmt: Stmt) -> tuple[Load, ...]:
    found: list[Load] = []

    def note(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            found.extend(Load(w.buffer, w.indices, w.value.dtype) for w in s.writes)
        return s

    map_stmt(stmt, note)
    return tuple(found)


def _permuted(program: Program, stage: Stage, reader: Stage, name: str, order: tuple[int, ...]) -> Program:
    def moved(indices: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(indices[d] for d in order)

    def access(s: Stmt) -> Stmt:
        if not isinstance(s, Store) or all(w.buffer != name for w in s.writes):
            return s
        moved = (
            replace(w, indices=tuple(w.indices[d] for d in order)) if w.buffer == name else w
            for w in s.writes
        )
        return replace(s, writes=tuple(moved))

    def load(ld: Load) -> Load:
        return replace(ld, indices=tuple(ld.indices[d] for d in order)) if ld.buffer == name else ld

    def change(s: Stmt) -> Stmt:
        return map_stmt(map_loads(s, load), access)

    pars = [it for it in stage.iters if it.kind == "par"]
    others = [it for it in stage.iters if it.kind != "par"]
    new = replace(
        stage,
        iters=(*(pars[d] for d in order), *others),
        body=change(stage.body),
        init=None if stage.init is None else change(stage.init),
    )
    changed = {stage.name: new, reader.name: replace(reader, body=change(reader.body))}
    temps = tuple(
        b.with_(shape=tuple(b.shape[d] for d in order)) if b.name == name else b for b in program.temps
    )
    return replace(program, temps=temps, stages=tuple(changed.get(s.name, s) for s in program.stages))
