"""Value-based dataflow of listed instances: which write defines each value that is read.

Every written value is a *definition*, numbered through a function; contents that no statement wrote
(arguments, fresh memory) have definitions of their own behind those. Nothing but data-dependent accesses is
approximated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.ir import Buffer, LoopFunction
from tilewright.poly.statements import Instances
from tilewright.poly.values import Ints, evaluate


@dataclass(frozen=True, slots=True)
class Dataflow:
    """Definitions of a function's reads.

    ``sources[s][r]`` runs parallel to ``instances.statements[s].reads[r].cells`` and gives definitions.
    ``first[s][w]`` is the first definition by write ``w`` of statement ``s``: one an instance, one a cell
    that an instance may write where that is not known (see :meth:`rows`). Contents of the cell ``c`` before
    the start are definition ``written + c``. ``final`` gives, per output, the
    definition of each element of its logical box in row-major order.
    """

    instances: Instances
    sources: tuple[tuple[Ints, ...], ...]
    first: tuple[tuple[int, ...], ...]
    written: int
    final: Mapping[str, Ints]

    def owner(self, definition: int) -> tuple[int, int, int] | None:
        """Statement, write and row of a definition; ``None`` for contents before the start."""
        if definition >= self.written:
            return None
        for s, bases in enumerate(self.first):
            for w, base in enumerate(bases):
                rows = self.rows(s, w)
                if base <= definition < base + len(rows):
                    return s, w, int(rows[definition - base])
        return None

    def rows(self, s: int, w: int) -> Ints:
        """The instance of each definition by write ``w`` of statement ``s``."""
        statement = self.instances.statements[s]
        write = statement.writes[w]
        return write.rows if write.spread else np.arange(statement.count)

    def describe(self, definition: int) -> str:
        """A definition in words: an instance, an argument's element or fresh memory."""
        found = self.owner(definition)
        if found is not None:
            return self.instances.statements[found[0]].describe(found[2])
        cell = definition - self.written
        for name, base in self.instances.base.items():
            count = self.instances.executions.get(name, 1)
            if base <= cell < base + self.instances.size[name] * count:
                if any(b.name == name for b in self.instances.function.buffers):
                    return f"the initial contents of {name}, element {cell - base}"
                return f"undefined contents of {name}"
        return "nothing"


def logical_cells(instances: Instances, buffer: Buffer) -> Ints:
    """The cells of an argument's whole logical box, row by row."""
    shape = [int(evaluate(x, instances.params)) for x in buffer.shape]
    grid = np.indices(shape, dtype=np.int64).reshape(len(shape), -1)
    physical: list[Ints | int] = list(grid)
    if buffer.layout is not None:
        env: dict[str, Ints | int] = dict(instances.params)
        env.update(zip(buffer.layout.dims, physical, strict=True))
        physical = [evaluate(x, env) for x in buffer.layout.exprs]
    out = np.zeros(grid.shape[1], np.int64)
    for v, (first, extent) in zip(physical, instances.boxes[buffer.name], strict=True):
        out = out * extent + (v - first)
    return out + instances.base[buffer.name]


def dataflow(instances: Instances) -> Dataflow:
    """The last writer of every read, by one sort of all accesses."""
    func: LoopFunction = instances.function
    cells: list[Ints] = []
    times: list[Ints] = []
    ids: list[Ints] = []  # definition, or -1 for a read
    first: list[tuple[int, ...]] = []
    written = 0
    for s in instances.statements:
        bases: list[int] = []
        for w in s.writes:
            bases.append(written)
            cells.append(w.cells)
            times.append(s.time[w.rows] * 2 + 1)
            ids.append((np.arange(len(w.cells)) if w.spread else w.rows) + written)
            written += len(w.cells) if w.spread else s.count
        first.append(tuple(bases))
    lengths: list[int] = []
    for s in instances.statements:
        for r in s.reads:
            lengths.append(len(r.cells))
            cells.append(r.cells)
            times.append(s.time[r.rows] * 2)
            ids.append(np.full(len(r.cells), -1, np.int64))
    outputs = [logical_cells(instances, b) for b in func.buffers if b.name in func.outputs]
    end = 2 * instances.span + 2
    for out in outputs:
        lengths.append(len(out))
        cells.append(out)
        times.append(np.full(len(out), end, np.int64))
        ids.append(np.full(len(out), -1, np.int64))
    if not cells:
        return Dataflow(instances, (), (), 0, {})
    reads_from = sum(map(len, cells)) - sum(lengths)
    found = _last_writers(np.concatenate(cells), np.concatenate(times), np.concatenate(ids), written)
    parts = np.split(found[reads_from:], np.cumsum(lengths)[:-1]) if lengths else []
    sources: list[tuple[Ints, ...]] = []
    at = 0
    for s in instances.statements:
        sources.append(tuple(parts[at : at + len(s.reads)]))
        at += len(s.reads)
    names = [b.name for b in func.buffers if b.name in func.outputs]
    final = dict(zip(names, parts[at:], strict=True))
    return Dataflow(instances, tuple(sources), tuple(first), written, final)


def _last_writers(cells: Ints, times: Ints, ids: Ints, written: int) -> Ints:
    """Per access the definition last written to its cell before it, else the cell's initial contents."""
    tmax = int(times.max()) + 1
    if tmax * (int(cells.max()) + 1) < 1 << 62:
        order = np.argsort(cells * tmax + times, kind="stable")
    else:
        order = np.lexsort((times, cells))
    c, d = cells[order], ids[order]
    place = np.arange(len(order))
    last = np.maximum.accumulate(np.where(d >= 0, place, -1))
    starts = np.empty(len(order), np.bool_)
    starts[0] = True
    np.not_equal(c[1:], c[:-1], out=starts[1:])
    group = np.maximum.accumulate(np.where(starts, place, 0))
    source = np.where(last >= group, d[last], c + written)
    out = np.empty(len(order), np.int64)
    out[order] = source
    return out
