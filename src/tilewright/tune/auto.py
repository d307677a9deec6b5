"""The strategy ``auto``: several searches of one task, of which those that find more propose more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tilewright.plan import UnitPlan
from tilewright.strategies import MEASURED, STRATEGIES, Candidate, History, Search, Strategy, Task, Trial
from tilewright.support import digest_text

#: What its searches are: one line each.
MEMBERS: Final = ("descent", "evolutionary", "joint")
#: What a search is credited with before it found anything, and the part of its credit that it keeps a batch.
FIRST_CREDIT: Final = 0.05
KEPT: Final = 0.7


@dataclass(frozen=True, slots=True)
class AutoStrategy:
    """Searches by their names; each is told what became of all candidates."""

    name: str = MEASURED
    members: tuple[str, ...] = MEMBERS

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin all of them; the joint search when it is asked first."""
        return _AutoSearch([STRATEGIES[name] for name in self.members], task, history, rng)


@dataclass(slots=True, eq=False)
class _Member:
    strategy: Strategy
    seed: int
    search: Search | None = None
    credit: float = FIRST_CREDIT
    asked: int = 0
    exhausted: bool = False


class _AutoSearch:
    def __init__(self, members: Sequence[Strategy], task: Task, history: History, rng: Random) -> None:
        self._task, self._history = task, history
        self._members = [_Member(each, rng.getrandbits(64)) for each in members]
        self._first: list[Trial] = []
        self._best = float("inf")
        self._owner: dict[str, _Member] = {}

    def propose(self, count: int) -> Sequence[Candidate]:
        """Candidates of the member with the most credit; of others where it has none."""
        while True:
            able = [each for each in self._members if not each.exhausted]
            if not able:
                return []
            member = max(able, key=lambda each: each.credit / (1 + each.asked))
            if member.search is None:
                member.search = member.strategy.start(self._task, self._history, Random(member.seed))
                member.search.observe(self._first)
            found = member.search.propose(count)
            member.asked += 1
            if found:
                self._owner = {digest_text(each.plan.to_json()): member for each in found}
                return found
            member.exhausted = True

    def observe(self, trials: Sequence[Trial]) -> None:
        """Tell all members; who proposed what is faster than all before is credited with what it saves."""
        if not self._first:
            self._first = list(trials)
        owners = {
            id(owner): owner
            for trial in trials
            if isinstance(trial.candidate.plan, UnitPlan)
            and (owner := self._owner.get(digest_text(trial.candidate.plan.to_json()))) is not None
        }
        best = min((trial.best for trial in trials if trial.status == "ok"), default=float("inf"))
        saved = 0.0 if self._best == float("inf") else max(0.0, 1 - best / self._best)
        for owner in owners.values():
            owner.credit = KEPT * owner.credit + saved
            owner.asked = 0 if saved > 0 else owner.asked
        self._best = min(self._best, best)
        for member in self._members:
            if member.search is not None:
                member.search.observe(trials)

    def expected_gain(self) -> float:
        """The largest that a member expects."""
        able = [m.search for m in self._members if m.search is not None and not m.exhausted]
        if any(m.search is None for m in self._members):
            return 1.0
        return max((search.expected_gain() for search in able), default=0.0)


#: The strategy that tuning takes where none is named.
AUTO: Final = AutoStrategy()
