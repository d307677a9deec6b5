"""From states to plans, and back: stages that are inlined everywhere, then one nest of a group a root."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.cost import Machine
from tilewright.plan import Cluster, GpuGroupPlan, GroupPlan, Planned, StageGraph, UnitPlan, plan_groups
from tilewright.strategies.beam.state import GpuTiling, Place, State, Tiling, kernels, placements_of, start


def to_plan(g: StageGraph, state: State, machine: Machine, constants: Collection[str] = ()) -> Planned:
    """The plan of a complete state, carried out; what it does not decide about has its default plan."""
    inlined = [g.nodes[n].name for n, place in enumerate(state.places) if place == "inline"]
    return plan_groups(g.given, machine, constants, inlined, groups(g, state))


def from_plan(g: StageGraph, plan: UnitPlan, *, like: bool = False) -> State | None:
    """The state of a plan, such as the default one; ``None`` where no state says what it does.

    ``like``: the state that is most like it, for its price. There copies of what sums read are left out, and
    what a sum's nest computes besides has a nest of its own.
    """
    numbers, state = {n.name: n.index for n in g.nodes}, start(g)
    if plan.rewrites.steps[: len(g.begun)] != g.begun:
        return None
    steps = plan.rewrites.steps[len(g.begun) :]
    steps = tuple(s for s in steps if not (like and s.primitive == "gather_operand"))
    if any(step.primitive != "inline_stage" for step in steps):
        return None
    places: dict[str, tuple[Place, str]] = {str(s.args[0]): ("inline", "") for s in steps}
    for nest in plan.nests:
        places[nest.root] = "own", nest.root
        if not isinstance(nest.choice, GroupPlan | GpuGroupPlan):
            if nest.stages and not like:
                return None
            places.update({name: ("own", name) for name in nest.stages if name in numbers})
            continue
        for name, place in zip(nest.stages, nest.choice.placements, strict=True):
            places[name] = ("own", name) if place == "root" else (place, nest.root)
        if nest.root in numbers:
            state = state.tiled(numbers[nest.root], _tiling(nest.choice))
    if any(n.plain and n.name not in places for n in g.nodes) or not {*places} <= {*numbers}:
        return None
    for name, (where, home) in places.items():
        if g.nodes[numbers[name]].plain:
            state = state.placed(numbers[name], where, -1 if where == "inline" else numbers[home])
        elif where != "own":
            return None
    return state


def _tiling(p: GroupPlan | GpuGroupPlan) -> Tiling:
    """The tiling of a plan."""
    if isinstance(p, GpuGroupPlan):
        rank = len(p.tile)
        return GpuTiling(p.tile, tuple(range(rank)), p.lanes, p.serial, rank)
    return Tiling(p.tile, p.order, p.vector, p.expand, p.parallel)


def groups(g: StageGraph, state: State) -> list[Cluster]:
    """The nests of a state whose loops it knows."""
    out = []
    for root, tiling, members in kernels(g, state):
        if tiling is None:
            continue
        stored = [(n, place) for n, place in members if place != "inline"]
        names = tuple(g.nodes[n].name for n, _ in stored)
        plan = tiling.plan(placements_of(stored))
        rule = "pipeline" if isinstance(plan, GroupPlan) else "gpu_group"
        out.append(Cluster(rule, g.nodes[root].name, names, None, plan))
    return out
