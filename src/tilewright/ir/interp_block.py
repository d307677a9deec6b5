"""Blocks, stores and instructions as Python closures: what an instance does, and what is checked."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir.atomics import block_update
from tilewright.ir.interp_expr import (
    expr_fn,
    index_fn,
    is_tracked,
    locator,
    moved_fn,
    poison_error,
    pred_fn,
    shared_fn,
)
from tilewright.ir.interp_memory import DomainError, ExecutionError, Shadow
from tilewright.ir.interp_scope import EPOCH, TASK, Env, IntFn, Scope, ValueFn, flat_fn
from tilewright.ir.scalar_ops import UndefinedError, constant, from_array
from tilewright.ir.sharing import shared_nodes
from tilewright.ir.stmt import Block, Exec, For, Seq, Stmt, Store, Window, stmt_children

Action: TypeAlias = Callable[[Env], None]
#: What an instruction does: change the arrays of its ``w`` and ``rw`` windows in place.
Instruction: TypeAlias = Callable[[Sequence["np.ndarray[Any, Any]"], Sequence[Any]], None]


def bodies(s: Stmt) -> tuple[Stmt, ...]:
    """Sub-statements, those of a block included."""
    if isinstance(s, Block):
        return (s.body,) if s.init is None else (s.init, s.body)
    return stmt_children(s)


def walk_stmts(s: Stmt) -> Iterable[Stmt]:
    """All statements, parents first, those inside blocks included."""
    yield s
    for child in bodies(s):
        yield from walk_stmts(child)


def is_axis(s: Stmt, prefix: str) -> bool:
    """Whether a statement is a loop on a hardware axis ``prefix.*``."""
    return isinstance(s, For) and s.kind.name == "thread" and s.kind.axis.split(".")[0] == prefix


@dataclass(slots=True)
class Region:
    """The code that all threads of one block run: hardware axes to the slots of their coordinates."""

    axes: dict[str, int]
    shared: int
    level: int
    covered: frozenset[str] = frozenset()
    under_loop: bool = False


class Leaves(ABC):
    """Builds the closures of blocks, stores and instructions; other statements are the subclass's."""

    def __init__(self, rng: Random, instructions: Mapping[str, Instruction], names: Sequence[str]) -> None:
        self.rng = rng
        self.instructions = instructions
        self.once = frozenset(names)  # buffers whose reducing or ordered instances are counted
        self.region: Region | None = None

    @abstractmethod
    def stmt(self, s: Stmt, scope: Scope) -> Action:
        """The closure that runs a statement."""

    def guarded(self, s: Stmt, action: Action, scope: Scope) -> Action:
        """In a region: what no loop spreads over an axis is done by that axis's first thread alone.

        Writes to storage of each thread's own are done by every thread.
        """
        region = self.region
        if region is None:
            return action
        written = [w.buffer for k in walk_stmts(s) for w in _written(k)]
        free = [slot for axis, slot in region.axes.items() if axis not in region.covered]
        if not free or all(name in scope.places and scope.places[name].private for name in written):
            return action

        def first(e: Env) -> None:
            for slot in free:
                if e[slot]:
                    return
            action(e)

        return first

    def block(self, s: Block, scope: Scope) -> Action:
        """Bind and check the iterators, then run ``init`` where it is due and the body."""
        where = pred_fn(s.where, scope)
        # a block is a closed scope: its own iterators and, through an enclosing block, nothing else
        update = block_update(s)
        named = None if update is None else (update.buffer, update.op)
        inner = scope.inner(vars={}, ranges={}, updated=named)
        binds: list[tuple[int, IntFn, IntFn | int, IntFn | int, str]] = []
        for it, b in zip(s.iters, s.bind, strict=True):
            loop = b.as_var()
            lo, hi = scope.ranges.get(loop or "", (0, -1))
            if (
                loop is not None
                and it.lo.is_const
                and it.hi.is_const
                and it.lo.const <= lo < hi <= it.hi.const
            ):
                inner.vars[it.name] = scope.vars[loop]  # always inside: the loop's own slot serves
                continue
            slot = scope.slots.new()
            bounds = [x.const if x.is_const else index_fn(x, inner) for x in (it.lo, it.hi)]
            binds.append((slot, index_fn(b, scope), bounds[0], bounds[1], it.name))
            inner.vars[it.name] = slot
        first = [(inner.vars[it.name], index_fn(it.lo, inner)) for it in s.iters if it.kind == "red"]
        key = [inner.vars[it.name] for it in s.iters if it.kind != "par"]
        init = None if s.init is None else self._body(s.init, inner, None)
        body = self._body(s.body, inner, (s.stage, key) if key else None)
        loops, iters = dict(scope.vars), dict(inner.vars)

        def point(e: Env) -> str:
            at = ", ".join(f"{n}={e[i]}" for n, i in iters.items())
            loop = ", ".join(f"{n}={e[i]}" for n, i in loops.items())
            return f"block {s.name}({at})" + (f" in loops {loop}" if loop else "")

        def outside(e: Env, name: str, v: int, lo: int, hi: int) -> DomainError:
            return DomainError(f"iterator {name} = {v} lies outside of its domain [{lo}, {hi})")

        fast = [
            (slot, f, lo, hi) for slot, f, lo, hi, _ in binds if isinstance(lo, int) and isinstance(hi, int)
        ]
        all_const = len(fast) == len(binds)

        def bind(e: Env) -> None:
            for slot, f, lo, hi, name in binds:
                v = e[slot] = f(e)
                low = lo if isinstance(lo, int) else lo(e)
                high = hi if isinstance(hi, int) else hi(e)
                if not low <= v < high:
                    raise outside(e, name, v, low, high)

        def run(e: Env) -> None:
            try:
                if where is not None and not where(e):
                    return
                if all_const:
                    for slot, f, lo, hi in fast:
                        v = f(e)
                        e[slot] = v
                        if not lo <= v < hi:
                            bind(e)
                else:
                    bind(e)
                if init is not None:
                    for slot, f in first:
                        if e[slot] != f(e):
                            break
                    else:
                        init(e)
                body(e)
            except (ExecutionError, UndefinedError) as error:
                if error.where is None:
                    error.where = point(e)
                raise

        spread = any(is_axis(k, "thread") for k in walk_stmts(s.body))
        return run if spread else self.guarded(s, run, scope)

    def _body(self, s: Stmt, scope: Scope, key: tuple[str, list[int]] | None) -> Action:
        if isinstance(s, Store):
            return self.store(s, scope, key)
        if isinstance(s, Seq):
            return sequence([self._body(k, scope, key) for k in s.stmts])
        return self.stmt(s, scope)

    def store(self, s: Store, scope: Scope, key: tuple[str, list[int]] | None) -> Action:
        """Simultaneous assignments; ``key``: the stage and iterators of instances that must not repeat."""
        parts = [self._write(w.buffer, scope, key) for w in s.writes]
        places = [scope.place(w.buffer) for w in s.writes]
        at = [locator(p, w.indices, scope) for p, w in zip(places, s.writes, strict=True)]
        values = [
            moved_fn(w.value, scope) if p.allocated else shared_fn(w.value, scope)
            for p, w in zip(places, s.writes, strict=True)
        ]
        if any(shared_nodes((w.value,)) for w in s.writes):
            first = values[0]

            def renewed(e: Env) -> Any:
                e[EPOCH] += 1
                return first(e)

            values[0] = renewed
        for p, w in zip(places, s.writes, strict=True):
            if w.value.dtype != p.buffer.dtype:
                raise ExecutionError(
                    f"a value of type {w.value.dtype} is stored to {p.buffer.name} of type {p.buffer.dtype}"
                )
        if len(parts) == 1:
            return _single_store(places[0].data, at[0], values[0], parts[0])

        def run(e: Env) -> None:
            todo = [
                (p.data, f(e), v(e), note) for p, f, v, note in zip(places, at, values, parts, strict=True)
            ]
            for data, n, v, note in todo:
                if note is not None:
                    note(e, n)
                e[data][n] = v

        return run

    def _write(
        self, name: str, scope: Scope, key: tuple[str, list[int]] | None
    ) -> Callable[[Env, int], None] | None:
        """What is recorded about a write to a flat position, or ``None``."""
        place = scope.place(name)
        if not place.writable:
            raise ExecutionError(
                f"buffer {name} is written, but it is an argument that is not among the outputs"
            )
        tracked, shadow = is_tracked(place, scope), place.shadow
        op = scope.updated[1] if scope.updated is not None and scope.updated[0] == name else ""

        def record(e: Env, n: int) -> None:
            if op:
                e[shadow].note_update(n, e[TASK], op)
            else:
                e[shadow].note_write(n, e[TASK])

        if not place.once:
            return record if tracked else None
        slots = None if key is None else key[1]
        stage = "" if key is None else key[0]

        def note(e: Env, n: int) -> None:
            memory: Shadow = e[shadow]
            if tracked:
                record(e, n)
            if slots is None:
                memory.seen.pop(n, None)
            else:
                memory.note_instance(n, stage, tuple([e[s] for s in slots]))

        return note

    def execute(self, s: Exec, scope: Scope) -> Action:
        """Call an instruction's semantics on the contents of its windows."""
        if s.instr not in self.instructions:
            raise ExecutionError(f"no semantics are given for the instruction {s.instr}")
        fn = self.instructions[s.instr]
        windows = [self._window(w, scope) for w in s.windows]
        args = [expr_fn(a, scope) for a in s.args]
        loops = dict(scope.vars)

        def run(e: Env) -> None:
            try:
                opened = [w(e) for w in windows]
                fn([array for array, _ in opened], [a(e) for a in args])
                for _, close in opened:
                    close()
            except (ExecutionError, UndefinedError) as error:
                if error.where is None:
                    at = ", ".join(f"{n}={e[i]}" for n, i in loops.items())
                    error.where = f"instruction {s.instr} in loops {at}"
                raise

        return run

    def _window(
        self, w: Window, scope: Scope
    ) -> Callable[[Env], tuple[np.ndarray[Any, Any], Callable[[], None]]]:
        """Opens a window: its elements as an array, and what writes them back."""
        place = scope.place(w.buffer)
        offsets = [index_fn(i, scope) for i in w.offsets]
        flat, dtype, data, shadow = flat_fn(place), place.buffer.dtype, place.data, place.shadow
        box, shape = _elements(w)
        note = self._write(w.buffer, scope, None) if w.mode != "r" else None
        tracked = w.mode != "w" and is_tracked(place, scope)
        garbage = constant(float("nan") if dtype.is_float else 57, dtype)

        def open_(e: Env) -> tuple[np.ndarray[Any, Any], Callable[[], None]]:
            origin = [f(e) for f in offsets]
            at = [flat(e, tuple([o + k for o, k in zip(origin, c, strict=True)])) for c in box]
            storage = e[data]
            if w.mode == "w":
                values = [garbage] * len(at)
            else:
                values = [storage[n] for n in at]
                for n, v in zip(at, values, strict=True):
                    if v is None:
                        raise poison_error(place, n)
                    if tracked:
                        e[shadow].note_read(n, e[TASK])
            array = np.array(values, dtype.numpy).reshape(shape)

            def close() -> None:
                if w.mode != "r":
                    for n, v in zip(at, from_array(array, dtype), strict=True):
                        if note is not None:
                            note(e, n)
                        storage[n] = v

            return array, close

        return open_


