"""States of the search: for each stage where it is computed, and for each nest how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from types import MappingProxyType
from typing import ClassVar, Literal, TypeAlias, TypeVar

from tilewright.analysis import Box
from tilewright.ir import Program
from tilewright.plan import (
    MOST_KEPT,
    AtLoop,
    GpuGroupPlan,
    Group,
    GroupPlan,
    Placement,
    StageGraph,
    held_bytes,
    keep,
    misplaced,
    no_kernel,
    shared_bytes,
    unfit,
)

T = TypeVar("T")
#: ``own``: a nest of its own. The others are placements of plans; ``""``: not decided.
Place: TypeAlias = Literal["", "own", "inline", "tile", "row", "slide"] | AtLoop


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a nest is done, by the axes of its root: the fields of a plan that no producer decides."""

    tile: tuple[int, ...]
    order: tuple[int, ...]
    vector: int
    expand: tuple[int, ...]
    parallel: int
    #: Elements of a producer that one turn may keep.
    most_kept: ClassVar[float] = inf
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # a search asks for it more often than for anything else
        found = hash((self.tile, self.order, self.vector, self.expand, self.parallel))
        object.__setattr__(self, "_hash", found)

    def __hash__(self) -> int:
        return self._hash

    @property
    def row(self) -> int:
        """The axis of the outermost loop inside of a tile."""
        return self.order[0]

    def plan(self, placements: tuple[Placement, ...]) -> GroupPlan | GpuGroupPlan:
        """The plan of a group with this tiling."""
        return GroupPlan(self.tile, placements, self.order, self.vector, self.expand, self.parallel)

    def turn(self, tile: Box) -> Box:
        """Of a tile of the root what one turn of its outermost loop computes."""
        (first, _), row = tile[self.row], self.row
        return (*tile[:row], (first, first + self.expand[row] - 1), *tile[row + 1 :])

    def turns(self, own: Sequence[int]) -> int:
        """How many turns a tile of so many elements along each axis has."""
        return own[self.row] // self.expand[self.row]

    def why_not(self, g: StageGraph, kernel: Kernel) -> str:
        """Why a nest cannot be done so, empty where it can.

        Where producers may be depends on the loop over rows alone.
        """
        root, _, members = kernel
        placements = placements_of(members)
        plan = GroupPlan(self.tile, placements, self.order, self.vector, self.expand, self.parallel)
        reason = unfit(g.nodes[root].extents, plan, len(members))
        if reason or not members:
            return reason
        step = self.expand[self.row]
        key = root, members, self.row, step
        found = g.refused.get(key)
        if found is None:
            group, _ = group_of(g, kernel)
            found = keep(g.refused, key, misplaced(group, plan.places(group), self.row, step))
        return found

    def held(self, group: Group, program: Program, placements: tuple[Placement, ...]) -> int:
        """Bytes that a tile holds besides its root's."""
        plan = GroupPlan(self.tile, placements, self.order, self.vector, self.expand, self.parallel)
        return sum(held_bytes(group, program, plan).values())


