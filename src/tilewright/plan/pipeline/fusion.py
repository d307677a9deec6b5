"""Pipelines as wholes: which stages are inlined and which share nests, by the fusion model.

Groupings are sought for several ways to inline; a plan in this form is priced by the model, also one that was
made otherwise, so that what is found can be held against the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.analysis import Access
from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.beginning import begin
from tilewright.plan.inlining import inline_stages
from tilewright.plan.pipeline.graph import StageGraph, graph_of
from tilewright.plan.pipeline.group_plan import GroupPlan
from tilewright.plan.pipeline.grouping import Fuser, nest_of
from tilewright.plan.pipeline.nest import second_level
from tilewright.plan.pipeline.price import FusionModel
from tilewright.plan.rule import Cluster
from tilewright.plan.unit import UnitPlan
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError

#: What another plan must save by the model, in parts of the default's time, to be taken unmeasured: the
#: model's errors are of this order.
MARGIN: Final = 0.1
#: Groupings of each way to inline that are kept.
KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class Fused:
    """Stages that are inlined, in order, and nests of groups of the program after that."""

    inlined: tuple[str, ...]
    nests: tuple[Cluster, ...]


@dataclass(slots=True)
class FusionSearch:
    """Finds and prices plans of one program on a machine, which begin with columns and channels joined."""

    program: Program
    machine: Machine
    _begun: Schedule = field(init=False)
    _models: dict[tuple[str, ...], FusionModel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun = begin(Schedule(self.program), self.machine.on)

    def model(self, names: tuple[str, ...]) -> FusionModel:
        """The model of the program with these stages inlined."""
        found = self._models.get(names)
        if found is None:
            made = inlined(self._begun, names)
            assert made is not None
            found = self._models[names] = FusionModel(graph_of(made.require_program()), self.machine)
        return found

    def seconds(self, fused: Fused) -> float:
        """What the model says of a plan: stages in no group have nests of their own."""
        model = self.model(fused.inlined)
        numbers = {n.name: n.index for n in model.graph.nodes}
        total, done = 0.0, set[str]()
        for nest in fused.nests:
            assert isinstance(nest.plan, GroupPlan)
            members = {numbers[m]: p for m, p in zip(nest.stages, nest.plan.placements, strict=True)}
            total += model.nest(numbers[nest.root], members, nest.plan)
            done |= {nest.root, *nest.stages}
        return total + sum(model.alone(n.index) for n in model.graph.nodes if n.name not in done)

    def fused_of(self, plan: UnitPlan) -> Fused | None:
        """A plan as inlined stages and nests of groups; ``None`` where it rewrites in other ways.

        Copies of what sums read, which a grouping leaves out, are taken to cost what they save.
        """
        begun, steps = self._begun.trace.steps, plan.rewrites.steps
        if steps[: len(begun)] != begun:
            return None
        steps = tuple(step for step in steps[len(begun) :] if step.primitive != "gather_operand")
        names = tuple(str(step.args[0]) for step in steps)
        if any(step.primitive != "inline_stage" for step in steps) or inlined(self._begun, names) is None:
            return None
        groups = (nest for nest in plan.nests if isinstance(nest.choice, GroupPlan))
        return Fused(names, tuple(Cluster(n.rule, n.root, n.stages, None, n.choice) for n in groups))

    def run(self) -> list[tuple[float, Fused]]:
        """The plans that were found with their seconds, the fastest first."""
        out: dict[Fused, float] = {}
        for names in variants(self._begun):
            fuser = Fuser(self.model(names))
            for grouping in fuser.run()[:KEPT]:
                nests = (nest_of(fuser, choice) for choice in reversed(grouping.nests))
                fused = Fused(names, tuple(n for n in nests if n is not None))
                if fused not in out:
                    out[fused] = self.seconds(fused)
        return sorted(((seconds, fused) for fused, seconds in out.items()), key=lambda each: each[0])


def better_fusion(program: Program, machine: Machine, plan: UnitPlan) -> Fused | None:
    """What the model finds for a pipeline that is faster than a plan by more than its errors, if anything."""
    if not is_pipeline(graph_of(program, machine.on), machine):
        return None
    search = FusionSearch(program, machine)
    default = search.fused_of(plan)
    if default is None:
        return None
    limit = (1 - MARGIN) * search.seconds(default)
    seconds, found = search.run()[0]
    return found if seconds < limit else None


def is_pipeline(graph: StageGraph, machine: Machine) -> bool:
    """Whether stages read windows of others, or these at another rate, and all are too large for a cache."""
    plain = [n for n in graph.nodes if n.plain and n.sums == 1]
    if sum(n.bytes for n in plain if not n.output) <= second_level(machine):
        return False
    return any(
        r.node >= 0 and graph.nodes[r.node].plain and _has_windows(r.access) for n in plain for r in n.reads
    )


def _has_windows(access: Access) -> bool:
    return any(
        len(reaches) > 1
        or any(r.first < r.last or r.tag != "affine" or any(abs(c) > 1 for _, c in r.terms) for r in reaches)
        for reaches in access.dims
    )


def variants(s: Schedule) -> list[tuple[str, ...]]:
    """Lists of stages that are inlined, in order: as by default, of those the point-wise ones, and none."""
    steps = inline_stages(s).trace.steps[len(s.trace.steps) :]
    default = tuple(str(step.args[0]) for step in steps if step.primitive == "inline_stage")
    graph = graph_of(s.require_program())
    pointwise = {n.name for n in graph.nodes if graph.is_pointwise(n.index)}
    found = [default, tuple(name for name in default if name in pointwise), ()]
    return [names for names in dict.fromkeys(found) if inlined(s, names) is not None]


def inlined(s: Schedule, names: Sequence[str]) -> Schedule | None:
    """The program with these stages inlined, too; ``None`` where that is refused."""
    try:
        for name in names:
            s = s.inline_stage(name)
    except ScheduleError:
        return None
    return s
