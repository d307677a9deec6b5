"""Recognising what a reduction stage does: folds by one operator, and the pairs of an argmax or argmin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tilewright import ir
from tilewright.analysis import best_pair_of, update_of
from tilewright.ir import Access, Expr, Stage, Store

FOLDS: Final = ("add", "mul", "min", "max", "and", "or")


@dataclass(frozen=True, slots=True)
class Fold:
    """A reduction by one operator: ``buffer[indices] = op(buffer[indices], value)`` where ``where`` holds."""

    op: str
    target: Access
    value: Expr
    where: ir.Pred

    @property
    def targets(self) -> tuple[Access, ...]:
        """The written elements."""
        return (self.target,)

    @property
    def values(self) -> tuple[Expr, ...]:
        """What is combined into the targets."""
        return (self.value,)


@dataclass(frozen=True, slots=True)
class Extremum:
    """An argmax or argmin: its pair of targets, the compared value, the position."""

    kind: Literal["argmax", "argmin"]
    targets: tuple[Access, Access]
    value: Expr
    position: Expr
    where: ir.Pred

    @property
    def values(self) -> tuple[Expr, ...]:
        """What is combined into the targets."""
        return (self.value, self.position)


Pattern: TypeAlias = Fold | Extremum


def patterns_of(stage: Stage) -> list[Pattern] | None:
    """The reductions that make up a stage's body; ``None`` where it has another form.

    Their values read no buffer that the stage writes, and their targets do not move along reduction
    iterators.
    """
    where, body = ir.condition_of(stage.body)
    if not isinstance(body, Store):
        return None
    out: list[Pattern] = []
    n = 0
    while n < len(body.writes):
        w = body.writes[n]
        pair = _extremum(body.writes[n : n + 2], where)
        if pair is not None:
            out.append(pair)
            n += 2
            continue
        update = update_of(w)
        if update is None or update.op not in FOLDS or not update.first:
            return None
        out.append(Fold(update.op, w, update.term, where))
        n += 1
    own = {w.buffer for w in body.writes}
    red = {it.name for it in stage.iters if it.kind == "red"}
    read = [v for p in out for v in p.values] + [c.expr for c in where if c.expr is not None]
    if any(ld.buffer in own for v in read for ld in ir.loads(v)):
        return None
    if any(i.vars & red for p in out for t in p.targets for i in t.indices):
        return None
    return out


def _extremum(writes: tuple[Access, ...], where: ir.Pred) -> Extremum | None:
    found = best_pair_of(writes)
    if found is None:
        return None
    kind: Literal["argmax", "argmin"] = "argmax" if found.order == "gt" else "argmin"
    return Extremum(kind, (writes[0], writes[1]), found.value, found.position, where)
