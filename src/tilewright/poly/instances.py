"""All executions of a loop function, listed: the exact, finite counterpart of an isl extraction.

For concrete parameters the loops are expanded with numpy into *statements* (one per ``Store`` or ``Exec`` of
a block) whose *instances* are rows: logical coordinates, a time, and the memory cells read and written.
Cells are physical: layouts are applied, and storage allocated inside loops is fresh in each execution of its
``Alloc``. Data-dependent indices read or write every element that they may touch, and so do blocks whose
loops data decide, which are one statement each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tilewright.ir import (
    Access,
    Alloc,
    Barrier,
    Block,
    Exec,
    Expr,
    For,
    If,
    Load,
    LoopFunction,
    Pred,
    Seq,
    Stmt,
    Store,
    Sync,
    Team,
    Teams,
    Window,
    is_opaque,
    pred_loads,
    stmt_children,
    sums_lanes,
)
from tilewright.poly.black_box import is_black_box, known_indices
from tilewright.poly.frames import AXIS_BITS, Frame, Memory
from tilewright.poly.loads import executed_loads
from tilewright.poly.statements import Instances, ParallelLoop, Reads, Statement, Writes
from tilewright.poly.values import Bools, Ints, evaluate, scalar
from tilewright.support import InternalError

_KEY_LIMIT = 1 << 60  # times are re-numbered before they could leave 64 bits


@dataclass(slots=True)
class _Timed:
    """What a subtree executed, with times relative to the subtree; both lists are changed on the way up."""

    events: list[tuple[int, Ints]]  # statement number, times
    barriers: list[Ints]
    span: int

    def renumbered(self) -> None:
        """Replace times by their ranks."""
        parts = [t for _, t in self.events] + self.barriers
        if not parts:
            self.span = 1
            return
        values, inverse = np.unique(np.concatenate(parts), return_inverse=True)
        at = 0
        for k, (number, t) in enumerate(self.events):
            self.events[k] = (number, inverse[at : at + len(t)].astype(np.int64))
            at += len(t)
        for k, t in enumerate(self.barriers):
            self.barriers[k] = inverse[at : at + len(t)].astype(np.int64)
            at += len(t)
        self.span = len(values)


@dataclass(frozen=True, slots=True)
class _Place:
    """Which part of which block a store belongs to, and the coordinates of its instances."""

    stage: str
    block: str
    part: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    counter: list[int]

    def inside(self, var: str) -> _Place:
        """The place inside a loop of the block's body (of the function, outside of blocks)."""
        return replace(self, names=(*self.names, var), kinds=(*self.kinds, "loop"))


@dataclass(frozen=True, slots=True)
class _Draft:
    """A statement whose time is not known yet."""

    frame: Frame
    place: _Place
    position: int
    node: Stmt
    reads: tuple[Reads, ...]
    writes: tuple[Writes, ...]
    env: Mapping[str, Ints | int]
    axes: tuple[str, ...]
    everyone: str  # an axis all of whose threads run the instances, each into memory of its own; or none

    def finished(self, time: Ints, base: Mapping[str, int], barriers: Ints) -> Statement:
        f, place = self.frame, self.place
        zero = np.zeros(f.n, np.int64)
        loops = [
            ParallelLoop(v, kind, f.matrix[row], f.matrix[f.loops[v]], zero)
            for v, (row, kind) in f.outer.items()
        ]
        if f.team is not None:
            thread = zero
            for axis, row in f.threads.items():
                # an axis has its place, whichever others a statement is spread over
                thread = thread + (f.matrix[row] << (AXIS_BITS * self.axes.index(axis)))
            phase = np.searchsorted(barriers, time, side="right").astype(np.int64)
            others = 1 << (AXIS_BITS * self.axes.index(self.everyone)) if self.everyone else 0
            loops.append(ParallelLoop(f.team[1], "thread", f.matrix[f.team[0]], thread, phase, others))
        return Statement(
            stage=place.stage,
            block=place.block,
            part=place.part,
            position=self.position,
            names=place.names,
            kinds=place.kinds,
            node=self.node,
            coords=tuple(f.matrix[f.scope[n]] for n in place.names),
            time=time,
            reads=tuple(replace(r, cells=r.cells + base[r.buffer]) for r in self.reads),
            writes=tuple(replace(w, cells=w.cells + base[w.buffer]) for w in self.writes),
            parallel=tuple(loops),
            env=self.env,
        )


