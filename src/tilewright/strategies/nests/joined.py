"""Neighbouring loops as one, where what they share passes at equal iterations and stays in the cache.

for i in range(n):                  for i in range(n):
    a row of y[i, ...]       ->         a row of y[i, ...]
for i in range(n):                      a row of z[i, ...], which reads y[i, ...]
    a row of z[i, ...]
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import (
    For,
    LoopFunction,
    Seq,
    Stmt,
    blocks,
    locate,
    map_stmt,
    seq,
    stmt_loads,
    stmt_writes,
    substitute,
    var,
)
from tilewright.poly import LoopFacts, Model, bounded, extract_model, meet_apart


def join_loops(func: LoopFunction, facts: LoopFacts) -> LoopFunction:
    """The function with free neighbours of equal extents joined; what is known of its loops stays so.

    Only loops that touch an array in common, and that all hold loops or none does: a loop without others runs
    in lanes, which it would not beside one. Raises ResourceError where isl needs too long.
    """
    if not any(isinstance(p.node, Seq) for p in locate(func.body, Seq)):
        return func

    def found() -> LoopFunction:
        model = extract_model(func)

        def visit(s: Stmt) -> Stmt:
            if not isinstance(s, Seq):
                return s
            out: list[Stmt | _Joined] = []
            for child in s.stmts:
                last = out[-1] if out else None
                if isinstance(child, For) and child.var in facts.free and child.kind.name == "serial":
                    if isinstance(last, _Joined) and last.takes(child, model):
                        out[-1] = _Joined((*last.loops, child))
                    else:
                        out.append(_Joined((child,)))
                else:
                    out.append(child)
            return seq(*(x.stmt() if isinstance(x, _Joined) else x for x in out))

        return func.with_body(map_stmt(func.body, visit))

    return bounded(found, f"the accesses of {func.name} are too many")


@dataclass(frozen=True, slots=True)
class _Joined:
    """Loops that run as one."""

    loops: tuple[For, ...]

    def takes(self, loop: For, model: Model) -> bool:
        first = self.loops[0]
        if (first.lo, first.extent, _holds_loops(first)) != (loop.lo, loop.extent, _holds_loops(loop)):
            return False
        touched = {name for each in self.loops for name in _touched(each)}
        if not touched & _touched(loop):
            return False
        mine = {b.node.name for b in blocks(loop)}
        for each in self.loops:
            names = {b.node.name for b in blocks(each)}
            if meet_apart(model, (names, each.var), (mine, loop.var)):
                return False
        return True

    def stmt(self) -> Stmt:
        first, *others = self.loops
        if not others:
            return first
        bodies = (substitute(each.body, {each.var: var(first.var)}) for each in others)
        return For(first.var, first.lo, first.extent, seq(first.body, *bodies), first.kind, hints=first.hints)


def _holds_loops(loop: For) -> bool:
    return any(True for _ in locate(loop.body, For))


def _touched(loop: For) -> set[str]:
    return {ld.buffer for ld in stmt_loads(loop)} | {name for name, _ in stmt_writes(loop)}
