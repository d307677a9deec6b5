"""Rules: how one nest of a unit is planned, enumerated and carried out, and what they are asked with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from tilewright import tiling
from tilewright.cost import LoopTree, Machine
from tilewright.ir import Program, Stage
from tilewright.plan.fallback import fell_back
from tilewright.plan.space import Space
from tilewright.schedule import Schedule
from tilewright.support import InternalError, ScheduleError
from tilewright.target import Target, TargetBase

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")


@dataclass(frozen=True, eq=False)
class Context:
    """A program after its rewrites, and the machine that it is planned for.

    ``constants`` are arguments whose contents are known when compiling, besides those in scope ``const``.
    ``matches`` has what algorithms matched before they rewrote the program, by the stage that they replaced.
    """

    program: Program
    machine: Machine
    constants: frozenset[str] = frozenset()
    matches: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def prices(self) -> tiling.Prices:
        """What trees of the program's stages cost."""
        return tiling.Prices(self.program, self.machine.on.operations)

    @cached_property
    def _inlined(self) -> dict[tuple[str, ...], Context]:
        return {}

    def without(self, stages: tuple[str, ...]) -> Context:
        """The program with these stages part of their readers. Raises ScheduleError where one is refused."""
        if not stages:
            return self
        if stages not in self._inlined:
            s = Schedule(self.program)
            for name in stages:
                s = s.inline_stage(name)
            self._inlined[stages] = replace(self, program=s.require_program())
        return self._inlined[stages]


@dataclass(frozen=True, slots=True)
class Nest:
    """What is decided about one nest: the ``rule``, and its ``plan`` for the stage ``root``.

    ``stages`` are those that are computed together with the root.
    """

    rule: str
    root: str
    stages: tuple[str, ...]
    plan: Any


@dataclass(frozen=True, slots=True)
class Cluster:
    """Stages that make one nest, by a rule; ``simpler`` is what is done where a step of it is refused.

    Without anything simpler (``None``) the whole program is planned in another way. ``plan`` is its plan
    where that is decided already, by default the rule's.
    """

    rule: str
    root: str
    stages: tuple[str, ...] = ()
    simpler: tuple[Cluster, ...] | None = ()
    plan: object = None

    @property
    def names(self) -> frozenset[str]:
        """The stages, with the one that ends the nest."""
        return frozenset((*self.stages, self.root))


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What rules are asked: for nests that end with one of ``roots``, of stages that no other nest has.

    ``decided`` are the nests that rewrites of the program were made for, by the stages that end them.
    ``ends`` are stages that rewrites made to end a nest: no other nest takes them in.
    """

    context: Context
    roots: tuple[Stage, ...]
    taken: frozenset[str]
    decided: Mapping[str, Cluster]
    ends: frozenset[str] = frozenset()

    @property
    def program(self) -> Program:
        """The program after its rewrites."""
        return self.context.program

    def is_free(self, name: str) -> bool:
        """Whether no nest has a stage yet, and none is meant to end with it."""
        return name not in self.taken and name not in self.decided


class Rule(ABC, Generic[ProblemT, PlanT]):
    """One way of making nests. A new one is a subclass in a file of its own.

    It is listed in ``catalog.py``, or by a package's entry point in the group ``tilewright.rules``. Rules are
    asked in the order of the list, those of other packages first.

    ``forms`` are the classes of its plans by the names that they have in files: frozen dataclasses of
    numbers, words, tuples of those, and ``None``. ``machines`` are the kind for which it plans.
    """

    name: ClassVar[str]
    machines: ClassVar[type[TargetBase]] = Target
    forms: ClassVar[Mapping[str, type]]

    def propose(self, asked: Asked) -> Iterable[Cluster]:
        """The nests that the rule would make; none of a rule that goes with a rewrite of the program."""
        return ()

    @abstractmethod
    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> ProblemT | None:
        """What the rule would do for a stage and those computed with it; ``None`` where it does nothing."""

    @abstractmethod
    def default(self, problem: ProblemT) -> PlanT:
        """The plan that is taken unless a search finds a better one."""

    def trees(self, problem: ProblemT, plan: PlanT) -> tuple[tiling.Nest, ...]:
        """The trees that say what a plan decides, in the order of their nests; none where only steps do.

        Raises ScheduleError where the plan cannot be written down for this problem.
        """
        return ()

    def otherwise(
        self, problem: ProblemT, plan: PlanT, nest: tiling.Nest
    ) -> Iterable[tuple[str, tuple[tiling.Nest, ...]]]:
        """What takes the place of a tree whose steps are refused, in order, and how notes say so."""
        return ()

    def build(self, s: Schedule, problem: ProblemT, plan: PlanT) -> Schedule:
        """Carry out a plan. Raises ScheduleError where a step is refused, and whatever else there is."""
        nests = self.trees(problem, plan)
        if not nests:
            raise InternalError(f"the rule {self.name} makes no trees")
        for nest in nests:
            s = self._carry_out(s, problem, plan, nest)
        return s

    def _carry_out(self, s: Schedule, problem: ProblemT, plan: PlanT, nest: tiling.Nest) -> Schedule:
        try:
            return tiling.apply(s, [nest])
        except ScheduleError as error:
            refused = error
        for what, instead in self.otherwise(problem, plan, nest):
            made = s
            try:
                for each in instead:
                    if each.root == nest.root:
                        made = tiling.apply(made, [each])
                    else:
                        made = self._carry_out(made, problem, plan, each)
            except ScheduleError:
                continue
            return fell_back(made, what, refused)
        raise refused

    def seconds(self, problem: ProblemT, plan: PlanT) -> float | None:
        """What the rule's own model says of a plan; ``None`` where the loops that it becomes are priced."""
        return None

    def loops(self, context: Context, problem: ProblemT, plan: PlanT) -> LoopTree | None:
        """The loops that :meth:`build` would make, without scheduling; ``None`` where only it can tell.

        Of devices as well: rules for these have models of their own.
        """
        if not isinstance(context.machine.on, Target):
            return None
        try:
            nests = self.trees(problem, plan)
        except ScheduleError:
            return None
        return context.prices.loops(nests) if nests else None

    def space(self, problem: ProblemT) -> Space[PlanT]:
        """All plans of a problem; of a rule that decides nothing else the default alone."""
        return Space(self.default(problem))