class _Lister:
    def __init__(self, func: LoopFunction, params: Mapping[str, int]) -> None:
        self.params = params
        self.memory = Memory(func, params)
        self.drafts: list[_Draft] = []

    # -- the tree, outermost first ------------------------------------------------------------------------

    def visit(self, s: Stmt, f: Frame, place: _Place) -> _Timed:
        if f.n == 0:
            place.counter[0] += _count_stores(s)
            return _Timed([], [], 1)
        match s:
            case Seq():
                return self.sequence([partial(self.visit, k, f, place) for k in s.stmts])
            case For():
                return self.loop(s, f, place)
            case If():
                return self.branch(s, f, place)
            case Alloc():
                return self.alloc(s, f, place)
            case Barrier():
                return _Timed([], [np.zeros(f.n, np.int64)], 1)
            case Block():
                return self.block(s, f)
            case Store() | Exec():
                return self.leaf(s, f, place)
            case Teams() | Team() | Sync():
                raise InternalError("teams are formed by lowering: judge functions before")

    def alloc(self, s: Alloc, f: Frame, place: _Place) -> _Timed:
        return self.visit(s.body, self.memory.alloc(s.buffer, f), place)

    def sequence(self, parts: Sequence[Callable[[], _Timed]]) -> _Timed:
        out = _Timed([], [], 0)
        for part in parts:
            t = part()
            out.events.extend((n, k + out.span) for n, k in t.events)
            out.barriers.extend(k + out.span for k in t.barriers)
            out.span += t.span
        out.span = max(out.span, 1)
        return out

    def loop(self, s: For, f: Frame, place: _Place) -> _Timed:
        env = f.env(self.params)
        lo, hi = evaluate(s.lo, env), evaluate(s.hi, env)
        counts = np.broadcast_to(np.maximum((np.asarray(hi) - lo + (s.step - 1)) // s.step, 0), (f.n,))
        total = int(counts.sum())
        self.memory.spend(total * (f.matrix.shape[0] + 1), f"loop {s.var}")  # one column more than around it
        if total == 0:
            place.counter[0] += _count_stores(s)
            return _Timed([], [], 1)
        old = np.repeat(np.arange(f.n), counts)
        first = np.cumsum(counts) - counts
        step = np.arange(total, dtype=np.int64) - np.repeat(first, counts)
        values: Ints = (lo[old] if isinstance(lo, np.ndarray) else lo) + step * s.step
        columns = [values]
        rows = f.matrix.shape[0]
        outer, team, threads = f.outer, f.team, f.threads
        is_block = s.kind.axis.startswith("block")
        if (s.kind.name in ("parallel", "vector") and not sums_lanes(s)) or is_block:
            columns.append(old.astype(np.int64))
            outer = {**outer, s.var: (rows + 1, str(s.kind))}
        if is_block:
            team, threads = (rows + len(columns), f"threads of {s.var}"), {}
            columns.append(np.arange(total, dtype=np.int64))
        elif s.kind.name == "thread":
            # threads count iterations, wherever their loop begins
            threads = {**threads, s.kind.axis: rows + len(columns)}
            columns.append(step)
            if team is None:
                team = (rows + len(columns), f"threads of {s.var}")
                columns.append(old.astype(np.int64))
        inner = replace(
            f,
            matrix=np.concatenate([f.matrix[:, old], np.stack(columns)]),
            loops={**f.loops, s.var: rows},
            scope={**f.scope, s.var: rows},
            outer=outer,
            team=team,
            threads=threads,
        )
        t = self.visit(s.body, inner, place.inside(s.var))
        vmin, vmax = int(values.min()), int(values.max())
        extent = vmax - vmin + 1
        if s.kind.name == "thread" and t.barriers and not is_block:
            return self.threads(s, t, vmin, extent)
        if t.span * extent >= _KEY_LIMIT:
            t.renumbered()
        shift = t.span
        for k, (number, times) in enumerate(t.events):
            t.events[k] = (number, times + (self.values_of(number, s.var) - vmin) * shift)
        if t.barriers:
            distinct = np.unique(values)
            t.barriers = [
                (np.unique(b)[None, :] + (distinct[:, None] - vmin) * shift).ravel() for b in t.barriers
            ]
        t.span = shift * extent
        return t

    def threads(self, s: For, t: _Timed, vmin: int, extent: int) -> _Timed:
        """Threads run side by side: all of them up to a barrier, then all of them on to the next one."""
        t.renumbered()
        marks = np.unique(np.concatenate(t.barriers))
        shift = t.span * extent
        for k, (number, times) in enumerate(t.events):
            phase = np.searchsorted(marks, times, side="right").astype(np.int64)
            t.events[k] = (number, phase * shift + (self.values_of(number, s.var) - vmin) * t.span + times)
        t.barriers = [np.arange(1, len(marks) + 1, dtype=np.int64) * shift]
        t.span = shift * (len(marks) + 1)
        return t

    def values_of(self, number: int, name: str) -> Ints:
        frame = self.drafts[number].frame
        column: Ints = frame.matrix[frame.loops[name]]
        return column

    def branch(self, s: If, f: Frame, place: _Place) -> _Timed:
        known, sure = self.condition(s.cond, f)
        f = f if sure else _testing(s.cond, f)
        then = f.take(known) if sure else replace(f.take(known), unsure=True)
        parts = [partial(self.visit, s.then, then, place)]
        if s.orelse is not None:
            other = f.take(~known) if sure else replace(f, unsure=True)
            parts.append(partial(self.visit, s.orelse, other, place))
        return self.sequence(parts)

    def condition(self, pred: Pred, f: Frame) -> tuple[Bools, bool]:
        """Where a predicate may hold, and whether that is exact."""
        env = f.env(self.params)
        out = np.ones(f.n, np.bool_)
        sure = True
        for c in pred:
            if c.index is not None and not is_opaque(c.index):
                v = evaluate(c.index, env)
                out &= np.asarray(v >= 0 if c.op == "ge" else v == 0)
            else:
                value = scalar(c.expr, env) if c.expr is not None else None
                if value is None:
                    sure = False
                else:
                    out &= np.asarray(value, np.bool_)
        return out, sure

    def block(self, b: Block, f: Frame) -> _Timed:
        keep, sure = self.condition(b.where, f)
        f = f if sure else _testing(b.where, f)
        if not keep.all():
            f = f.take(keep)
        env = f.env(self.params)
        columns = [np.broadcast_to(np.asarray(evaluate(x, env), np.int64), (f.n,)) for x in b.bind]
        matrix, at = f.added(columns)
        scope = {it.name: at + k for k, it in enumerate(b.iters)}
        inner = replace(f, matrix=matrix, scope=scope, unsure=f.unsure or not sure)
        names, kinds = tuple(it.name for it in b.iters), tuple(it.kind for it in b.iters)
        parts: list[Callable[[], _Timed]] = []
        if is_black_box(b):
            return self.leaf(b.body, inner, _Place(b.stage, b.name, "body", names, kinds, [0]), b)
        if b.init is not None:
            starts = np.ones(f.n, np.bool_)
            ienv = inner.env(self.params)
            for it, column in zip(b.iters, columns, strict=True):
                if it.kind == "red":
                    starts &= np.asarray(column == evaluate(it.lo, ienv))
            par = tuple(it.name for it in b.iters if it.kind != "red")
            kept = tuple(it.kind for it in b.iters if it.kind != "red")
            place = _Place(b.stage, b.name, "init", par, kept, [0])
            parts.append(partial(self.visit, b.init, inner.take(starts), place))
        place = _Place(b.stage, b.name, "body", names, kinds, [0])
        parts.append(partial(self.visit, b.body, inner, place))
        return self.sequence(parts)

    # -- statements ----------------------------------------------------------------------------------------

    def leaf(self, s: Stmt, f: Frame, place: _Place, box: Block | None = None) -> _Timed:
        number = len(self.drafts)
        env = f.env(self.params)
        reads: list[Reads] = []
        writes: list[Writes] = []
        if isinstance(s, Store):

            def split(cond: Expr, mask: Bools) -> tuple[Bools, Bools] | None:
                value = scalar(cond, env)
                if value is None:
                    return None
                holds = np.asarray(value, np.bool_)
                return mask & holds, mask & ~holds

            for load, mask, sure in executed_loads(s, np.ones(f.n, np.bool_), split):
                # what may not run, or reads what data says, is not judged by all that is listed for it
                judged = sure and not f.unsure and not any(map(is_opaque, load.indices))
                reads.append(self.read(load, mask, f, env, place.block if judged else ""))
            for w in s.writes:
                rows, cells, spread = self.memory.cells(w.buffer, w.indices, None, f, env, place.block)
                kept = None
                if spread or f.unsure:
                    # what may not be overwritten flows through
                    kept = len(reads)
                    reads.append(Reads(None, f.storage(w.buffer), rows, cells, spread))
                writes.append(Writes(f.storage(w.buffer), rows, cells, spread, kept))
        elif box is not None:
            touched = [(load.buffer, load.indices) for load in box.reads]
            for name, indices in (*touched, *box.writes):
                known = known_indices(box, indices)
                rows, cells, _ = self.memory.cells(name, known, None, f, env)
                reads.append(Reads(None, f.storage(name), rows, cells, True))
            for n, (name, _) in enumerate(box.writes, len(touched)):
                writes.append(Writes(f.storage(name), reads[n].rows, reads[n].cells, True, n))
        elif isinstance(s, Exec):
            for win in s.windows:
                rows, cells = self.memory.window(win, f, env, place.block)
                if win.mode != "w" or f.unsure:
                    reads.append(Reads(None, f.storage(win.buffer), rows, cells, True))
                if win.mode != "r":
                    writes.append(Writes(f.storage(win.buffer), rows, cells, False))
        # what decides whether a statement runs is read, too
        for load, scope in f.tested:
            outside = replace(f, scope=scope)
            rows, cells, _ = self.memory.cells(
                load.buffer, load.indices, None, outside, outside.env(self.params)
            )
            reads.append(Reads(None, f.storage(load.buffer), rows, cells, True))
        position = place.counter[0]
        place.counter[0] += 1
        axes = tuple(sorted(self.memory.axes))
        targets = [name for name, _ in box.writes] if box is not None else [w.buffer for w in _targets(s)]
        everyone = self.memory.run_by_everyone(targets, f)
        draft = _Draft(f, place, position, s, tuple(reads), tuple(writes), env, axes, everyone)
        self.drafts.append(draft)
        return _Timed([(number, np.zeros(f.n, np.int64))], [], 1)

    def read(
        self, load: Load, mask: Bools | None, f: Frame, env: Mapping[str, Ints | int], block: str
    ) -> Reads:
        rows, cells, spread = self.memory.cells(load.buffer, load.indices, mask, f, env, block)
        return Reads(load, f.storage(load.buffer), rows, cells, spread)


def _testing(pred: Pred, f: Frame) -> Frame:
    """The executions below a condition that reads data."""
    return replace(f, tested=(*f.tested, *((load, f.scope) for load in dict.fromkeys(pred_loads(pred)))))


def list_instances(func: LoopFunction, params: Mapping[str, int] | None = None) -> Instances:
    """Execute the loops of ``func`` for the given parameters and list every statement instance.

    Raises :class:`~tilewright.support.ResourceError` beyond :data:`MAX_ELEMENTS` listed values and
    :data:`MAX_CELLS` cells of memory, ``KeyError`` for a parameter without a value and for loop bounds that
    depend on data.
    """
    given = dict(params or {})
    lister = _Lister(func, given)
    frame = Frame(np.zeros((0, 1), np.int64), {}, {}, {}, {})
    timed = lister.visit(func.body, frame, _Place("", "", "body", (), (), [0]))
    times = dict(timed.events)
    memory = lister.memory
    memory.check_cells()
    base: dict[str, int] = {}
    size: dict[str, int] = {}
    total = 0
    for name, buffer in memory.buffers.items():
        size[name] = memory.size(buffer)
        base[name] = total
        total += size[name] * memory.executions.get(name, 1)
    barriers = np.unique(np.concatenate(timed.barriers)) if timed.barriers else np.zeros(0, np.int64)
    statements = tuple(d.finished(times[k], base, barriers) for k, d in enumerate(lister.drafts))
    reducing = {s.stage for s in statements if "red" in s.kinds}
    statements = tuple(
        replace(s, part="init") if s.stage in reducing and "red" not in s.kinds else s for s in statements
    )
    return Instances(
        function=func,
        params=given,
        statements=statements,
        base=base,
        size=size,
        executions=memory.executions,
        boxes=memory.boxes,
        cells=total,
        span=timed.span,
        outside=tuple(memory.outside),
        owned=frozenset(memory.owned),
    )


def _targets(s: Stmt) -> Sequence[Access | Window]:
    """What a store writes, and what an instruction takes."""
    return s.writes if isinstance(s, Store) else s.windows if isinstance(s, Exec) else ()


def _count_stores(s: Stmt) -> int:
    """Stores and instructions of a tree, those of other blocks inside of it left out."""
    if isinstance(s, Store | Exec):
        return 1
    return sum(_count_stores(k) for k in stmt_children(s))
