"""Which stages share a nest, in which tiles: groups found from the results backwards by the fusion model.

Algorithm 1 of Zhao & Di (MICRO 2020) on boxes: the last stage without a nest is a live-out space; its tiles
are chosen, and its producers join them, consumers first, as long as that pays; what did not join ends nests
of its own, which is the recursion over Untiled. Where to stop is chosen over all nests together: of the
states with the same next stage the cheapest are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from math import ceil, prod
from typing import Final

import numpy as np

from tilewright.cost import Machine
from tilewright.plan.inlining import SHORT
from tilewright.plan.pipeline.graph import Node, StageGraph
from tilewright.plan.pipeline.group import Group, Placement, find_group
from tilewright.plan.pipeline.group_plan import GroupPlan
from tilewright.plan.pipeline.nest import refusal, whole_nest
from tilewright.plan.pipeline.price import (
    MOST_RECOMPUTED,
    TASKS_PER_THREAD,
    FusionModel,
    Growth,
    prefixes,
)
from tilewright.plan.rule import Cluster

#: Elements of a tile along the axis in lanes and along rows, 0: all; along axes outside of these.
COLUMNS: Final = (0, 128, 256, 512, 1024)
ROWS: Final = (4, 8, 16, 32, 64, 128, 256)
OUTSIDE: Final = (0, 1)
#: States that are kept of those with the same next stage.
STATES: Final = 8
#: Producers of one group, at most.
MOST_MEMBERS: Final = 64
#: Terms of a sum from which on it is best left to its own rule, which has tiles in registers: of one that
#: reads the elements of all it reads more often than so.
LARGE_SUM: Final = 32
REUSED: Final = 4.0


@dataclass(frozen=True, slots=True)
class Choice:
    """A nest: root, members in the program's order, tile along each axis (none: by its rule), places."""

    root: int
    members: tuple[int, ...] = ()
    tile: tuple[int, ...] = ()
    places: tuple[Placement, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Grouping:
    """Nests of a whole program, and the seconds of all."""

    seconds: float
    nests: tuple[Choice, ...]

    def __str__(self) -> str:
        return f"{self.seconds * 1e3:.3f} ms: {self.nests}"


@dataclass(slots=True)
class Fuser:
    """Finds groupings of one program; ``banned`` stages share no nest."""

    model: FusionModel
    banned: frozenset[int] = frozenset()
    most: int = MOST_MEMBERS
    states: int = STATES
    _choices: dict[int, list[Choice]] = field(default_factory=dict)
    _alone: dict[int, float] = field(default_factory=dict)

    @property
    def graph(self) -> StageGraph:
        """The program's stages."""
        return self.model.graph

    def run(self) -> list[Grouping]:
        """The groupings that were found, the cheapest first."""
        count = len(self.graph.nodes)
        waiting: list[dict[int, tuple[float, tuple[Choice, ...]]]] = [{} for _ in range(count + 1)]
        waiting[count][(1 << count) - 1] = (0.0, ())
        for top in range(count, 0, -1):
            ranked = sorted(
                (cost + self._rest(open_), open_, cost, nests)
                for open_, (cost, nests) in waiting[top].items()
            )
            for _, open_, cost, nests in ranked[: self.states]:
                for choice in self.choices(top - 1):
                    left = open_ & ~sum(1 << n for n in (choice.root, *choice.members))
                    new = (cost + choice.seconds, (*nests, choice))
                    at = waiting[left.bit_length()]
                    if left not in at or new[0] < at[left][0]:
                        at[left] = new
        done = waiting[0].values()
        return [Grouping(cost, nests) for cost, nests in sorted(done, key=lambda each: each[0])]

    def _rest(self, open_: int) -> float:
        """Seconds of the stages that are left, each by itself."""
        return sum(self.alone(n) for n in range(open_.bit_length()) if open_ >> n & 1)

    def alone(self, n: int) -> float:
        """Seconds of a stage by itself."""
        if n not in self._alone:
            self._alone[n] = self.model.alone(n)
        return self._alone[n]

    def choices(self, root: int) -> list[Choice]:
        """The nests that a stage may end: alone, and for each number of producers in the best tiles."""
        found = self._choices.get(root)
        if found is None:
            found = self._choices[root] = [Choice(root, seconds=self.alone(root)), *self._fused(root)]
        return found

    def _fused(self, root: int) -> list[Choice]:
        node = self.graph.nodes[root]
        if not self._may_fuse(root) or node.sums > 1:
            return []
        allowed = [self._may_fuse(n) and not self.graph.nodes[n].output for n in range(root)]
        tiles = candidates(node, self.model)
        best: dict[int, Choice] = {}
        for place in (Growth.tile_of, Growth.row_of, *((Growth.loop_of,) if self._has_loops(root) else ())):
            own = tuple(
                np.array([t[axis] or n for t in tiles], np.int64) for axis, n in enumerate(node.extents)
            )
            shared = shared_axes(node, self.model)[:1]
            growth = Growth.start(self.model, root, own, shared=shared, row=row_axis(node))
            for g in prefixes(growth, allowed, self.most, place):
                seconds = np.where(g.recomputed() <= MOST_RECOMPUTED, g.seconds(), np.inf)
                at = int(np.argmin(seconds))
                count = len(g.members)
                if np.isfinite(seconds[at]) and (
                    count not in best or seconds[at] < 0.98 * best[count].seconds
                ):
                    members = tuple(sorted(g.members))
                    places = tuple(g.places[n] for n in members)
                    best[count] = Choice(root, members, tiles[at], places, float(seconds[at]))
        return list(best.values())

    def _has_loops(self, root: int) -> bool:
        """Whether a stage before another one has axes outside of its rows."""
        return any(len(node.extents) > 2 and self._may_fuse(node.index) for node in self.graph.nodes[:root])

    def _may_fuse(self, n: int) -> bool:
        """Whether a stage may share a nest: not a large sum, nor what ends one."""
        node = self.graph.nodes[n]
        if not node.plain or n in self.banned or has_own_rule(node) or not node.extents:
            return False
        makers = (self.graph.nodes[r.node] for r in node.reads if r.node >= 0)
        return not any(has_own_rule(m) and self.graph.is_pointwise(m.index) for m in makers)


def has_own_rule(node: Node) -> bool:
    """Whether a stage is a large sum that keeps what it reads in registers."""
    largest = max((prod(r.access.shape) for r in node.reads), default=1)
    return node.sums > LARGE_SUM and node.points * node.sums > REUSED * largest


def row_axis(node: Node) -> int:
    """The axis of rows: the last but the one in lanes; that of lanes where there is no other."""
    return max(len(node.extents) - 2, 0)


def shared_axes(node: Node, model: FusionModel) -> tuple[int, ...]:
    """The axes whose loops over tiles threads share, rows first."""
    row = row_axis(node)
    return (row, *(n for n in range(len(node.extents)) if n != row)) if model.machine.threads > 1 else ()


def candidates(node: Node, model: FusionModel) -> list[tuple[int, ...]]:
    """Tiles of a root, enough of them along its rows for all threads where there are so many rows."""
    last, row, threads = len(node.extents) - 1, row_axis(node), model.machine.threads
    sizes: list[list[int]] = []
    for axis, n in enumerate(node.extents):
        if axis == row:
            tasks = TASKS_PER_THREAD * threads if threads > 1 else 1
            sizes.append([t for t in ROWS if t < n and (ceil(n / t) >= tasks or t == ROWS[0])])
        elif axis == last:
            sizes.append([t for t in COLUMNS if t < n])
        else:
            sizes.append([t for t in OUTSIDE if t < n] if n > SHORT else [0])
    return [t for t in product(*sizes) if any(t)]


def nest_of(fuser: Fuser, choice: Choice) -> Cluster | None:
    """The nest of a choice as a plan; ``None`` where its rule decides, or no plan can be made of it."""
    graph, machine = fuser.graph, fuser.model.machine
    if not choice.members:
        return None
    root = graph.nodes[choice.root]
    names = tuple(graph.nodes[n].name for n in choice.members)
    group = find_group(graph.program, root.name, names)
    if group is None:
        return None
    plan = plan_of(fuser, group, choice)
    return (
        None
        if refusal(group, graph.program, machine, plan)
        else Cluster("pipeline", root.name, names, None, plan)
    )


def plan_of(fuser: Fuser, group: Group, choice: Choice) -> GroupPlan:
    """The plan of a group in the tiles of a choice."""
    machine, node = fuser.model.machine, fuser.graph.nodes[choice.root]
    base = whole_nest(group.root, row_axis(node), len(group.members), machine)
    own = [t or n for t, n in zip(choice.tile, node.extents, strict=True)]
    expand = tuple(
        e if n % e == 0 and t % e == 0 and axis != base.vector and not (axis == base.row and e == t) else 1
        for axis, (e, n, t) in enumerate(zip(base.expand, node.extents, own, strict=True))
    )
    tiled = [axis for axis in base.order if choice.tile[axis]]
    parallel = _parallel(node, choice.tile, tiled, machine)
    return GroupPlan(choice.tile, choice.places, base.order, base.vector, expand, parallel)


def _parallel(node: Node, tile: Sequence[int], tiled: Sequence[int], machine: Machine) -> int:
    """Loops over tiles that threads share: the first, and the next where that has too few turns."""
    if machine.threads == 1:
        return 0
    counts = [ceil(node.extents[axis] / tile[axis]) for axis in tiled]
    for used in range(1, len(counts) + 1):
        if prod(counts[:used]) >= TASKS_PER_THREAD * machine.threads:
            return min(used, 2)
    return min(len(counts), 2)
