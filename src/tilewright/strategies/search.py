"""What searches have in common: tasks, candidates, trials, and the protocol that every strategy follows.

A search proposes candidates and is told what became of them. It never compiles and never times: that is done
by whoever runs it, with the default plan measured first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from tilewright.cost import Machine
from tilewright.ir import LoopFunction, Program, canonical, structural_hash
from tilewright.plan import AUTO, Accuracy, Planned, UnitPlan, build_unit, plan_unit, renamed_plan
from tilewright.schedule import Schedule, Trace

#: What became of a candidate: it ran, a step or code generation refused it, its process ended or did not,
#: it took too much memory, its results were wrong, or it was given up as too slow.
Status: TypeAlias = Literal["ok", "refused", "uncompilable", "crashed", "hung", "memory", "wrong", "slow"]

#: Default plans that are remembered: those of a model's kernels (ResNet-152 has 155 layers with weights).
REMEMBERED: Final = 256


@dataclass(frozen=True, slots=True)
class Task:
    """One program to be made fast on a machine: layouts of its arguments are part of it.

    ``constants`` are arguments whose contents are known when compiling; ``accuracy`` says which
    algorithms other than the direct one are exact enough. ``free`` are arguments besides constants whose
    layouts a candidate may choose: its caller has them converted.
    """

    program: Program
    machine: Machine
    constants: frozenset[str] = frozenset()
    accuracy: Accuracy = AUTO
    free: frozenset[str] = frozenset()

    def default(self) -> Planned:
        """The default plan, carried out."""
        return _default(self)

    def carried_out(self, plan: UnitPlan) -> Planned:
        """The program by a plan. Raises ScheduleError or ArtefactError where it is refused."""
        return Planned(plan, build_unit(self.program, plan, self.machine, self.constants))

    def canonical(self) -> Task:
        """The same under canonical names."""
        arguments = (*self.program.inputs, *self.program.outputs)
        names = {b.name: f"a{n}" for n, b in enumerate(arguments)}
        return replace(
            self,
            program=canonical(self.program),
            constants=frozenset(names[name] for name in self.constants),
            free=frozenset(names[name] for name in self.free),
        )

    def renamed(self, plan: UnitPlan, source: Program | LoopFunction) -> UnitPlan:
        """The plan of ``source``, which is equal but for names, for this program.

        Raises ArtefactError where it is not, ScheduleError where a rewrite is refused.
        """
        if source == self.program or not isinstance(source, Program):
            return plan
        return renamed_plan(plan, source, self.program, self.machine)

    def search(self, strategy: Strategy, history: History, rng: Random) -> Search:
        """The search of a strategy."""
        return strategy.start(self, history, rng)

    @property
    def key(self) -> str:
        """A digest of the program but for names, and of the machine: what records are found by."""
        key = task_key(self.program, self.machine)
        arguments = (*self.program.inputs, *self.program.outputs)
        free = ",".join(str(n) for n, b in enumerate(arguments) if b.name in self.free)
        return f"{key}/free {free}" if free else key


def task_key(program: Program | LoopFunction, machine: Machine) -> str:
    """A digest of a program or a nest but for names, and the machine."""
    return f"{structural_hash(program)}/{machine.on.fingerprint[:16]}/{machine.threads}"


@lru_cache(maxsize=REMEMBERED)
def _default(task: Task) -> Planned:
    """The default of a task: searches and who runs them ask for it, and who compiles a model once more."""
    return plan_unit(task.program, task.machine, task.constants, accuracy=task.accuracy)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan, or the trace of a schedule that no rule makes; ``origin`` says who proposed it.

    ``predicted`` are seconds, where the one who proposed it knows.
    """

    origin: str
    plan: UnitPlan | Trace
    predicted: float | None = None

    def schedule(self, task: Task) -> Schedule:
        """The scheduled program. Raises ScheduleError or ArtefactError where it is refused."""
        if isinstance(self.plan, UnitPlan):
            return build_unit(task.program, self.plan, task.machine, task.constants)
        s = Schedule(task.program, operations=task.machine.on.operations)
        return s.replay(self.plan)


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a candidate: seconds a run where it is ``ok``, else the reason.

    ``func`` is the digest of its scheduled function, ``load`` others' part of the CPUs' time meanwhile, where
    that was noticed; ``host`` the machine that ran it, where it was another one.
    """

    candidate: Candidate
    status: Status
    seconds: tuple[float, ...] = ()
    reason: str = ""
    func: str = ""
    build_seconds: float = 0.0
    load: float | None = None
    host: str = ""

    @property
    def best(self) -> float:
        """The shortest run; infinite where there is none."""
        return min(self.seconds, default=float("inf"))


@dataclass(frozen=True, slots=True)
class History:
    """Trials of the same task, or of others like it, from before: what they took of the default's time."""

    trials: tuple[Trial, ...] = field(default=())


class Search(Protocol):
    """One search for one task."""

    def propose(self, count: int) -> Sequence[Candidate]:
        """Up to so many candidates that are worth a measurement; none where it has nothing left to try."""

    def observe(self, trials: Sequence[Trial]) -> None:
        """What became of candidates, one's own and others'."""

    def expected_gain(self) -> float:
        """The part of the best time that the next candidates may save, by what is known: 0 to 1."""


@runtime_checkable
class AnyTime(Search, Protocol):
    """A search whose proposals may take long, and which gives what it has when their time is over."""

    def end_by(self, until: float) -> None:
        """Give the next proposals by that moment of ``time.monotonic``; told before each."""


@runtime_checkable
class Foreseeing(Search, Protocol):
    """A search whose own model says what candidates take before they are carried out."""

    def unmeasured(self) -> Iterator[Candidate]:
        """What may be taken without a measurement: the default plan, then what promises more, best first."""


class Strategy(Protocol):
    """A way of searching, by its name."""

    @property
    def name(self) -> str:
        """What it is called on the command line, and in records."""

    def start(self, task: Task, history: History, rng: Random) -> Search:
        """Begin a search. Equal tasks, histories and generators make equal searches."""
