"""Statements as Python closures: loops in shuffled order, blocks, stores, allocations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TypeAlias

from tilewright.ir.bounds import int_upper
from tilewright.ir.buffer import PRIVATE, SHARED, Buffer
from tilewright.ir.expr import walk_index
from tilewright.ir.index import Index
from tilewright.ir.interp_block import (
    Action,
    Instruction,
    Leaves,
    Region,
    bodies,
    is_axis,
    sequence,
    walk_stmts,
)
from tilewright.ir.interp_expr import index_fn, pred_fn
from tilewright.ir.interp_memory import (
    DivergenceError,
    ExecutionError,
    Fork,
    Shadow,
    Task,
)
from tilewright.ir.interp_scope import TASK, Env, IntFn, Place, Scope
from tilewright.ir.interp_teams import Asked, Steps, TeamRun, Thread, rings_of
from tilewright.ir.sizes import bind_params
from tilewright.ir.stmt import (
    Alloc,
    Barrier,
    Block,
    Exec,
    For,
    If,
    Seq,
    Stmt,
    Store,
    Sync,
    SyncOp,
    Team,
    Teams,
    sums_lanes,
)
from tilewright.ir.substitution import evaluate_index

_RESHUFFLE = 16  # executions of a loop that share one order; drawing a new one costs more than the loop

Coroutine: TypeAlias = Callable[[Env], Steps]


class Compiler(Leaves):
    """Builds the closures of one function for given parameter values."""

    def __init__(self, rng: Random, instructions: Mapping[str, Instruction], names: Sequence[str]) -> None:
        super().__init__(rng, instructions, names)
        self.barriers: dict[int, bool] = {}

    # ---- helpers ----

    def has_barrier(self, s: Stmt) -> bool:
        """Whether a barrier, or what is said to a channel, occurs in the tree."""
        known = self.barriers.get(id(s))
        if known is None:
            known = isinstance(s, Barrier | Sync) or any(self.has_barrier(c) for c in bodies(s))
            self.barriers[id(s)] = known
        return known

    def _order(self) -> Callable[[int, int, int], Sequence[int]]:
        rng, kept = self.rng, dict[tuple[int, int, int], tuple[list[int], list[int]]]()

        def draw(lo: int, hi: int, step: int) -> Sequence[int]:
            entry = kept.get((lo, hi, step))
            if entry is None:
                entry = kept[lo, hi, step] = (list(range(lo, hi, step)), [0])
            order, uses = entry
            if uses[0] % _RESHUFFLE == 0:
                order = order.copy()  # an enclosing recursion may still iterate over the old one
                rng.shuffle(order)
                kept[lo, hi, step] = (order, uses)
            uses[0] += 1
            return order

        return draw

    # ---- statements without barriers ----

    def stmt(self, s: Stmt, scope: Scope) -> Action:
        """The closure that runs a statement."""
        match s:
            case Seq():
                return sequence([self.stmt(k, scope) for k in s.stmts])
            case If():
                return self._if(s, scope)
            case Alloc():
                return self._alloc(s, scope)
            case Barrier():
                return lambda e: None  # one thread alone has nobody to wait for
            case For():
                return self._for(s, scope)
            case Block():
                return self.block(s, scope)
            case Store():
                return self.guarded(s, self.store(s, scope, None), scope)
            case Exec():
                return self.guarded(s, self.execute(s, scope), scope)
            case Teams():
                return self._teams(s, scope)
            case Team() | Sync():
                raise ExecutionError("a team, or what one says to a channel, outside of teams")

    def _if(self, s: If, scope: Scope) -> Action:
        test, then = pred_fn(s.cond, scope), self.stmt(s.then, scope)
        if test is None:
            return then
        if s.orelse is None:

            def one(e: Env) -> None:
                if test(e):
                    then(e)

            return one
        orelse = self.stmt(s.orelse, scope)

        def two(e: Env) -> None:
            if test(e):
                then(e)
            else:
                orelse(e)

        return two

    def place(self, buffer: Buffer, scope: Scope, *, writable: bool) -> Place:
        """The declaration of a buffer at a point of the function (its layout may mention variables there)."""

        def ints(xs: Iterable[Index]) -> tuple[int, ...]:
            return tuple(evaluate_index(x, scope.params) for x in xs)

        try:
            logical, physical = ints(buffer.shape), ints(buffer.physical_shape)
        except KeyError as error:
            raise ExecutionError(
                f"the shape of buffer {buffer.name} depends on {error}, it must depend on parameters only"
            ) from None
        halo = buffer.halo or ((0, 0),) * len(physical)
        box = tuple((-before, n + after) for n, (before, after) in zip(physical, halo, strict=True))
        strides: list[int] = []
        size = 1
        for lo, hi in reversed(box):
            strides.append(size)
            size *= max(0, hi - lo)
        out = Place(
            buffer,
            scope.slots.new(),
            scope.slots.new(),
            writable,
            scope.level,
            logical,
            box,
            tuple(strides[::-1]),
            size,
            once=buffer.name in self.once,
        )
        if buffer.layout is not None:
            inner = scope.inner()
            out.dim_slots = tuple(scope.slots.new() for _ in buffer.layout.dims)
            inner.vars.update(zip(buffer.layout.dims, out.dim_slots, strict=True))
            out.layout = tuple(index_fn(x, inner) for x in buffer.layout.exprs)
            others = {v for x in buffer.layout.exprs for v in x.vars}.difference(buffer.layout.dims)
            data = any(True for x in buffer.layout.exprs for _ in walk_index(x))
            out.beside = None if data else tuple(scope.vars[v] for v in sorted(others))
        return out

    def _declare(self, s: Alloc, scope: Scope) -> tuple[Scope, Place, bool]:
        """The scope inside an allocation, its place, and whether the threads of a block share it."""
        region = self.region
        place = self.place(s.buffer, scope, writable=True)
        place.allocated = True
        shared = False
        if region is not None:
            scope_name = s.buffer.scope
            shared = scope_name == SHARED or not (region.under_loop or scope_name in PRIVATE)
            place.level = region.level - 1 if shared else scope.level
            place.private = not shared
        inner = scope.inner()
        inner.places[s.buffer.name] = place
        return inner, place, shared

    def _enter_alloc(self, place: Place, shared: bool, scope: Scope) -> Action:
        data, shadow, size, buffer = place.data, place.shadow, place.size, place.buffer

        def fresh(e: Env) -> None:
            e[data] = [None] * size
            e[shadow] = Shadow(buffer)

        if not shared:
            if place.shadowed or place.once:
                return fresh

            def bare(e: Env) -> None:
                e[data] = [None] * size

            return bare
        assert self.region is not None
        table, visits = self.region.shared, scope.slots.new()

        def join(e: Env) -> None:
            # the n-th visit of every thread is to the same incarnation
            key = (data, e[visits])
            e[visits] += 1
            known = e[table].get(key)
            if known is None:
                # fresh values in the same memory: what threads still do there counts
                last = e[table].get(shadow)
                fresh(e)
                if last is not None:
                    e[shadow] = last.again()
                known = e[table][key] = (e[data], e[shadow])
                e[table][shadow] = e[shadow]
            e[data], e[shadow] = known

        return join

    def _alloc(self, s: Alloc, scope: Scope) -> Action:
        inner, place, shared = self._declare(s, scope)
        body = self.stmt(s.body, inner)
        enter = self._enter_alloc(place, shared, scope)

        def run(e: Env) -> None:
            enter(e)
            body(e)

        return run

    # ---- loops ----

    def _for(self, s: For, scope: Scope) -> Action:
        if s.kind.name == "thread":
            if self.region is not None:
                return self._thread_loop(s, scope)
            if is_axis(s, "thread"):
                return self._spawn(s, scope)
        lo, hi, step = index_fn(s.lo, scope), index_fn(s.hi, scope), s.step
        if step < 1:
            raise ExecutionError(f"loop {s.var} has the step {step}; it must be positive")
        slot = scope.slots.new()
        inner = scope.inner()
        inner.vars[s.var] = slot
        if s.lo.is_const and s.hi.is_const:
            inner.ranges[s.var] = (s.lo.const, s.hi.const)
        # lanes that sum apart are joined at the end: as if they ran in order
        concurrent = s.kind.name in ("parallel", "vector", "thread") and not sums_lanes(s)
        if not concurrent:
            body = self.stmt(s.body, inner)

            def serial(e: Env) -> None:
                for v in range(lo(e), hi(e), step):
                    e[slot] = v
                    body(e)

            return serial
        if self.region is not None and self.has_barrier(s.body):
            raise ExecutionError(f"a barrier inside the {s.kind} loop {s.var}")
        inner.level += 1
        spawns = is_axis(s, "block") and not any(is_axis(k, "block") for k in walk_stmts(s.body))
        threads = spawns and any(is_axis(k, "thread") for k in walk_stmts(s.body))
        threads = threads and not any(isinstance(k, Teams) for k in walk_stmts(s.body))
        before = scope.slots.tracked
        body = self._spawn(s.body, inner) if threads else self.stmt(s.body, inner)
        order, what, name = self._order(), f"the {s.kind} loop {s.var}", s.var
        spread = s.kind.name == "thread"
        if scope.slots.tracked == before and not threads:

            def unwatched(e: Env) -> None:
                for v in order(lo(e), hi(e), step):
                    e[slot] = v
                    body(e)

            return unwatched

        def shuffled(e: Env) -> None:
            outer, fork = e[TASK], Fork(what, atomic=spread)
            for v in order(lo(e), hi(e), step):
                e[slot] = v
                e[TASK] = Task(fork, outer, f"{name}={v}")
                body(e)
            e[TASK] = outer

        return shuffled

    def _thread_loop(self, s: For, scope: Scope) -> Action:
        """A thread loop inside a region: each thread runs the iteration of its own coordinate."""
        enter, body, leave = self._thread_parts(s, scope)
        run = self.stmt(s.body, body)
        self.region = leave

        def one(e: Env) -> None:
            if enter(e):
                run(e)

        return one

    def _thread_parts(self, s: For, scope: Scope) -> tuple[Callable[[Env], bool], Scope, Region]:
        region = self.region
        assert region is not None
        if s.kind.axis not in region.axes:
            raise ExecutionError(f"loop {s.var} on axis {s.kind.axis} inside of the threads of a block")
        lo, hi, step = index_fn(s.lo, scope), index_fn(s.hi, scope), s.step
        slot, tid = scope.slots.new(), region.axes[s.kind.axis]
        inner = scope.inner()
        inner.vars[s.var] = slot
        self.region = Region(
            region.axes, region.shared, region.level, region.covered | {s.kind.axis}, under_loop=True
        )

        def enter(e: Env) -> bool:
            v = e[slot] = lo(e) + e[tid] * step
            return bool(v < hi(e))

        return enter, inner, region

    def _threads(self, s: Stmt, scope: Scope) -> tuple[Scope, Region, list[tuple[int, ...]]]:
        """The scope inside of a region, itself, and the coordinates of the threads that run a statement."""
        counts: dict[str, int] = {}
        _thread_counts(s, scope, {}, counts)
        axes = {a: scope.slots.new() for a in sorted(counts)}
        inner = scope.inner()
        inner.level += 1
        region = Region(axes, scope.slots.new(), inner.level)
        return inner, region, list(itertools.product(*(range(counts[a]) for a in axes)))

    def _teams(self, s: Teams, scope: Scope) -> Action:
        """Run the teams of a block at once: one coroutine for each thread of each of them."""
        if self.region is not None:
            raise ExecutionError("teams inside of the threads of a block")
        said: dict[str, dict[SyncOp, set[int]]] = {}
        parts: list[tuple[Region, Coroutine, list[tuple[int, ...]], str]] = []
        for n, team in enumerate(s.teams):
            for k in walk_stmts(team.body):
                if isinstance(k, Sync):
                    said.setdefault(k.channel, {}).setdefault(k.op, set()).add(n)
            inner, self.region, coords = self._threads(team.body, scope)
            region = self.region
            if len(coords) > team.threads:
                raise ExecutionError(f"team {team.name} has {team.threads} threads and loops over more")
            parts.append((region, self.steps(team.body, inner), coords, team.name))
            self.region = None
        rng, names = self.rng, [team.name for team in s.teams]

        def run(e: Env) -> None:
            threads: list[Thread] = []
            for n, (region, steps, coords, name) in enumerate(parts):
                shared: dict[object, object] = {}
                for coord in coords:
                    t = e.copy()
                    for at, v in zip(region.axes.values(), coord, strict=True):
                        t[at] = v
                    t[region.shared] = shared
                    where = ", ".join(f"{a}={v}" for a, v in zip(region.axes, coord, strict=True))
                    label = f"team {name}{f', thread {where}' if where else ''}"
                    threads.append(Thread(n, label, steps(t), t, (0,) * len(parts)))
            TeamRun(threads, e[TASK], rng, rings_of(s.channels, said), names).run()

        return run

    def _spawn(self, s: Stmt, scope: Scope) -> Action:
        """Run a statement by all threads of a block: one coroutine each, in step at the barriers."""
        inner, self.region, coords = self._threads(s, scope)
        axes, table = self.region.axes, self.region.shared
        waits = self.has_barrier(s)
        steps = self.steps(s, inner) if waits else None
        body = None if waits else self.stmt(s, inner)
        self.region = None
        slots, rng = list(axes.values()), self.rng
        labels = ["thread " + ", ".join(f"{a}={v}" for a, v in zip(axes, c, strict=True)) for c in coords]

        def threads(e: Env) -> list[tuple[Env, str]]:
            shared: dict[object, object] = {}
            fork = Fork("one block, with no barrier between", atomic=True)
            out: list[tuple[Env, str]] = []
            for coord, label in zip(coords, labels, strict=True):
                t = e.copy()
                for at, v in zip(slots, coord, strict=True):
                    t[at] = v
                t[table] = shared
                t[TASK] = Task(fork, e[TASK], label)
                out.append((t, label))
            rng.shuffle(out)
            return out

        def independent(e: Env) -> None:
            assert body is not None
            for t, _ in threads(e):
                body(t)

        def in_step(e: Env) -> None:
            assert steps is not None
            running = [(steps(t), t, label) for t, label in threads(e)]
            while running:
                at: dict[int, str] = {}
                done: list[str] = []
                for gen, _, label in running:
                    barrier = next(gen, None)
                    if barrier is None:
                        done.append(label)
                    else:
                        at[id(barrier)] = label
                if done and len(done) == len(running):
                    return
                if done or len(at) > 1:
                    first = done[0] if done else list(at.values())[1]
                    raise DivergenceError(
                        f"{first} does not reach the barrier at which {next(iter(at.values()))} waits"
                    )
                fork = Fork("one block, with no barrier between", atomic=True)
                for _, t, label in running:
                    t[TASK] = Task(fork, e[TASK], label)
                rng.shuffle(running)

        return in_step if waits else independent

    # ---- statements with barriers, as coroutines ----

    def steps(self, s: Stmt, scope: Scope) -> Coroutine:
        """The coroutine of a statement that stops at every barrier."""
        if not self.has_barrier(s):
            return _no_stop(self.stmt(s, scope))
        match s:
            case Barrier():
                return _stop(s)
            case Sync():
                return _ask(s, index_fn(s.item, scope))
            case Seq():
                return _chain([self.steps(k, scope) for k in s.stmts])
            case If():
                test, then = pred_fn(s.cond, scope), self.steps(s.then, scope)
                orelse = _chain([]) if s.orelse is None else self.steps(s.orelse, scope)
                return _branch(test, then, orelse)
            case Alloc():
                inner, place, shared = self._declare(s, scope)
                body = self.steps(s.body, inner)
                return _after(self._enter_alloc(place, shared, scope), body)
            case For() if s.kind.name == "thread":
                enter, inner, outer = self._thread_parts(s, scope)
                body = self.steps(s.body, inner)
                self.region = outer
                return _branch(enter, body, _chain([]))
            case For():
                if s.kind.name in ("parallel", "vector"):
                    raise ExecutionError(f"a barrier inside the {s.kind} loop {s.var}")
                lo, hi = index_fn(s.lo, scope), index_fn(s.hi, scope)
                inner = scope.inner()
                inner.vars[s.var] = slot = scope.slots.new()
                return _repeat(slot, lo, hi, s.step, self.steps(s.body, inner))
            case _:
                raise ExecutionError("a barrier inside of a block")


def _thread_counts(s: Stmt, scope: Scope, env: dict[str, tuple[Index, Index]], out: dict[str, int]) -> None:
    """The number of threads of each hardware axis: the largest extent of the loops on it."""
    if isinstance(s, For):
        lo, hi = bind_params(s.lo, scope.params), bind_params(s.hi, scope.params)
        if s.kind.name == "thread":
            n = int_upper(hi - lo, env)
            if n is None:
                raise ExecutionError(f"the extent of the thread loop {s.var} has no known bound")
            out[s.kind.axis] = max(out.get(s.kind.axis, 0), -(-n // s.step))
        env = {**env, s.var: (lo, hi - 1)}
    for child in bodies(s):
        _thread_counts(child, scope, env, out)


def _no_stop(action: Action) -> Coroutine:
    def run(e: Env) -> Steps:
        action(e)
        yield from ()

    return run


def _stop(barrier: Barrier) -> Coroutine:
    def run(e: Env) -> Steps:
        yield barrier

    return run


def _ask(s: Sync, item: IntFn) -> Coroutine:
    def run(e: Env) -> Steps:
        yield Asked(s.op, s.channel, item(e))

    return run


def _chain(parts: list[Coroutine]) -> Coroutine:
    def run(e: Env) -> Steps:
        for part in parts:
            yield from part(e)

    return run


def _after(enter: Action, body: Coroutine) -> Coroutine:
    def run(e: Env) -> Steps:
        enter(e)
        yield from body(e)

    return run


def _branch(test: Callable[[Env], bool] | None, then: Coroutine, orelse: Coroutine) -> Coroutine:
    def run(e: Env) -> Steps:
        yield from (then if test is None or test(e) else orelse)(e)

    return run


def _repeat(slot: int, lo: IntFn, hi: IntFn, step: int, body: Coroutine) -> Coroutine:
    def run(e: Env) -> Steps:
        for v in range(lo(e), hi(e), step):
            e[slot] = v
            yield from body(e)

    return run
