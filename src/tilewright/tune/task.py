"""One task on its way through a session: its search, its leaders, and what more trials of it are worth."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from random import Random
from typing import Final

from tilewright.ir import structural_hash
from tilewright.plan import UnitPlan
from tilewright.strategies import AnyTask, AnyTime, Candidate, History, Search, Strategy, Trial
from tilewright.support import ArtefactError, ProgramError, ResourceError, ScheduleError, digest_text
from tilewright.tune.allowance import allowed, deciding_seconds, trials_within
from tilewright.tune.database import Database, Record
from tilewright.tune.decide import LEADERS, LOADED, Decision, decide, likely
from tilewright.tune.measure import LIMITS, Measurer, TrialLimits
from tilewright.tune.transfer import neighbours_of

#: Candidates that are proposed and measured together.
BATCH: Final = 8
#: Part of a task's time that more trials are hoped to save: divided by the batches that were in vain.
OPTIMISM: Final = 0.2
#: The least part of a task's time that counts as an improvement.
IMPROVED: Final = 0.005
#: Batches in vain after which a task is given up.
MOST_STALE: Final = 12
#: What a search says that knows nothing yet.
UNKNOWN: Final = 1.0


@dataclass(frozen=True, slots=True)
class TaskUse:
    """A task, what it is called, and how often one run of the model does it."""

    task: AnyTask
    label: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What tuning of a task came to: seconds of the default plan and of the best, side by side.

    ``plan`` is for the task's own names, ``None`` where the default stays. ``known`` says that it was in the
    database; ``reason`` why the default plan could not be measured; ``load`` is others' part of the CPUs'
    time while it was decided, where that could be told. ``sure`` is false where the time ended before the
    leaders had taken turns with the default often enough: the best is then by what was measured until then.
    """

    task: AnyTask
    label: str
    untuned: float
    best: float
    plan: UnitPlan | None
    trials: int
    known: bool = False
    reason: str = ""
    weight: float = 1.0
    load: float | None = None
    sure: bool = True

    @property
    def saved(self) -> float:
        """Seconds of one run of the model that the plan saves."""
        return self.weight * (self.untuned - self.best) if self.plan is not None else 0.0

    @property
    def gain(self) -> float:
        """How many times faster the best is; 1 where the default stays."""
        return self.untuned / self.best if self.plan is not None and self.best > 0 else 1.0


@dataclass(slots=True, eq=False)
class TaskState:
    """A task that is tuned; its program has canonical names, as the database's has."""

    use: TaskUse
    task: AnyTask
    key: str
    default: Candidate
    func: str
    search: Search | None = None
    trials: int = 0
    #: Trials of this session after the default plan's, and the seconds that they took.
    made: int = 0
    taken: float = 0.0
    stale: int = 0
    best: float = float("inf")
    untuned: Trial | None = None
    leaders: list[Trial] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    #: Trials of an earlier session by the digests of their plans: they are not made again.
    earlier: dict[str, Trial] = field(default_factory=dict)
    #: Whether it was tuned before, and is tuned once more.
    again: bool = False
    over: bool = False

    @property
    def default_seconds(self) -> float:
        """Seconds of the default plan; infinite before it ran."""
        return inf if self.untuned is None else self.untuned.best

    @property
    def saved(self) -> float:
        """Seconds of one run of the model that the best plan so far saves."""
        return self.use.weight * (self.default_seconds - self.best) if isfinite(self.default_seconds) else 0.0

    @property
    def total(self) -> float:
        """Seconds of one run of the model that this task takes by its best plan."""
        return self.use.weight * self.best if self.untuned is not None else 0.0

    def faster(self) -> list[Trial]:
        """The leaders that are other functions than the default plan's, and were faster."""
        if self.untuned is None:
            return []
        default, least = self.default.plan, self.untuned.best
        found = [t for t in self.leaders if t.candidate.plan != default and t.func != self.func]
        return [t for t in found if t.best < least][:LEADERS]

    def deciding(self, count: int, rounds: int) -> float:
        """Seconds that it would take to decide so many leaders in so many rounds."""
        if self.untuned is None or self.untuned.status != "ok":
            return 0.0
        # as many as there may come to be
        leaders = [*self.faster(), *[self.untuned] * count][:count]
        return deciding_seconds(self.untuned, leaders, rounds, self.setup)

    @property
    def setup(self) -> float:
        """Seconds that a trial took so far, on the whole."""
        return self.taken / self.made if self.made else 0.0

    def worth(self) -> float:
        """Seconds of one run of the model that the next trials may save."""
        if self.over:
            return 0.0
        known = UNKNOWN if self.search is None else self.search.expected_gain()
        hoped = OPTIMISM / (1 + self.stale)
        return self.total * (hoped if known >= UNKNOWN else max(known, hoped))

    def observe(self, trials: Sequence[Trial]) -> None:
        """Remember what counts of trials: the best few."""
        before = self.best
        self.trials += len(trials)
        self.lead(trials)
        self.stale = 0 if self.best < before * (1 - IMPROVED) else self.stale + 1
        if self.stale >= MOST_STALE:
            self.over = True

    def lead(self, trials: Iterable[Trial]) -> None:
        """Let the best few of trials be leaders."""
        for trial in trials:
            if trial.status == "ok":
                self.leaders.append(trial)
                self.best = min(self.best, trial.best)
        self.leaders.sort(key=lambda trial: trial.best)
        del self.leaders[2 * LEADERS :]


