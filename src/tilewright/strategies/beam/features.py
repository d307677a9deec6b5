"""Features of the stages of a nest, from its tiling and boxes alone: Appendix A's, by their CPU counterparts.

Vector lanes stand for the lanes of a warp, cache lines for transactions, the first, second and last cache
level and memory for registers, shared and global memory, iterations of the parallel loop for tasks. Counts
are those of the whole run, unless the name says of what. A stage has what is inlined into it: that has no
features of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Final

from tilewright.analysis import Box, iterator_spans
from tilewright.cost import HELD_SHARE, Machine
from tilewright.ir import Stage
from tilewright.plan import OPERATIONS, Amortised, AtLoop, Node, Read, StageGraph, loops_of
from tilewright.strategies.beam.state import Kernel, Place

#: Bytes of a cache line.
LINE: Final = 64
#: Parts for each thread of a nest that its rule schedules; elements below which one thread does it.
TASKS: Final = 4
FEW: Final = 1 << 12
#: Values of :func:`algorithm_features`.
ALGORITHM: Final = len(OPERATIONS) + 4
#: Names of the schedule's features, in the order of their vector.
FEATURES: Final = (
    "num_scalars",
    "instructions",
    "points_computed_total",
    "points_computed_minimum",
    "points_computed_per_production",
    "num_realizations",
    "num_productions",
    "innermost_loop_extent",
    "unrolled_loop_extent",
    "inner_parallelism",
    "outer_parallelism",
    "tasks_per_core",
    "lane_utilization",
    "inlined_calls",
    "inlined_work",
    "bytes_at_realization",
    "bytes_at_production",
    "bytes_at_root",
    "innermost_bytes_at_task",
    "l2_bytes_read",
    "l3_bytes_read",
    "memory_bytes_read",
    "l3_runs_read",
    "memory_runs_read",
    "lines_read_per_production",
    "unique_bytes_read_per_task",
    "vector_loads",
    "apart_loads",
    "scattered_loads",
    "vector_stores",
    "bytes_stored",
    "loop_turns",
    "working_set_at_tile",
    "expr_branching",
)


@dataclass(frozen=True, slots=True)
class StageFeatures:
    """Of one stage in a nest, with what is inlined into it: its schedule's features by name."""

    node: Node
    values: Mapping[str, float]
    names: tuple[str, ...] = FEATURES

    def vector(self) -> list[float]:
        """The values in the order of their names."""
        return [self.values[name] for name in self.names]


def algorithm_features(node: Node) -> list[float]:
    """What a stage computes whatever its schedule: its operations by kind, its reads by how they move."""
    inner = node.names[-1] if node.names else ""
    steps = [(r.steps.get(inner, 0), r.count) for r in node.reads]
    together = sum(c for s, c in steps if s == 1)
    fixed = sum(c for s, c in steps if s == 0)
    return [
        *(float(node.operations[k]) for k in OPERATIONS),
        float(together),
        float(fixed),
        float(sum(c for _, c in steps) - together - fixed),
        float(node.sums),
    ]


@dataclass(frozen=True, slots=True)
class Made:
    """What one production of a producer computes, and how many of them there are."""

    box: Box
    times: int


@dataclass(slots=True)
class _Nest:
    """Numbers of a nest that all of its stages share; ``calls`` are elements of each that are computed."""

    places: Mapping[int, Place]
    own: tuple[int, ...]
    tiles: int
    turns: int
    tasks: int
    vector: int
    copies: tuple[int, ...]
    tile: Mapping[int, Box]
    made: Mapping[int, Made]
    held: Mapping[int, int]
    calls: dict[int, float]

    @property
    def working(self) -> float:
        """Bytes that a tile holds."""
        return float(sum(self.held.values()))

    @property
    def nearest(self) -> float:
        """Bytes of what is computed inside of producers' loops."""
        return float(sum(self.held[n] for n, place in self.places.items() if isinstance(place, AtLoop)))


def features(g: StageGraph, kernel: Kernel, machine: Machine) -> tuple[StageFeatures, ...]:
    """The features of each stage of a nest, the root's first."""
    nest = _nest(g, kernel, machine)
    found = []
    for node in stages_of(g, kernel):
        each = _amortised(g, node, nest)
        values = _computing(g, node, each, nest, machine) | _reading(node, each, nest, machine)
        found.append(StageFeatures(node, values))
    return tuple(found)


def stages_of(g: StageGraph, kernel: Kernel) -> list[Node]:
    """The stages of a nest that are stored, its root first, each with what is inlined into it."""
    root, _, members = kernel
    inlined = frozenset(n for n, place in members if place == "inline")
    stored = sorted({root, *(n for n, _ in members)} - inlined, reverse=True)
    return [g.merged(n, inlined) for n in stored]


