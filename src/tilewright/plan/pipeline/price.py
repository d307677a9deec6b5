"""What groups cost: recomputed work, scratch against caches, traffic and parallelism, for many tiles at once.

The fusion cost model. Nothing is lowered: a group grows from its root by one producer at a time, consumers
first, and after each the seconds of the group are known for every tile of a list, as arrays::

    seconds = (instructions + what scratch and neighbours' rows take of the caches) / threads x imbalance
              + traffic of everything that the group reads and writes outside of its tiles

What is not in the group yet is read from where it lies; when it joins, it is computed instead, as often as
tiles need it (their boxes), and its bytes stay in the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.analysis import ARRAYS, Access, Box, around, iterator_spans
from tilewright.cost import SWEPT_SHARE, Machine, bandwidth, goes_past_caches
from tilewright.ir import Index, Var
from tilewright.plan.pipeline.boxes import Numbers, iteration, points
from tilewright.plan.pipeline.graph import Node, StageGraph
from tilewright.plan.pipeline.group import AtLoop, Placement, Window
from tilewright.plan.pipeline.group_plan import GroupPlan
from tilewright.plan.pipeline.nest import LINE

Reals = npt.NDArray[np.float64]

#: Vector loads that are not aligned touch two lines each: one starts in a cycle. Elements a step apart or
#: halved, which are picked from vectors, and those that are looked up where a buffer says; stores.
LOAD_CYCLES: Final = 1.0
APART_CYCLES: Final = 0.5
LOOKUP_CYCLES: Final = 1.5
STORE_CYCLES: Final = 0.5
#: Cycles of one row of a loop in vectors besides its vectors, of one tile, of starting a producer in a tile.
ROW_CYCLES: Final = 12.0
TILE_CYCLES: Final = 200.0
PRODUCER_CYCLES: Final = 30.0
#: Cycles until a run of elements that lie together comes, of what lies in memory, and of what lies nearer.
RUN_CYCLES: Final = (100.0, 20.0)
#: Parts of a nest that each thread should have, so that uneven ones even out.
TASKS_PER_THREAD: Final = 4
#: Part of the shorter of computing and memory that does not go on beside the longer.
OVERLAP: Final = 0.3
#: How often the elements of a producer may be computed, on average.
MOST_RECOMPUTED: Final = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """Numbers of one stage on a machine: lanes of a vector, cycles of one, rows that one row reads."""

    lanes: int
    vector_cycles: float
    rows: Mapping[str, int]


@dataclass(slots=True, eq=False)
class FusionModel:
    """Prices groups of a program on a machine."""

    graph: StageGraph
    machine: Machine
    _facts: dict[int, Facts] = field(default_factory=dict)

    @property
    def hz(self) -> float:
        """Cycles a second."""
        return self.machine.clock_hz

    def level(self, number: int) -> int:
        """Bytes of a cache level, of the last one where there are fewer."""
        sizes = [lv.size for lv in self.machine.target.memory if lv.size is not None]
        return sizes[min(number, len(sizes) - 1)] if sizes else 0

    def facts(self, n: int) -> Facts:
        """The numbers of a stage."""
        found = self._facts.get(n)
        if found is None:
            found = self._facts[n] = _facts(self.graph.nodes[n], self.machine)
        return found

    def alone(self, n: int) -> float:
        """Seconds of a stage that has a nest of its own, as its rule does it."""
        g = Growth.start(self, n, tuple(np.array([e]) for e in self.graph.nodes[n].extents), whole=True)
        return float(g.seconds()[0])

    def nest(self, root: int, members: Mapping[int, Placement], plan: GroupPlan) -> float:
        """Seconds of a nest as planned; producers ahead of it are counted by themselves."""
        ahead = sum(self.alone(n) for n, place in members.items() if place == "root")
        if not any(plan.tile) and {*members.values()} <= {"root"}:
            return ahead + self.alone(root)
        return ahead + float(self.growth(root, members, plan).seconds()[0])

    def growth(self, root: int, members: Mapping[int, Placement], plan: GroupPlan) -> Growth:
        """The group of a nest as planned, for its one tile, without the producers ahead of it."""
        own = tuple(np.array([t]) for t in plan.own(self.graph.nodes[root].extents))
        shared = [axis for axis in plan.order if plan.tile[axis]][: plan.parallel]
        step = plan.expand[plan.row]
        growth = Growth.start(self, root, own, shared=shared, row=plan.row, step=step)
        for n in sorted(members, reverse=True):
            if members[n] != "root":
                growth.join(n, members[n])
        return growth

    def moved(self, total: Reals, size: int, runs: Reals) -> tuple[Reals, Reals]:
        """Cycles that reading ``total`` bytes of a buffer of ``size`` takes: of each thread, of memory.

        They come in so many ``runs``.
        """
        threads, target = self.machine.threads, self.machine.target
        rate = bandwidth(self.machine, size / threads)
        once, again = np.minimum(total, size), np.maximum(total - size, 0)
        zero = np.zeros_like(total)
        if rate > target.memory[-1].bandwidth or len(target.memory) < 3:
            return total / rate + runs * RUN_CYCLES[1], zero
        return again / target.memory[-2].bandwidth + runs * RUN_CYCLES[0], once / rate


def _facts(node: Node, machine: Machine) -> Facts:
    target = machine.target
    widths = [node.width, *(r.access.width for r in node.reads)]
    lanes = max(1, target.preferred_vector_bits // 8 // max(widths))
    inner = node.names[-1] if node.names else ""
    loads, rows = 0.0, dict[str, int]()
    for read in node.reads:
        access = read.access
        steps = access.steps(inner, away=True)
        if steps is None:
            affine = all(reach.tag != "data" for reaches in access.dims for reach in reaches)
            each = (APART_CYCLES if affine else LOOKUP_CYCLES) * lanes
        else:
            each = LOAD_CYCLES if steps == 1 else LOAD_CYCLES / 2
        loads += each * read.count
        rows[access.buffer] = prod(sum(r.last - r.first + 1 for r in dim) for dim in access.dims[:-1])
    cycles = max(node.work / target.fma_per_cycle, loads) + STORE_CYCLES / node.sums
    return Facts(lanes, cycles * node.sums, rows)


@dataclass(slots=True, eq=False)
class Growth:
    """A group while it grows, for many tiles at once: entries of arrays are tiles.

    ``spans`` are the boxes that a tile needs of each member, ``outside`` those of buffers that it reads from
    outside, ``held`` the bytes that members take, ``near`` those that lie between writing and reading them.
    """

    model: FusionModel
    root: int
    tiles: Reals
    waste: Reals
    members: list[int] = field(default_factory=list)
    spans: dict[int, Box] = field(default_factory=dict)
    outside: dict[str, Box] = field(default_factory=dict)
    cycles: dict[int, Reals] = field(default_factory=dict)
    second: dict[int, Reals] = field(default_factory=dict)
    starts: Reals = field(default_factory=lambda: np.zeros(1))
    held: dict[int, Reals] = field(default_factory=dict)
    near: dict[int, Reals] = field(default_factory=dict)
    computed: dict[int, Reals] = field(default_factory=dict)
    places: dict[int, Placement] = field(default_factory=dict)
    #: Rows that a turn needs of each member, and those that all members need before the first turn.
    windows: dict[int, Window | None] = field(default_factory=dict)
    ahead: dict[int, Window | None] = field(default_factory=dict)
    step: int = 1

    @staticmethod
    def start(
        model: FusionModel,
        root: int,
        own: Sequence[Numbers],
        *,
        shared: Sequence[int] = (),
        whole: bool = False,
        row: int = 0,
        step: int = 1,
    ) -> Growth:
        """The group of a root alone, in tiles of ``own`` elements along each axis.

        Threads share the loops over tiles of the axes ``shared``, or the whole nest evenly. Rows are those of
        the axis ``row``, ``step`` of them a turn.
        """
        node, threads = model.graph.nodes[root], model.machine.threads
        counts = [-(-n // t) for n, t in zip(node.extents, own, strict=True)]
        tiles: Any = np.ones(1)
        for c in counts:
            tiles = tiles * c
        tasks: Any = np.ones(1)
        for axis in shared:
            tasks = tasks * counts[axis]
        waste = np.ceil(tasks / threads) * threads / tasks if not whole else np.ones(1)
        g = Growth(model, root, np.asarray(tiles, float), np.asarray(waste, float), step=step)
        g.windows[root] = g.ahead[root] = Window(row, 0, step - 1)
        first = [n // t // 2 * t for n, t in zip(node.extents, own, strict=True)]
        box = tuple((f, np.minimum(f + t, n) - 1) for f, t, n in zip(first, own, node.extents, strict=True))
        # parts of tiles at the end count for what they are
        g._enter(root, box, float(node.points))
        g.starts = TILE_CYCLES * g.tiles
        return g

    def can_join(self, n: int) -> bool:
        """Whether all that reads a stage is in the group."""
        inside = {self.root, *self.members}
        return bool(self.model.graph.readers[n]) and inside.issuperset(self.model.graph.readers[n])

    def tile_of(self, n: int) -> Placement:
        """The tile."""
        return "tile"

    def loop_of(self, n: int) -> Placement:
        """The innermost loop of readers outside of rows in which nothing is computed again, or the tile."""
        graph, loops = self.model.graph, dict[str, int]()
        for r in graph.readers[n]:
            place, rank = self.places.get(r), len(graph.nodes[r].extents)
            at = place if isinstance(place, AtLoop) else AtLoop(graph.nodes[r].name, rank - 3)
            loops[at.member] = min(at.loop, loops.get(at.member, at.loop)) if place is not None else -1
        (home, last), *others = loops.items()
        box = self.outside[graph.nodes[n].stage.writes[0]]
        for loop in range(last, -1, -1) if not others else ():
            part, times = self._iteration(n, AtLoop(home, loop), box)
            if bool(np.all((times > self.tiles) & (points(part) * times <= points(box) * self.tiles))):
                return AtLoop(home, loop)
        return "tile"

    def row_of(self, n: int) -> Placement:
        """The deepest place that keeps rows of a producer instead of all that a tile needs, or the tile."""
        graph = self.model.graph
        at = {self.places[r] for r in graph.readers[n] if r != self.root}
        window = self._window(n, self.windows)
        if "tile" in at or window is None or graph.nodes[n].sums > 1:
            return "tile"
        if window.rows > self.step:
            return "slide"
        return "tile" if "slide" in at else "row"

    def join(self, n: int, place: Placement = "tile") -> None:
        """Compute a producer inside of the tiles, too."""
        graph, step = self.model.graph, self.step
        node = graph.nodes[n]
        made = node.stage.writes[0]
        box = self.outside.pop(made)
        window, ahead = self._window(n, self.windows), self._window(n, self.ahead)
        self.members.append(n)
        self.places[n], self.windows[n], self.ahead[n] = place, None, None
        if window is not None and place in ("row", "slide"):
            new = Window(window.axis, window.last - step + 1, window.last)
            self.windows[n] = new if place == "slide" else window
            self.ahead[n] = ahead
        rows = window.rows if window is not None else step
        again: Any = rows / step if place == "row" else 1.0
        if isinstance(place, AtLoop):
            part, times = self._iteration(n, place, box)
            again = points(part) * times / (points(box) * self.tiles)
        self._enter(n, box, None, again)
        self.starts = self.starts + PRODUCER_CYCLES * self.tiles
        inside: Any = points(box) * node.width
        near = inside + sum(points(self.spans[r]) * graph.nodes[r].width for r in graph.readers[n])
        if isinstance(place, AtLoop):
            inside = near = points(part) * node.width
            self.starts = self.starts + PRODUCER_CYCLES * times
        elif place != "tile" and len(box) > 1:
            # a window of rows; line buffers have a power of two of them
            axis = window.axis if window is not None else len(box) - 2
            height = box[axis][1] - box[axis][0] + 1
            kept = rows if ahead is None else max(rows, ahead.rows - step)
            kept = 1 << (kept - 1).bit_length() if place == "slide" else rows
            inside = inside / height * np.minimum(height, kept)
            near = inside
            self.starts = self.starts + PRODUCER_CYCLES * self.tiles * height / step
        self.held[n], self.near[n] = inside, near

    def _iteration(self, n: int, place: AtLoop, box: Box) -> tuple[Box, Reals]:
        """What one iteration of the loop of another producer needs of one, and how many of them there are."""
        graph = self.model.graph
        home = next(m for m in self.members if graph.nodes[m].name == place.member)
        part, sums = iteration(graph.nodes[home].stage, self.spans[home], place.loop + 1)
        found = graph.table.boxes(
            place.member, part, {graph.nodes[m].name for m in (n, *self.members)}, ARRAYS, sums
        )
        turns = [it.extent.as_int() for it in graph.nodes[home].stage.iters if it.name in sums]
        times = self.computed[home] / points(part) * prod(turns)
        return found.get(graph.nodes[n].name, box), np.asarray(times, float)

    def _window(self, n: int, windows: Mapping[int, Window | None]) -> Window | None:
        """The rows that are needed of a producer for those of its readers, where they move one by one."""
        graph = self.model.graph
        made = graph.nodes[n].stage.writes[0]
        out: Window | None = None
        for r in graph.readers[n]:
            if self.places.get(r) == "tile":
                continue
            own = windows[r]
            access = next(read.access for read in graph.nodes[r].reads if read.access.buffer == made)
            found = None if own is None else _moved(access, graph.nodes[r].names[own.axis], own)
            if found is None or (out is not None and out.axis != found.axis):
                return None
            first = found.first if out is None else min(out.first, found.first)
            out = Window(found.axis, first, found.last if out is None else max(out.last, found.last))
        return out

    def _enter(self, n: int, box: Box, count: float | None, again: float = 1.0) -> None:
        """Count a stage's instructions for a box, and widen what is read from outside."""
        model = self.model
        node, facts = model.graph.nodes[n], model.facts(n)
        self.spans[n] = box
        each = points(box)
        total = each * self.tiles * again if count is None else np.full_like(self.tiles, count)
        self.computed[n] = total
        width: Any = box[-1][1] - box[-1][0] + 1 if box else np.ones(1)
        vectors = np.ceil(width / facts.lanes)
        rows = total / width
        self.cycles[n] = rows * (vectors * facts.vector_cycles + ROW_CYCLES * node.sums)
        # rows that are read again and again: of the first level where they fit there, else of the second
        near: Any = np.zeros(1)
        env = iterator_spans(node.stage, box)
        for access in (read.access for read in node.reads):
            near = near + facts.rows[access.buffer] * access.width * width
            new, old = access.box(env, ARRAYS), self.outside.get(access.buffer)
            self.outside[access.buffer] = new if old is None else around(old, new, ARRAYS)
        self.second[n] = np.where(near > SWEPT_SHARE * model.level(0), near * rows, 0.0)

    def seconds(self) -> Reals:
        """Of the group with all that joined so far, for each tile; infinite where no cache holds one."""
        model = self.model
        graph, threads = model.graph, model.machine.threads
        target = model.machine.target
        cycles: Any = self.starts
        memory: Any = np.zeros(1)
        total: Any
        accesses = [read.access for n in (self.root, *self.members) for read in graph.nodes[n].reads]
        known = {access.buffer: access for access in accesses}
        for name, box in self.outside.items():
            total = points(box) * known[name].width * self.tiles
            runs = _runs(box, known[name].shape, known[name].width) * self.tiles
            own, shared = model.moved(total, known[name].bytes, runs)
            cycles, memory = cycles + own, memory + shared
        root = graph.nodes[self.root]
        runs = _runs(self.spans[self.root], root.extents, root.width) * self.tiles
        own, shared = model.moved(np.full_like(self.tiles, float(root.bytes)), root.bytes, runs)
        # a line that is not stored past the caches is read before
        past = goes_past_caches(root.bytes, target)
        cycles, memory = cycles + own, memory + (1 if past else 2) * shared
        room = SWEPT_SHARE * model.level(0)
        total = np.zeros(1)
        far = dict(self.second)
        for n in self.members:
            total = total + self.held[n]
            moved = self.computed[n] * graph.nodes[n].width
            # written to the second level, and read from there by whoever reads it
            for at in (n, *graph.readers[n]):
                far[at] = far[at] + np.where(self.near[n] > room, moved, 0.0)
        second = target.memory[min(1, len(target.memory) - 1)].bandwidth
        for n, own in self.cycles.items():
            cycles = cycles + np.maximum(own, far[n] / second)
        cycles = cycles / threads * self.waste
        fork = model.machine.fork_cycles
        seconds = (np.maximum(cycles, memory) + OVERLAP * np.minimum(cycles, memory) + fork) / model.hz
        return np.where(total > SWEPT_SHARE * model.level(1), np.inf, seconds)

    def recomputed(self) -> Reals:
        """How often the elements of the producer are computed that is computed most often."""
        out: Any = np.ones(1)
        for n in self.members:
            out = np.maximum(out, self.computed[n] / self.model.graph.nodes[n].points)
        return np.asarray(out, float)


