"""The rule of trees as they are written: by a search that edits them, or by a person in a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright import tiling
from tilewright.plan.rule import Context, Rule
from tilewright.plan.space import Space
from tilewright.support import ArtefactError, ParseError, ScheduleError
from tilewright.target import TargetBase
from tilewright.tiling import Leaf, Step, chain

#: Edits of a plan that is drawn at random.
DRAWN_EDITS: Final = 4


@dataclass(frozen=True, slots=True)
class WrittenPlan:
    """The trees of a nest as text, one a nest, as :func:`tilewright.tiling.show` writes them."""

    text: str

    @property
    def nests(self) -> tuple[tiling.Nest, ...]:
        """The trees. Raises ParseError, with the line, for text that is none."""
        return _parsed(self.text)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[tiling.Nest, ...]:
    return tiling.parse(text)


@dataclass(frozen=True, slots=True, eq=False)
class WrittenProblem:
    """The stages that a tree is for."""

    context: Context
    root: str
    stages: tuple[str, ...]

    def refusal(self, plan: WrittenPlan) -> str:
        """Why a text has no trees of these stages; empty where it has."""
        try:
            made = plan.nests
            tiling.verify(made, self.context.program, self.context.machine.on.operations)
        except (ParseError, ScheduleError) as error:
            return str(error.what)
        names = {*self.stages, self.root}
        roots = [nest.root for nest in made]
        strange = next((name for name in roots if name not in names), None)
        return f"{strange} is none of the stages {', '.join(sorted(names))}" if strange else ""


class WrittenSpace(Space[WrittenPlan]):
    """All trees of some stages: those around one are an edit away."""

    problem: WrittenProblem

    def __init__(self, problem: WrittenProblem, default: WrittenPlan) -> None:
        super().__init__(default)
        object.__setattr__(self, "problem", problem)

    def neighbours(self, plan: WrittenPlan) -> Iterator[WrittenPlan]:
        """The trees that one edit makes."""
        for _, other in edited(self.problem, plan):
            yield other

    def changes(self, plan: WrittenPlan) -> Iterator[tuple[str, WrittenPlan]]:
        """The trees that one edit makes, with the edits."""
        for edit, other in edited(self.problem, plan):
            yield str(edit), other

    def sample(self, rng: Random) -> WrittenPlan:
        """The default, edited a few times."""
        plan = self.default
        for _ in range(rng.randint(1, DRAWN_EDITS)):
            found = [other for _, other in edited(self.problem, plan)]
            plan = rng.choice(found) if found else plan
        return plan

    def check(self, plan: WrittenPlan, where: str = "the plan") -> None:
        """Raises ArtefactError, naming the line, where a text is no tree of these stages."""
        reason = self.problem.refusal(plan)
        if reason:
            raise ArtefactError(f"{where}: {reason}")


class WrittenRule(Rule[WrittenProblem, WrittenPlan]):
    """Trees as they are: nothing is decided, and nothing asked of the machine."""

    name = "tree"
    machines = TargetBase
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"text": WrittenPlan})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> WrittenProblem | None:
        """Any stages."""
        return WrittenProblem(context, root, stages)

    def default(self, problem: WrittenProblem) -> WrittenPlan:
        """Each stage by itself, its loops in order."""
        program, names = problem.context.program, {*problem.stages, problem.root}
        nests = (
            tiling.Nest(st.name, chain([Step(it.name, 1) for it in st.iters], Leaf(st.name)))
            for st in program.stages
            if st.name in names
        )
        return WrittenPlan("".join(map(tiling.show, nests)))

    def space(self, problem: WrittenProblem) -> Space[WrittenPlan]:
        """Every tree that is one of the program."""
        return WrittenSpace(problem, self.default(problem))

    def trees(self, problem: WrittenProblem, plan: WrittenPlan) -> tuple[tiling.Nest, ...]:
        """What is written."""
        return plan.nests


def edited(problem: WrittenProblem, plan: WrittenPlan) -> Iterator[tuple[tiling.Edit, WrittenPlan]]:
    """The plans that one edit makes of a plan, each with the edit; none twice."""
    nests, seen = plan.nests, {plan}
    extents = {
        st.name: {it.name: it.extent.as_int() if it.extent.is_const else 0 for it in st.iters}
        for st in problem.context.program.stages
    }
    for n, nest in enumerate(nests):
        for edit in tiling.neighbours(nest, extents):
            try:
                made = edit.of(nest)
            except ScheduleError:
                continue
            other = WrittenPlan("".join(map(tiling.show, (*nests[:n], made, *nests[n + 1 :]))))
            if other not in seen and not problem.refusal(other):
                seen.add(other)
                yield edit, other