def _nest(g: StageGraph, kernel: Kernel, machine: Machine) -> _Nest:
    root, tiling, members = kernel
    node, places = g.nodes[root], dict(members)
    tile, turn = tile_spans(g, kernel)
    if tiling is None:
        # by default: threads share the outer loops
        tasks = machine.threads * TASKS if machine.threads > 1 and node.points > FEW else 1
        tiles, turns, vector = 1, 1, len(node.extents) - 1
        copies = (1,) * len(node.extents)
        own, tasks = node.extents, min(tasks, node.points)
    else:
        own = tuple(t or n for t, n in zip(tiling.tile, node.extents, strict=True))
        counts = [ceil(n / t) for n, t in zip(node.extents, own, strict=True)]
        tiled = [axis for axis in tiling.order if tiling.tile[axis]]
        tasks = prod(counts[axis] for axis in tiled[: tiling.parallel])
        turns = own[tiling.order[0]] // tiling.expand[tiling.order[0]]
        tiles, copies, vector = prod(counts), tiling.expand, tiling.vector
    made = made_of(g, kernel, (tile, turn), tiles, turns)
    held, calls = dict[int, int](), {root: float(node.points)}
    for n, each in made.items():
        count = points_of(each.box)
        # of those that slide a window is kept, rounded up to a power of two
        kept = min(count, 2 * points_of(turn[n])) if places[n] == "slide" else count
        held[n] = g.nodes[n].width * kept
        calls[n] = float(count * each.times)
    return _Nest(places, own, tiles, turns, tasks, vector, copies, tile, made, held, calls)


def made_of(
    g: StageGraph, kernel: Kernel, boxes: tuple[Mapping[int, Box], Mapping[int, Box]], tiles: int, turns: int
) -> dict[int, Made]:
    """Of each producer that is stored in a nest what is computed at once; of those that slide by tiles.

    ``boxes`` are those of :func:`tile_spans`, for so many tiles of so many turns each.
    """
    _, _, members = kernel
    tile, turn = boxes
    made: dict[int, Made] = {}
    inside = frozenset(n for n, _ in members)
    numbers = {g.nodes[n].name: n for n in inside}
    for n, place in reversed(members):
        if isinstance(place, AtLoop):
            home = numbers[place.member]
            around, loops = made[home], place.loop + 1
            again = prod(turns_of(g.nodes[home].stage, around.box)[:loops])
            made[n] = Made(g.boxes(home, around.box, inside, loops)[n], around.times * again)
        elif place == "row":
            made[n] = Made(turn[n], tiles * turns)
        elif place != "inline":
            made[n] = Made(tile[n], tiles)
    return made


def turns_of(stage: Stage, box: Box) -> list[int]:
    """Turns of each loop of a producer inside of which others may be computed, for its instances ``box``."""
    axes = [hi - lo + 1 for lo, hi in box[:-1]]
    return [*axes, *(it.extent.as_int() for it in loops_of(stage)[len(axes) :])]


def tile_spans(g: StageGraph, kernel: Kernel) -> tuple[Mapping[int, Box], Mapping[int, Box]]:
    """What a tile amid the result needs of each stage of a nest, and what a turn of its outer loop needs."""
    root, tiling, members = kernel
    node = g.nodes[root]
    sizes = (0,) * len(node.extents) if tiling is None else tiling.tile
    spans = []
    for n, t in zip(node.extents, sizes, strict=True):
        size = t or n
        first = n // size // 2 * size
        spans.append((first, min(first + size, n) - 1))
    inside = frozenset(n for n, _ in members)
    tile = g.boxes(root, tuple(spans), inside)
    if tiling is None or not any(p in ("row", "slide") for _, p in members):
        return tile, tile
    return tile, g.boxes(root, tiling.turn(tuple(spans)), inside)


def points_of(box: Box) -> int:
    """Elements of a box."""
    out = 1
    for lo, hi in box:
        out *= hi - lo + 1
    return out


def _runs(box: Box, read: Read) -> int:
    """Runs of elements that lie together in memory, of a box of a buffer."""
    runs = 1
    together = True
    for (lo, hi), n in zip(reversed(box), reversed(read.access.shape), strict=True):
        if not together:
            runs *= hi - lo + 1
        together = together and hi - lo + 1 == n
    return runs


def _level(nbytes: float, machine: Machine, shared: bool) -> int:
    """The innermost level (0: the first cache, …, 3: memory) that holds so many bytes."""
    for at, level in enumerate(machine.target.memory[:3]):
        if level.size is None:
            return 3
        sharing = min(machine.threads, level.shared_by) if shared else 1
        if nbytes <= HELD_SHARE * level.size / sharing:
            return at
    return 3


