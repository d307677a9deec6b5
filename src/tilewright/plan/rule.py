"""Rules: how one nest of a unit is planned, enumerated and carried out, and what they are asked with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from tilewright import tiling
from tilewright.cost import LoopTree, Machine
from tilewright.ir import Program, Stage
from tilewright.plan.space import Space
from tilewright.schedule import Schedule, Step
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
    def extents(self) -> dict[str, dict[str, int]]:
        """Elements of the axes of each stage; 0 where they are symbols."""
        return {
            st.name: {it.name: it.extent.as_int() if it.extent.is_const else 0 for it in st.iters}
            for st in self.program.stages
        }

    @cached_property
    def _changed(self) -> dict[tuple[Step, ...], Context]:
        return {}

    def after(self, steps: tuple[Step, ...]) -> Context:
        """The same after more steps on the program. Raises ScheduleError where one is refused."""
        if not steps:
            return self
        if steps not in self._changed:
            s = Schedule(self.program, operations=self.machine.on.operations).replay(steps)
            self._changed[steps] = replace(self, program=s.require_program())
        return self._changed[steps]

    def loops(self, nests: Iterable[Nest]) -> LoopTree | None:
        """The loops of nests that end up in one kernel, without scheduling; ``None`` on devices.

        Raises ScheduleError where steps of theirs on the program are refused.
        """
        found = list(nests)
        if not isinstance(self.machine.on, Target):
            return None
        context = self.after(tuple(step for nest in found for step in nest.steps))
        return context.prices.loops([tree for nest in found for tree in nest.trees])


@dataclass(frozen=True, slots=True)
class Nest:
    """What is decided about the nest that ends with the stage ``root``: its ``trees``, which are carried out.

    ``stages`` are those that are computed together with the root. ``steps`` change the program for it, ahead
    of all loops. ``rule`` is the one that wrote the trees, for its ``choice``: what is chosen for a program
    like this one begins there. Trees that people or searches edited have none.
    """

    rule: str
    root: str
    stages: tuple[str, ...]
    trees: tuple[tiling.Nest, ...]
    steps: tuple[Step, ...] = ()
    choice: Any = field(default=None, compare=False)


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
    numbers, words, tuples of those, and ``None``. ``machines`` are the kind for which it plans. A rule
    that ``follows`` writes other trees beside other nests.
    """

    name: ClassVar[str]
    machines: ClassVar[type[TargetBase]] = Target
    follows: ClassVar[bool] = False
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

    @abstractmethod
    def trees(self, problem: ProblemT, plan: PlanT) -> tuple[tiling.Nest, ...]:
        """The trees that say what a plan decides, in the order of their nests.

        Raises ScheduleError where the plan cannot be written down for this problem.
        """

    def otherwise(
        self, problem: ProblemT, plan: PlanT, nest: tiling.Nest
    ) -> Iterable[tuple[str, tuple[tiling.Nest, ...]]]:
        """What takes the place of a tree whose steps are refused, in order, and how notes say so."""
        return ()

    def steps(self, problem: ProblemT, plan: PlanT) -> tuple[Step, ...]:
        """Steps on the program that a plan needs ahead of its trees. Raises ScheduleError where refused."""
        return ()

    def remarks(self, problem: ProblemT, plan: PlanT) -> Iterable[tuple[str, str]]:
        """What users should know of a plan that costs them speed: what is done, and why."""
        return ()

    def write(
        self, cluster: Cluster, problem: ProblemT, plan: PlanT, others: Sequence[tiling.Nest] = ()
    ) -> Nest:
        """The nest of a plan, beside the trees of ``others`` that are written already.

        A tree with the root of one of these takes its place. Raises ScheduleError where the plan cannot be
        written down for this problem.
        """
        trees, steps = self.trees(problem, plan), self.steps(problem, plan)
        return Nest(cluster.rule, cluster.root, cluster.stages, trees, steps, plan)

    def seconds(self, problem: ProblemT, plan: PlanT) -> float | None:
        """What the rule's own model says of a plan; ``None`` where the loops of its trees are priced."""
        return None

    def space(self, problem: ProblemT) -> Space[PlanT]:
        """All plans of a problem; of a rule that decides nothing else the default alone."""
        return Space(self.default(problem))