def open_task(use: TaskUse, database: Database, again: bool) -> TaskState | TaskResult:
    """Begin a task; the result where the database has one that is finished and still true.

    With ``again`` there is none: what was tried before is known to the search, which goes on from there, and
    the best of it stand among the leaders.
    """
    task = use.task.canonical()
    key = task.key
    if not again and database.finished(key):
        known = known_result(use, task, database)
        if known is not None:
            return known
    planned = task.default()
    default = Candidate("default", planned.plan)
    state = TaskState(use, task, key, default, structural_hash(planned.func))
    database.declare(task, use.label, key)
    state.earlier = {digest_text(t.candidate.plan.to_json()): t for t in database.history(key)}
    if again:
        state.again = True
        state.seen.update(state.earlier)
        state.lead(state.earlier.values())
    return state


def known_result(use: TaskUse, task: AnyTask, database: Database) -> TaskResult | None:
    """What the database has of a task under canonical names, where that is still true."""
    for record in database.ranked(task.key)[:1]:
        if still_true(record, task):
            plan = use.task.renamed(record.plan, task.program)
            return TaskResult(
                use.task, use.label, record.untuned, record.seconds, plan, 0, True, weight=use.weight
            )
    return None


def still_true(record: Record, task: AnyTask) -> bool:
    """Whether a record's plan gives the function that was measured."""
    try:
        made = task.carried_out(record.plan)
    except (ScheduleError, ProgramError, ResourceError, ArtefactError):
        return False
    return structural_hash(made.func) == record.func