def _inner(n: int, nest: _Nest) -> tuple[int, int]:
    """The axis of a stage's innermost loop, and its iterations."""
    place = nest.places.get(n, "own")
    box = nest.made[n].box if isinstance(place, AtLoop) else nest.tile[n]
    axis = nest.vector if place == "own" and nest.vector < len(box) else len(box) - 1
    if not box:
        return axis, 1
    return axis, nest.own[axis] if place == "own" else box[axis][1] - box[axis][0] + 1


def _amortised(g: StageGraph, node: Node, nest: _Nest) -> Amortised:
    """What an instance takes: of the root among the copies that a turn of its innermost loop has."""
    rooted = nest.places.get(node.index, "own") == "own"
    return g.amortised(node, nest.copies if rooted else (1,) * len(node.names))


def _computing(g: StageGraph, node: Node, each: Amortised, nest: _Nest, machine: Machine) -> dict[str, float]:
    """Features of what is computed, how often, and where it is stored."""
    n = node.index
    place = nest.places.get(n, "own")
    rooted = place == "own"
    computed = nest.calls[n]
    realizations = 1 if rooted else nest.made[n].times
    productions = realizations * (nest.turns if place == "slide" else 1)
    per_production = computed / max(1, productions)
    lanes = machine.target.lanes(node.dtype)
    _, inner = _inner(n, nest)
    work = each.work
    alone = work if node is g.nodes[n] else _amortised(g, g.nodes[n], nest).work
    return {
        "num_scalars": computed * node.sums,
        "instructions": computed * node.sums * work,
        "points_computed_total": computed,
        "points_computed_minimum": float(node.points),
        "points_computed_per_production": per_production,
        "num_realizations": float(realizations),
        "num_productions": float(productions),
        "innermost_loop_extent": float(inner),
        "unrolled_loop_extent": float(prod(nest.copies) if rooted else 1),
        "inner_parallelism": float(nest.tasks if rooted else 1),
        "outer_parallelism": float(1 if rooted else nest.tasks),
        "tasks_per_core": nest.tasks / machine.threads,
        "lane_utilization": inner / (ceil(inner / lanes) * lanes),
        "inlined_calls": computed * node.sums * node.inlined,
        "inlined_work": computed * node.sums * max(0.0, work - alone),
        "bytes_at_realization": float(node.bytes if rooted else nest.held.get(n, 0)),
        "bytes_at_production": per_production * node.width,
        "bytes_at_root": float(node.bytes),
        "innermost_bytes_at_task": float(inner * node.width),
        "vector_stores": computed / lanes,
        "bytes_stored": computed * node.width,
        "loop_turns": computed / max(1, inner) * node.sums,
        "working_set_at_tile": nest.working,
        "expr_branching": float(node.branching),
    }


def _reading(node: Node, each: Amortised, nest: _Nest, machine: Machine) -> dict[str, float]:
    """Features of what is read: loads, and bytes and runs by the level that they come from."""
    n = node.index
    lanes = machine.target.lanes(node.dtype)
    axis, _ = _inner(n, nest)
    along = node.names[axis] if node.names else ""
    instances = nest.calls[n] * node.sums
    vectors, apart, scattered, unique = 0.0, 0.0, 0.0, 0.0
    moved, runs = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    env = iterator_spans(node.stage, nest.tile[n])
    inside, nearest = _level(nest.working, machine, True), _level(nest.nearest, machine, True)
    for read in node.reads:
        where = nest.places.get(read.node)
        count = instances * each.loads[read.access.buffer]
        if read.steps.get(along, 0) is not None:
            vectors += count / lanes
        elif read.looked_up:
            scattered += count
        else:
            apart += count
        if isinstance(where, AtLoop):
            if nearest > 0:
                moved[nearest - 1] += nest.calls[read.node] * read.access.width
            continue
        if where is not None:
            if inside > 0:
                moved[inside - 1] += float(points_of(nest.tile[read.node])) * read.access.width * nest.tiles
            continue
        box = read.access.box(env)
        part = float(points_of(box)) * read.access.width
        unique += part
        total, level = part * nest.tiles, _level(read.access.bytes, machine, nest.tasks > 1)
        if level == 0:
            continue
        runs[level - 1] += _runs(box, read) * nest.tiles
        again = max(0.0, total - read.access.bytes) if level == 3 else 0.0
        moved[level - 1] += total - again
        # what a tile reads again was read by its neighbour a while ago
        moved[1] += again
    return {
        "l2_bytes_read": moved[0],
        "l3_bytes_read": moved[1],
        "memory_bytes_read": moved[2],
        "l3_runs_read": runs[1],
        "memory_runs_read": runs[2],
        "lines_read_per_production": unique / LINE,
        "unique_bytes_read_per_task": unique * nest.tiles / nest.tasks,
        "vector_loads": vectors,
        "apart_loads": apart,
        "scattered_loads": scattered,
    }
