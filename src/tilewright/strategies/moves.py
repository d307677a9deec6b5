"""Moves: the plans that one decision makes of a plan, and where searches begin.

A decision is another choice of a nest's rule, or an edit of its trees. Searches hold plans alone: none has a
language of its own for what it varies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from random import Random
from typing import Any, Final, TypeAlias

from tilewright import tiling
from tilewright.plan import Space, UnitPlan, Variants, edit_nest, rewritten
from tilewright.strategies.search import History, Task
from tilewright.support import ArtefactError, ScheduleError
from tilewright.target import Target

#: Moves that are looked at around a plan, at most; of more as many drawn ones.
MOST_MOVES: Final = 256
#: Plans whose moves are remembered.
REMEMBERED: Final = 64
#: Moves that are tried for one that gives a plan.
MOST_DRAWS: Final = 32
#: Plans of a history that a search begins with, at most.
ADOPTED: Final = 4

Move: TypeAlias = tuple[int, Any]
"""The number of a nest, and what is decided there: an edit with the number of its tree, or a choice."""


class Moves:
    """The moves of one task's plans. On devices choices alone: trees have no prices there."""

    def __init__(self, task: Task, rng: Random) -> None:
        self._task, self._rng = task, rng
        self._known = lru_cache(REMEMBERED)(self._of)

    def around(self, plan: UnitPlan) -> Iterator[UnitPlan]:
        """The plans one move away, none twice, in a fixed order unless there are too many."""
        variants, moves = self._known(plan)
        if len(moves) > MOST_MOVES:
            moves = tuple(self._rng.sample(moves, MOST_MOVES))
        seen = {plan}
        for move in moves:
            made = self._made(variants, move)
            if made is not None and made not in seen:
                seen.add(made)
                yield made

    def drawn(self, plan: UnitPlan) -> UnitPlan:
        """A plan one move away, drawn at random; the plan itself where none of many moves gives one."""
        variants, moves = self._known(plan)
        for _ in range(MOST_DRAWS if moves else 0):
            made = self._made(variants, self._rng.choice(moves))
            if made is not None and made != plan:
                return made
        return plan

    def _of(self, plan: UnitPlan) -> tuple[Variants, tuple[Move, ...]]:
        task = self._task
        variants = Variants(task.program, plan, task.machine, task.constants)
        found: list[Move] = []
        for n, variant in enumerate(variants.nests):
            if variant is not None:
                found += [(n, choice) for choice in variant.space.neighbours(variant.nest.choice)]
                found += [(n, choice) for choice in variant.space.others if choice != variant.nest.choice]
        if isinstance(task.machine.on, Target):
            extents = variants.context.extents
            for n, nest in enumerate(variants.plan.nests):
                for at, tree in enumerate(nest.trees):
                    found += [(n, (at, edit)) for edit in tiling.neighbours(tree, extents)]
        return variants, tuple(found)

    def _made(self, variants: Variants, move: Move) -> UnitPlan | None:
        """The plan that a move gives; ``None`` where it gives no tree of the program."""
        n, change = move
        plan = variants.plan
        try:
            if not isinstance(change, tuple):
                return variants.chosen({n: change})
            nest = edit_nest(variants.context.after(plan.nests[n].steps), plan.nests[n], *change)
        except ScheduleError:
            return None
        return replace(plan, nests=(*plan.nests[:n], nest, *plan.nests[n + 1 :]))


def adopted(task: Task, history: History) -> list[UnitPlan]:
    """The best plans of a history for a task, best first.

    Plans of its own program are taken as they are. Of those of others, which have other sizes, choices are,
    as far as the rules of this task's nests have them as options.
    """
    default, found = task.default().plan, dict[UnitPlan, None]()
    variants = Variants(task.program, default, task.machine, task.constants)
    ok = [trial for trial in history.trials if trial.status == "ok"]
    for trial in sorted(ok, key=lambda trial: trial.best):
        plan = trial.candidate.plan
        made = _carried(task, variants, plan) if isinstance(plan, UnitPlan) else None
        if made is not None and made != default:
            found[made] = None
        if len(found) == ADOPTED:
            break
    return list(found)


def _carried(task: Task, variants: Variants, plan: UnitPlan) -> UnitPlan | None:
    try:
        if plan.nests and not plan.asked:
            s, _ = rewritten(task.program, plan, task.machine, task.constants)
            s = s.replay(step for nest in plan.nests for step in nest.steps)
            tiling.verify(plan.trees, s.require_program(), task.machine.on.operations)
            return plan
    except (ScheduleError, ArtefactError):
        pass
    if [rule for rule, _ in plan.choices] != [nest.rule for nest in variants.plan.nests]:
        return None
    choices = {
        n: _fitted(variant.space, theirs)
        for n, (variant, (_, theirs)) in enumerate(zip(variants.nests, plan.choices, strict=True))
        if variant is not None
    }
    try:
        return variants.chosen({n: choice for n, choice in choices.items() if choice is not None})
    except ScheduleError:
        return None


def _fitted(space: Space[Any], theirs: Any) -> Any:
    """The choice of a space with what another nest's has, where that is an option; ``None`` for none."""
    if theirs in space.others:
        return theirs
    if type(theirs) is not type(space.default) or not is_dataclass(theirs):
        return None
    own = {
        each.name: value
        for each in fields(theirs)
        if (value := getattr(theirs, each.name)) in space.options.get(each.name, ())
    }
    choice = replace(space.default, **own)
    return None if space.refusal(choice) else choice
