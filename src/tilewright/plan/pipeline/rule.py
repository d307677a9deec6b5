"""The rule of groups: stages that share one nest; by default stencils in strips of rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

from tilewright.cost import Machine
from tilewright.ir import Program, Stage
from tilewright.plan.pipeline.group import Group, find_group, placements_of
from tilewright.plan.pipeline.group_plan import GroupPlan
from tilewright.plan.pipeline.match import find_pipeline
from tilewright.plan.pipeline.nest import (
    default_strips,
    group_nests,
    refusal,
    whole_nest,
)
from tilewright.plan.pipeline.side_by_side import rows_side_by_side
from tilewright.plan.rows.match_rows import rows_of
from tilewright.plan.rule import Asked, Cluster, Context, Rule
from tilewright.plan.space import Combinations, Space
from tilewright.schedule import Step
from tilewright.tiling import Nest

#: Columns of a tile, and elements along other axes.
TILES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
#: Elements along an axis that are expanded.
EXPANDED: Final = (1, 2, 3, 4, 8)


@dataclass(frozen=True, eq=False)
class GroupProblem:
    """A group, and the plan that is taken by default."""

    context: Context
    group: Group
    plan: GroupPlan


class PipelineRule(Rule[GroupProblem, GroupPlan]):
    """Stages that only each other read: sums, stencils and point-wise stages."""

    name = "pipeline"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"group": GroupPlan})

    def propose(self, asked: Asked) -> Iterable[Cluster]:
        """Strips of a stage with its producers; rows of one by itself together, where they share much."""
        program, machine = asked.program, asked.context.machine
        for stage in asked.roots:
            producers = pipeline_before(program, stage, {*asked.taken, *asked.decided}, machine)
            shared = bool(producers) or (
                rows_side_by_side(program, stage, machine) is not None and rows_of(asked, stage) is None
            )
            if shared:
                each = tuple(Cluster("elementwise", name) for name in (*producers, stage.name))
                yield Cluster(self.name, stage.name, producers, each)

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> GroupProblem | None:
        """The group of these stages."""
        program, machine = context.program, context.machine
        g = find_group(program, root, stages)
        if g is None:
            return None
        found = find_pipeline(program, g.root)
        plan = None
        if found is not None and 0 < len(stages) <= len(found.members):
            part = found.first(len(stages))
            if {m.stage.name for m in part.members} == {*stages}:
                plan = default_strips(part, machine)
        elif not stages:
            plan = rows_side_by_side(program, g.root, machine)
        if plan is None:
            plan = whole_nest(g.root, len(g.axes) - 2, len(stages), machine)
        return GroupProblem(context, g, plan)

    def default(self, problem: GroupProblem) -> GroupPlan:
        """Strips of rows where they pay, else every stage by itself."""
        return problem.plan

    def space(self, problem: GroupProblem) -> Space[GroupPlan]:
        """Every tile with every placement of the producers, order, axis of lanes and expansion."""
        g, context, default = problem.group, problem.context, problem.plan
        program, machine = context.program, context.machine
        rank = len(g.axes)
        tiles, expands = list[Sequence[Any]](), list[Sequence[Any]]()
        for axis, n in enumerate(g.axes):
            tiles.append(_with(default.tile[axis], (0, *(t for t in TILES if t < n))))
            expands.append(_with(default.expand[axis], [e for e in EXPANDED if e <= n]))
        orders = [default.order, tuple(range(rank)), *((n, *_but(rank, n)) for n in range(rank))]
        options: dict[str, Sequence[Any]] = {
            "tile": Combinations(tiles),
            "placements": Combinations([placements_of(g, m) for m in g.members]),
            "order": tuple(dict.fromkeys(orders)),
            "vector": tuple(range(rank - 1, -1, -1)),
            "expand": Combinations(expands),
            "parallel": tuple(range(min(rank, 2) + 1)) if machine.threads > 1 else (0,),
        }
        return Space(default, options, lambda plan: refusal(g, program, machine, plan))

    def trees(self, problem: GroupProblem, plan: GroupPlan) -> tuple[Nest, ...]:
        """Tiles of the root with what they need of its producers, of a program without what is inlined."""
        context = problem.context
        return group_nests(problem.group, context.program, plan, context.machine)

    def steps(self, problem: GroupProblem, plan: GroupPlan) -> tuple[Step, ...]:
        """The producers that become part of their readers."""
        places = zip(problem.group.members, plan.placements, strict=True)
        return tuple(Step("inline_stage", (m.name,)) for m, place in places if place == "inline")


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


def _with(value: int, options: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((value, *options)))


def _but(rank: int, axis: int) -> tuple[int, ...]:
    return tuple(n for n in range(rank) if n != axis)
