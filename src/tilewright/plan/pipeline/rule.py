"""The rule of groups: stages that share one nest; by default stencils in strips of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Final

from tilewright.cost import Machine, Node
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
from tilewright.plan.pipeline.tree import Member, group_tree, members_of
from tilewright.plan.rule import Context, Rule
from tilewright.plan.space import Combinations, Space
from tilewright.schedule import Schedule
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

    @cached_property
    def known(self) -> dict[str, Member] | None:
        """What cost models ask of its stages."""
        return members_of(self.group, self.context.program, self.context.machine)


class PipelineRule(Rule[GroupProblem, GroupPlan]):
    """Stages that only each other read: sums, stencils and point-wise stages."""

    name = "pipeline"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"group": GroupPlan})

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

    def tree(self, problem: GroupProblem, plan: GroupPlan) -> tuple[Node, ...] | None:
        """Tiles of the root with what they need of its producers."""
        context, known = problem.context, problem.known
        if known is None:
            return None
        return group_tree(problem.group, context.program, plan, context.machine, known)

    def trees(self, problem: GroupProblem, plan: GroupPlan) -> tuple[Nest, ...]:
        """Tiles of the root with what they need of its producers, of a program without what is inlined."""
        context = problem.context
        return group_nests(problem.group, context.program, plan, context.machine)

    def build(self, s: Schedule, problem: GroupProblem, plan: GroupPlan) -> Schedule:
        """Inline what is to be part of its readers, then carry out the nests."""
        for m, place in zip(problem.group.members, plan.placements, strict=True):
            s = s.inline(m.name) if place == "inline" else s
        return super().build(s, problem, plan)


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