def _elements(w: Window) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """The elements of a window, from its first, as an instruction gets them, and the shape they make."""
    if not w.axes:
        return list(itertools.product(*(range(n) for n in w.extents))), w.extents
    shape = tuple(a.count for a in w.axes)
    found: list[tuple[int, ...]] = []
    for at in itertools.product(*(range(n) for n in shape)):
        place = [0] * len(w.extents)
        for n, a in zip(at, w.axes, strict=True):
            place[a.dim] += n * a.step
        found.append(tuple(place))
    return found, shape


def _written(s: Stmt) -> Iterable[Any]:
    if isinstance(s, Store):
        return s.writes
    return [w for w in s.windows if w.mode != "r"] if isinstance(s, Exec) else []


def _single_store(data: int, at: IntFn, value: ValueFn, note: Callable[[Env, int], None] | None) -> Action:
    if note is None:

        def plain(e: Env) -> None:
            n = at(e)
            e[data][n] = value(e)

        return plain

    def noted(e: Env) -> None:
        n = at(e)
        v = value(e)
        note(e, n)
        e[data][n] = v

    return noted


def sequence(actions: list[Action]) -> Action:
    """One action after another."""
    if len(actions) == 1:
        return actions[0]

    def run(e: Env) -> None:
        for a in actions:
            a(e)

    return run