def measure_default(
    state: TaskState, measurer: Measurer, database: Database, session: int, until: float = inf
) -> Trial | None:
    """Measure the default plan, before all others; it is not, where the time is over before that."""
    made = measurer.measure(state.task, [state.default], replace(LIMITS, until=until))
    if not made:
        return None
    (first,) = made
    database.add(state.key, [first], session)
    state.untuned = first
    state.observe([first])
    state.stale = 0
    state.seen.add(digest_text(state.default.plan.to_json()))
    if first.status != "ok":
        state.over = True
    return first


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Candidates of a task that are new, and trials of those that were measured in an earlier session."""

    state: TaskState
    new: Sequence[Candidate]
    known: Sequence[Trial]

    def settle(self, made: Sequence[Trial], database: Database, session: int, taken: float = 0.0) -> None:
        """Let the search know what became of the candidates, and keep it; they took so many seconds."""
        state = self.state
        state.made, state.taken = state.made + len(made), state.taken + taken
        database.add(state.key, made, session)
        if state.search is not None:
            state.search.observe([*self.known, *made])
        if self.known or made:
            state.observe([*self.known, *made])
        elif not self.new:
            # it proposes nothing but what was tried
            state.stale += 1
            state.over = state.over or state.stale >= MOST_STALE


def next_batch(
    state: TaskState,
    strategy: Strategy,
    database: Database,
    seed: int,
    most: int,
    until: float = inf,
    start: Database | None = None,
) -> Batch:
    """What a task's search proposes next; a search that proposes nothing is over.

    There are as many as are hoped to be measured until that moment. The search begins with the records of
    tasks that are alike, from the database and from ``start``.
    """
    assert state.untuned is not None
    if state.search is None:
        history = History(neighbours_of(state.task, state.key, database, start))
        before = [t for t in state.earlier.values() if t.candidate.plan != state.default.plan]
        known_before = before if state.again else []
        # once more is not the same way once more
        walk = f"{seed} {state.key} {len(known_before)}" if state.again else f"{seed} {state.key}"
        state.search = state.task.search(strategy, history, Random(walk))
        state.search.observe([state.untuned, *known_before])
    if isinstance(state.search, AnyTime):
        state.search.end_by(until)
    most = trials_within(state.made, state.taken, until - time.monotonic(), most)
    proposed = state.search.propose(max(1, most))
    if not proposed:
        state.over = time.monotonic() < until
    known: list[Trial] = []
    new: list[Candidate] = []
    for candidate in proposed:
        key = digest_text(candidate.plan.to_json())
        if key in state.seen:
            continue
        state.seen.add(key)
        if key in state.earlier:
            known.append(replace(state.earlier[key], candidate=candidate))
        else:
            new.append(candidate)
    return Batch(state, new, known)


def decided(
    state: TaskState, untuned: Trial, measurer: Measurer, limits: TrialLimits, *, repeat: bool
) -> Decision:
    """Which leaders are faster than the default plan: as many, in as many rounds, as the limits' time allows.

    Where there is no time for it, first measurements decide. With ``repeat`` leaders are measured once more
    where others were at work meanwhile and there is time; the first decision stays where that is cut off.
    """
    made = state.faster()
    begin = time.monotonic()
    allowance = allowed(untuned, made, limits.until - begin, state.setup)
    leaders = [t.candidate for t in made[: allowance.leaders]]
    if not leaders:
        return likely(untuned, made)
    limits = replace(limits, rounds=min(limits.rounds, allowance.rounds))
    found = decide(state.task, state.default, leaders, measurer, limits)
    if found is None:
        return likely(untuned, made)
    now = time.monotonic()
    if repeat and found.load is not None and found.load > LOADED and now - begin < limits.until - now:
        more = decide(state.task, state.default, leaders, measurer, limits)
        return more if more is not None and more.whole else found
    return found


def finish(
    state: TaskState,
    measurer: Measurer,
    database: Database,
    limits: TrialLimits,
    *,
    final: bool,
    repeat: bool = False,
) -> TaskResult:
    """Decide between the leaders and the default plan, and keep what was decided.

    ``final`` says that the task had its share of the budget, and will not be tuned again, if the decision is
    a sure one; one that is not does not replace an earlier winner. ``repeat`` is for :func:`decided`.
    """
    use, first = state.use, state.untuned
    if first is None or first.status != "ok":
        reason = (
            "no time was left (a later tuning measures it)"
            if first is None
            else f"{first.status}: {first.reason}"
        )
        return TaskResult(use.task, use.label, inf, inf, None, state.trials, reason=reason, weight=use.weight)
    decision = decided(state, first, measurer, limits, repeat=repeat)
    if not decision.whole:
        kept = known_result(use, state.task, database)
        if kept is not None and kept.gain > 1:
            return kept  # a winner from before was measured beside the default
    records = [
        Record(state.key, plan, won.trial.func, won.ratio * decision.seconds, decision.seconds)
        for won in decision.winners
        for plan in [won.trial.candidate.plan]
        if isinstance(plan, UnitPlan)
    ]
    default = state.default.plan
    assert isinstance(default, UnitPlan)
    untuned = Record(state.key, default, state.func, decision.seconds, decision.seconds)
    database.keep(state.key, [*records, untuned], finished=final and decision.whole)
    best = records[0] if records else None
    plan = None if best is None else use.task.renamed(best.plan, state.task.program)
    return TaskResult(
        use.task,
        use.label,
        decision.seconds,
        decision.seconds if best is None else best.seconds,
        plan,
        state.trials,
        weight=use.weight,
        load=decision.load,
        sure=decision.whole,
    )