def prefixes(
    growth: Growth, allowed: Sequence[bool], most: int, place: Callable[[Growth, int], Placement]
) -> Iterator[Growth]:
    """The group after each producer that joins it: consumers before producers, in the program's order.

    The same object each time; ``place`` says where in it a producer is computed. Groups with all of them at
    tiles are left out where that is another way to place them. Ends where every tile repeats too much or fits
    no cache.
    """
    for n in range(growth.root - 1, -1, -1):
        if len(growth.members) == most:
            return
        if not allowed[n] or not growth.can_join(n):
            continue
        growth.join(n, place(growth, n))
        if place is not Growth.tile_of and {*growth.places.values()} == {"tile"}:
            continue
        if not bool(np.any(np.isfinite(growth.seconds()) & (growth.recomputed() <= MOST_RECOMPUTED))):
            return
        yield growth


def _runs(box: Box, shape: Sequence[int], width: int) -> Any:
    """Rows of a box: as if none lay right behind the one before, but for those of less than a line."""
    rows = len(box) - 1
    while rows > 0 and prod(shape[rows:]) * width < LINE:
        rows -= 1
    return points(box[:rows]) if rows > 0 else np.ones(1)


def _moved(access: Access, row: str, window: Window) -> Window | None:
    """The rows of a buffer that are read for a window of the reader's rows; ``None`` for other rates."""
    along = [d for d, dim in enumerate(access.dims) if any(row in Index(0, r.terms).vars for r in dim)]
    if len(along) != 1 or any(r.terms != ((Var(row), 1),) for r in access.dims[along[0]]):
        return None
    reaches = access.dims[along[0]]
    low, high = min(r.first for r in reaches), max(r.last for r in reaches)
    return Window(along[0], window.first + low, window.last + high)
