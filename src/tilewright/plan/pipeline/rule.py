"""The rule of pipelines: stencils and point-wise stages, in strips of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright.cost import Machine
from tilewright.ir import Program, Stage
from tilewright.plan.pipeline.match import Pipeline, find_pipeline
from tilewright.plan.pipeline.nest import (
    STRIPS,
    PipelinePlan,
    Placement,
    default_strips,
    refusal,
    schedule_strips,
)
from tilewright.plan.rule import Context, Rule
from tilewright.plan.space import Space
from tilewright.schedule import Schedule

PLACEMENTS: Final[tuple[Placement, ...]] = ("strip", "root", "inline")
#: Producers up to which every combination of placements is in the space; of more, all but one at the strip.
MOST_COMBINED: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class PipelineProblem:
    """A pipeline, and the plan that is taken by default."""

    context: Context
    pipeline: Pipeline
    plan: PipelinePlan


class PipelineRule(Rule[PipelineProblem, PipelinePlan]):
    """Stencils and point-wise stages that only each other read."""

    name = "pipeline"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"strips": PipelinePlan})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> PipelineProblem | None:
        """The pipeline of these stages, where strips of it pay."""
        last = context.program.stage(root)
        found = find_pipeline(context.program, last)
        if found is None or not 0 < len(stages) <= len(found.members):
            return None
        found = found.first(len(stages))
        plan = default_strips(found, context.machine)
        if plan is None or {m.stage.name for m in found.members} != {*stages}:
            return None
        return PipelineProblem(context, found, plan)

    def default(self, problem: PipelineProblem) -> PipelinePlan:
        """All producers at the strip, and the largest strip that a cache holds."""
        return problem.plan

    def space(self, problem: PipelineProblem) -> Space[PipelinePlan]:
        """Every size of strips with every placement of the producers."""
        p, context = problem.pipeline, problem.context
        count = len(p.members)
        if count <= MOST_COMBINED:
            places = list(product(PLACEMENTS, repeat=count))
        else:
            strip = problem.plan.placements
            places = [
                strip,
                *((*strip[:n], each, *strip[n + 1 :]) for n in range(count) for each in PLACEMENTS),
            ]
        options: dict[str, tuple[object, ...]] = {
            "rows": tuple(n for n in STRIPS if n < p.rows or n == problem.plan.rows),
            "placements": tuple(dict.fromkeys(places)),
        }
        return Space(problem.plan, options, lambda plan: refusal(p, context.program, context.machine, plan))

    def build(self, s: Schedule, problem: PipelineProblem, plan: PipelinePlan) -> Schedule:
        """Carry out the strips."""
        context = problem.context
        return schedule_strips(s, problem.pipeline, context.program, plan, context.machine)


def pipeline_before(
    program: Program, root: Stage, done: Collection[str], machine: Machine
) -> tuple[str, ...]:
    """The producers that a stage is computed with in strips: as many as pay, none where no strip does."""
    found = find_pipeline(program, root, done)
    for count in range(len(found.members) if found is not None else 0, 0, -1):
        assert found is not None
        part = found.first(count)
        if part.has_windows and default_strips(part, machine) is not None:
            return tuple(m.stage.name for m in part.members)
    return ()
