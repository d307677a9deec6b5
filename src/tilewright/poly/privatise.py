"""Storage of its own for every iteration: allocations moved into the loops that no value of them crosses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.ir import (
    Alloc,
    For,
    If,
    LoopFunction,
    Seq,
    Stmt,
    find_alloc,
    fresh_name,
    rename_buffers,
    replace_at,
    stmt_loads,
    stmt_writes,
)
from tilewright.poly.budget import bounded
from tilewright.poly.dependences import sources
from tilewright.poly.extract import extract_model


def allocations_inside(func: LoopFunction) -> LoopFunction:
    """The function with each allocation as deep in its loops as the values in it allow.

    An iteration may have storage of its own where each read in it gets what the same iteration has written:
    exact dataflow says so. Iterations then wait for each other no longer because of that storage. Raises
    ResourceError where isl needs too long.
    """
    return bounded(lambda: _inside(func), f"the dataflow of {func.name} is too large")


def _inside(func: LoopFunction) -> LoopFunction:
    for buffer in func.body.allocated:
        place = find_alloc(func.body, buffer.name)
        assert place is not None
        step = _Step(func, place.path, {buffer.name})
        func = step.function(step.deeper(place.node, lambda s: s))
    return func


class _Step:
    """One allocation on its way down; ``names`` are those of the buffer and of its copies."""

    def __init__(self, func: LoopFunction, path: tuple[int, ...], names: set[str]) -> None:
        self.func, self.path, self.names = func, path, names
        self.taken = set(func.body.inner_names) | {b.name for b in (*func.buffers, *func.body.allocated)}

    def function(self, s: Stmt) -> LoopFunction:
        return self.func.with_body(replace_at(self.func.body, self.path, s))

    def keeps(self, s: Stmt) -> bool:
        """Whether all that is read of the buffer is written before, in the storage that it is read from."""
        model = extract_model(self.function(s))
        return all(
            sources(model, reader, slot).initial.is_empty()
            for reader in model.statements
            for slot, r in enumerate(reader.reads)
            if r.buffer in self.names
        )

    def deeper(self, alloc: Alloc, around: Callable[[Stmt], Stmt]) -> Stmt:
        """What the allocation becomes; ``around`` puts a statement in its place in the one that is moved."""
        body, b = alloc.body, alloc.buffer
        match body:
            case For():
                inner = Alloc(b, body.body)

                def in_loop(s: Stmt) -> Stmt:
                    return replace(body, body=s)

                if self.keeps(around(in_loop(inner))):
                    return in_loop(self.deeper(inner, lambda s: around(in_loop(s))))
            case Alloc():

                def in_alloc(s: Stmt) -> Stmt:
                    return Alloc(body.buffer, s)

                return in_alloc(self.deeper(Alloc(b, body.body), lambda s: around(in_alloc(s))))
            case If(orelse=None):

                def in_branch(s: Stmt) -> Stmt:
                    return If(body.cond, s)

                return in_branch(self.deeper(Alloc(b, body.then), lambda s: around(in_branch(s))))
            case Seq():
                return self.apart(alloc, body, around)
        return alloc

    def apart(self, alloc: Alloc, body: Seq, around: Callable[[Stmt], Stmt]) -> Stmt:
        """Storage for each part of a sequence that uses it, where none reads what another has written."""
        using = [n for n, s in enumerate(body.stmts) if _uses(s, alloc.buffer.name)]
        parts = list(body.stmts)
        made: set[str] = set()
        for k, n in enumerate(using):
            name = alloc.buffer.name
            if k:
                name = fresh_name(name, self.taken | made)
                made.add(name)
            own = rename_buffers(parts[n], {alloc.buffer.name: name}) if k else parts[n]
            parts[n] = Alloc(alloc.buffer.with_(name=name), own)
        if not using:
            return body
        before = set(self.names)
        self.names |= made
        if len(using) > 1 and not self.keeps(around(Seq(tuple(parts)))):
            self.names = before
            return alloc
        self.taken |= made
        for n in using:
            part = parts[n]
            assert isinstance(part, Alloc)

            def here(s: Stmt, n: int = n) -> Stmt:
                return around(Seq((*parts[:n], s, *parts[n + 1 :])))

            parts[n] = self.deeper(part, here)
        return Seq(tuple(parts))


def _uses(s: Stmt, name: str) -> bool:
    return any(ld.buffer == name for ld in stmt_loads(s)) or any(b == name for b, _ in stmt_writes(s))
