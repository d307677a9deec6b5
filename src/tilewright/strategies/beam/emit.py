"""From states to plans: stages that are inlined everywhere, then one nest of a group a root."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.cost import Machine
from tilewright.plan import Nest, Planned, plan_groups
from tilewright.strategies.beam.graph import Graph
from tilewright.strategies.beam.state import PLACEMENTS, State, kernels


def to_plan(g: Graph, state: State, machine: Machine, constants: Collection[str] = ()) -> Planned:
    """The plan of a complete state, carried out; what it does not decide about has its default plan."""
    inlined = [g.nodes[n].name for n, place in enumerate(state.places) if place == "inline"]
    return plan_groups(g.program, machine, constants, inlined, groups(g, state))


def groups(g: Graph, state: State) -> list[Nest]:
    """The nests of a state whose loops it knows."""
    out = []
    for root, tiling, members in kernels(g, state):
        if tiling is None:
            continue
        stored = [(n, place) for n, place in members if place != "inline"]
        placements = tuple(PLACEMENTS[place] for _, place in stored)
        names = tuple(g.nodes[n].name for n, _ in stored)
        out.append(Nest("pipeline", g.nodes[root].name, names, tiling.plan(placements)))
    return out
