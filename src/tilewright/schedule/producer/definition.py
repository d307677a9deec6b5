"""The definition of an element as an expression: what inlining puts in the place of a load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Expr, Index, Iter, Load, Stmt, Store, map_loads, prove_ge0, stmt_loads, var


@dataclass(frozen=True, slots=True)
class Definition:
    """``buffer[indices] = value`` over iterators, each of which one index tells."""

    buffer: str
    value: Expr
    solved: tuple[
        tuple[str, int, int, Index], ...
    ]  # iterator, dimension, sign, rest: index = sign * it + rest
    fixed: tuple[tuple[str, Index], ...]

    def at(self, indices: Sequence[Index]) -> Expr:
        """The element at ``indices``."""
        env = dict(self.fixed)
        for name, d, sign, rest in self.solved:
            env[name] = (indices[d] - rest) * sign
        return self.value.substitute(env)


def definition_of(iters: Sequence[Iter], body: Stmt, init: Stmt | None) -> Definition | str:
    """The definition that a stage or block makes, or why it cannot be put into expressions."""
    if init is not None or any(it.kind != "par" for it in iters):
        return "it is a reduction or runs in a given order"
    if not isinstance(body, Store):
        return "its body is not a plain assignment"
    if len(body.writes) != 1:
        return "it defines several buffers at once"
    access = body.writes[0]
    if any(ld.buffer == access.buffer for ld in stmt_loads(body)):
        return f"it reads {access.buffer!r}, which it defines"
    left = {it.name: it for it in iters}
    solved: list[tuple[str, int, int, Index]] = []
    for d, x in enumerate(access.indices):
        names = [n for n in x.vars if n in left]
        if len(names) == 1 and x.coefficient(names[0]) in (1, -1):
            sign = x.coefficient(names[0])
            rest = x - var(names[0]) * sign
            if not rest.vars:
                solved.append((names[0], d, sign, rest))
                del left[names[0]]
    fixed = []
    for name, it in left.items():
        if not prove_ge0(Index(1) - it.extent, {}):
            return f"its iterator {name!r} cannot be told from the element's indices"
        fixed.append((name, it.lo))
    return Definition(access.buffer, access.value, tuple(solved), tuple(fixed))


def inlined(s: Stmt, definition: Definition) -> Stmt:
    """``s`` with every load of the defined buffer replaced by its definition, equal ones by the same object.

    An element that a condition and what it selects both read is then computed once, and without a condition.
    """
    known: dict[Load, Expr] = {}

    def of_load(ld: Load) -> Expr:
        if ld.buffer != definition.buffer:
            return ld
        if ld not in known:
            known[ld] = definition.at(ld.indices)
        return known[ld]

    return map_loads(s, of_load)