@dataclass(frozen=True, slots=True)
class GpuTiling(Tiling):
    """How a kernel is done: elements of a block (``tile``) and of a thread (``expand``) along each axis.

    Producers are computed at the block, or for each thread by itself (``row``).
    """

    most_kept: ClassVar[float] = MOST_KEPT
    # equal fields have equal hashes; the decorator would make another one
    __hash__ = Tiling.__hash__

    def plan(self, placements: tuple[Placement, ...]) -> GpuGroupPlan:
        """The plan of a kernel with this tiling."""
        return GpuGroupPlan(self.tile, self.expand, self.vector, placements)

    def turn(self, tile: Box) -> Box:
        """Of a tile of the root what one thread computes."""
        return tuple((first, first + each - 1) for (first, _), each in zip(tile, self.expand, strict=True))

    def turns(self, own: Sequence[int]) -> int:
        """Threads of a block."""
        return prod(t // each for t, each in zip(self.tile, self.expand, strict=True))

    def why_not(self, g: StageGraph, kernel: Kernel) -> str:
        """Why a nest cannot be done so, empty where it can."""
        group, placements = group_of(g, kernel)
        return no_kernel(group, self.plan(placements))

    def held(self, group: Group, program: Program, placements: tuple[Placement, ...]) -> int:
        """Bytes of shared memory of a block."""
        return shared_bytes(group, program, self.plan(placements))


#: A nest: its root, its tiling (``None``: as by default), and the stages in it with their places.
Kernel: TypeAlias = tuple[int, Tiling | None, tuple[tuple[int, Place], ...]]


@dataclass(frozen=True, slots=True)
class State:
    """A state: of each stage its place, the root of the nest that it is in (-1: of none), and its tiling."""

    places: tuple[Place, ...]
    homes: tuple[int, ...]
    tilings: tuple[Tiling | None, ...]

    def placed(self, node: int, place: Place, home: int) -> State:
        """The state in which a stage is decided, too."""
        return State(_with(self.places, node, place), _with(self.homes, node, home), self.tilings)

    def tiled(self, node: int, tiling: Tiling | None) -> State:
        """The state in which a root has a tiling."""
        return State(self.places, self.homes, _with(self.tilings, node, tiling))


def _with(values: tuple[T, ...], n: int, value: T) -> tuple[T, ...]:
    return (*values[:n], value, *values[n + 1 :])


def start(g: StageGraph) -> State:
    """The state in which only stages that are not decided about have their place."""
    count = len(g.nodes)
    return State(
        tuple("" if n.plain else "own" for n in g.nodes),
        tuple(-1 if n.plain else n.index for n in g.nodes),
        (None,) * count,
    )


def readers(g: StageGraph, state: State, node: int) -> set[int]:
    """The stages that read a stage, directly or through what is inlined."""
    out: set[int] = set()
    for r in g.readers[node]:
        if state.places[r] == "inline":
            out |= readers(g, state, r)
        else:
            out.add(r)
    return out


def kernels(g: StageGraph, state: State) -> Iterator[Kernel]:
    """The nests of a state, those of stages not decided left out."""
    inside: dict[int, list[tuple[int, Place]]] = {}
    for n, (place, home) in enumerate(zip(state.places, state.homes, strict=True)):
        if place == "own":
            inside.setdefault(n, [])
        elif place == "inline":
            for root in {state.homes[r] for r in readers(g, state, n)}:
                inside.setdefault(root, []).append((n, place))
        elif place:
            inside.setdefault(home, []).append((n, place))
    for root, members in inside.items():
        yield root, state.tilings[root], tuple(members)


def changed(g: StageGraph, state: State, node: int, before: Mapping[int, Kernel]) -> dict[int, Kernel]:
    """The nests that placing a stage made or changed, by their roots, of those that there were ``before``.

    Stages are placed after all that read them, and stand first in nests: in the program's order.
    """
    place = state.places[node]
    if place == "own":
        return {node: (node, state.tilings[node], before[node][2] if node in before else ())}
    if place == "inline":
        roots = {state.homes[r] for r in readers(g, state, node)}
    else:
        roots = {state.homes[node]}
    return {r: (r, before[r][1], ((node, place), *before[r][2])) for r in sorted(roots)}


def placements_of(members: Sequence[tuple[int, Place]]) -> tuple[Placement, ...]:
    """The placements of members of a nest, in a plan's words."""
    return tuple(place for _, place in members if place != "" and place != "own")


def group_of(g: StageGraph, kernel: Kernel) -> tuple[Group, tuple[Placement, ...]]:
    """A nest as a group of a plan, inlined stages among its members, and its placements."""
    root, _, members = kernel
    numbers = {n for n, _ in members}
    reads = {
        g.nodes[n].name: tuple(ld for r in g.nodes[n].reads if r.node in numbers for ld in r.access.loads)
        for n in (*numbers, root)
    }
    stages = tuple(g.nodes[n].stage for n, _ in members)
    placements = placements_of(members)
    return Group(g.nodes[root].stage, stages, MappingProxyType(reads), g.table), placements


def why_not(g: StageGraph, kernel: Kernel) -> str:
    """Why a nest cannot be carried out, empty where it can."""
    _, tiling, members = kernel
    if tiling is None:
        return "" if all(place == "inline" for _, place in members) else "its loops are not known"
    return tiling.why_not(g, kernel)


def held(g: StageGraph, kernel: Kernel) -> int:
    """Bytes that a tile of a nest holds besides its root's."""
    _, tiling, members = kernel
    if tiling is None or not members:
        return 0
    group, placements = group_of(g, kernel)
    return tiling.held(group, g.program, placements)
