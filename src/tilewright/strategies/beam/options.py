"""The options of a stage: phase 1, where it is computed; phase 2, how a nest of its own is cut and ordered.

Rules are Anderson et al.'s (Sections 3 and 4), with a CPU's levels: a loop over tiles is a block, the loop
over rows inside of a tile a thread, lanes are lanes, what is expanded is a serial loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import ceil, inf, prod
from typing import Final

from tilewright.analysis import Box
from tilewright.cost import Machine
from tilewright.plan import CHEAP, AtLoop, StageGraph, second_level
from tilewright.strategies.beam.features import LINE, Made, made_of, points_of, tile_spans, turns_of
from tilewright.strategies.beam.gpu_options import kernels_of
from tilewright.strategies.beam.state import (
    GpuTiling,
    Kernel,
    Place,
    State,
    Tiling,
    kernels,
    readers,
    why_not,
)
from tilewright.target import GpuTarget

#: Elements of a tile along the axis in lanes, and along others.
COLUMNS: Final = (0, 64, 128, 256, 512)
ROWS: Final = (0, 4, 8, 16, 32, 64, 128)
#: Elements that are expanded, of an axis that is not in lanes.
SERIAL: Final = (1, 2, 4)
#: Extents of short axes, which are expanded whole.
SHORT: Final = (2, 3, 4)
#: Copies of the innermost loop: fewer are expanded, more are no states.
MOST_SERIAL: Final = 16
#: How often elements may be computed, by producers inside of nests and by inlining.
MOST_RECOMPUTED: Final = 4.0
MOST_INLINED: Final = 9.0
#: Loads an instance that a stage may have after inlining.
MOST_LOADS: Final = 96
#: Parts of a nest for each thread, at least, where the result is large; and in all at most.
TASKS_PER_CORE: Final = 2
MOST_TILES: Final = 1 << 16
#: Elements of a result up to which one thread may do it all.
SMALL: Final = 1 << 14


def places(
    g: StageGraph, state: State, node: int, *, fused: bool = True, room: float = inf, every: bool = False
) -> Iterator[State]:
    """Phase 1: every place that a stage may have, of ``room`` bytes for all that a tile holds.

    Without ``fused`` only nests of its own, and inlining; point-wise stages are always inlined, but where
    ``every`` place is asked for.
    """
    n = g.nodes[node]
    inlinable = not n.output and n.sums == 1 and bool(g.readers[node])
    if inlinable and g.is_pointwise(node) and g.nodes[g.readers[node][0]].plain:
        inlined = state.placed(node, "inline", -1)
        if not _grows(g, inlined, node):
            yield inlined
            if not every:
                return
    yield state.placed(node, "own", node)
    if inlinable and n.work <= CHEAP and not (every and g.is_pointwise(node)):
        inlined = state.placed(node, "inline", -1)
        if not _grows(g, inlined, node) and _inlines_well(g, inlined, node):
            yield inlined
    if n.output or not fused:
        return
    homes = {state.homes[r] for r in readers(g, state, node)}
    if len(homes) != 1:
        return
    (home,) = homes
    if home < 0 or state.tilings[home] is None:
        return
    options: list[Place] = ["tile", "row", "slide", *_loops(g, state, node, home)]
    for place in options:
        new = state.placed(node, place, home)
        kernel = kernel_of(g, new, home)
        if not why_not(g, kernel) and not _is_wasteful(g, kernel, room):
            yield new


def room_of(machine: Machine) -> int:
    """Bytes for all that a tile holds: of the second cache level, or of the shared memory of a block."""
    return machine.on.shared_per_block if isinstance(machine.on, GpuTarget) else second_level(machine)


def kernel_of(g: StageGraph, state: State, root: int) -> Kernel:
    """The nest of a root."""
    return next(k for k in kernels(g, state) if k[0] == root)


def _loops(g: StageGraph, state: State, node: int, home: int) -> Iterator[AtLoop]:
    """Loops of several turns of the producers that read a stage, and those around these."""
    around = sorted(readers(g, state, node))
    if home in around or isinstance(state.tilings[home], GpuTiling):
        return
    made, _ = _made(g, kernel_of(g, state, home))
    number = {g.nodes[n].name: n for n in made}
    found = dict[AtLoop, None]()
    for r in around:
        at, count = r, len(g.nodes[r].stage.iters)
        while at in made:
            turns = turns_of(g.nodes[at].stage, made[at].box)
            found |= {AtLoop(g.nodes[at].name, n): None for n, each in enumerate(turns[:count]) if each > 1}
            place = state.places[at]
            at, count = (number[place.member], place.loop + 1) if isinstance(place, AtLoop) else (-1, 0)
    yield from found


def _grows(g: StageGraph, state: State, node: int) -> bool:
    """Whether a stage that a newly inlined one goes into would have too many loads."""

    def loads(n: int, depth: int = 0) -> int:
        total = 0
        for r in g.nodes[n].reads:
            inlined = r.node >= 0 and state.places[r.node] == "inline"
            total += r.count * (max(1, loads(r.node, depth + 1)) if inlined and depth < 32 else 1)
            if total > MOST_LOADS:
                return total
        return total

    return any(loads(n) > MOST_LOADS for n in readers(g, state, node))


def _inlines_well(g: StageGraph, state: State, node: int) -> bool:
    """Whether inlining computes no element too often, in stages whose iterations are in no order."""
    calls = 0.0
    for reader in g.readers[node]:
        r = g.nodes[reader]
        if not r.plain or (r.sums > 1 and g.nodes[node].work > 1):
            return False
        calls += sum(read.count for read in r.reads if read.node == node) * r.points * r.sums
    return calls <= MOST_INLINED * g.nodes[node].points


def _made(g: StageGraph, kernel: Kernel) -> tuple[dict[int, Made], Mapping[int, Box]]:
    """What is computed at once of the producers of a nest, and what a turn of its outer loop needs."""
    root, tiling, _ = kernel
    assert tiling is not None
    tile, turn = tile_spans(g, kernel)
    own = [t or n for t, n in zip(tiling.tile, g.nodes[root].extents, strict=True)]
    tiles = prod(ceil(n / t) for n, t in zip(g.nodes[root].extents, own, strict=True))
    return made_of(g, kernel, (tile, turn), tiles, tiling.turns(own)), turn


def _is_wasteful(g: StageGraph, kernel: Kernel, room: float) -> bool:
    """Whether a producer of a nest is computed too often, or all of them take too much memory."""
    _, tiling, members = kernel
    made, turn = _made(g, kernel)
    total, places = 0, dict(members)
    for n, each in made.items():
        kept = points_of(turn[n] if places[n] == "slide" else each.box)
        total += g.nodes[n].width * kept
        if total > room or (tiling is not None and places[n] == "row" and kept > tiling.most_kept):
            return True
        if points_of(each.box) * each.times > MOST_RECOMPUTED * g.nodes[n].points:
            return True
    return False


def tilings(g: StageGraph, node: int, machine: Machine) -> list[Tiling | None]:
    """Phase 2: every way to cut and order the loops of a nest; ``None``: as its rule does by default."""
    n = g.nodes[node]
    if not n.plain or n.sums > 1 or not n.extents:
        return [None]
    if isinstance(machine.on, GpuTarget):
        return [*kernels_of(n.extents, machine.on)] or [None]
    rank = len(n.extents)
    vector = _vector_axis(g, node)
    rest = [axis for axis in range(rank) if axis != vector]
    short = [axis for axis in rest if n.extents[axis] in SHORT]
    long = [axis for axis in rest if axis not in short]
    rows = long[-1:] or rest[-1:]
    orders = [(*rows, *(a for a in range(rank) if a not in rows))]
    if orders[0] != tuple(range(rank)):
        orders.append(tuple(range(rank)))
    sizes = []
    for axis, extent in enumerate(n.extents):
        if axis == vector:
            sizes.append([t for t in COLUMNS if t < extent])
        elif axis in rows:
            sizes.append([t for t in ROWS if t < extent])
        else:
            sizes.append([0, 1] if extent > 1 else [0])
    found: list[Tiling | None] = []
    for tile, order, count in product(product(*sizes), orders, SERIAL):
        # short axes are expanded whole, or one element of them is a tile: a channel after the other
        expand = tuple(
            count if axis in rows else extent if axis in short and not tile[axis] else 1
            for axis, extent in enumerate(n.extents)
        )
        for parallel in range(min(2, sum(t > 0 for t in tile)) + 1) if machine.threads > 1 else (0,):
            tiling = Tiling(tile, order, vector, expand, parallel)
            if not _is_pruned(n.extents, tiling, machine) and not why_not(g, (node, tiling, ())):
                found.append(tiling)
    return found or [None]


def _vector_axis(g: StageGraph, node: int) -> int:
    """The axis in lanes: the last one that is long enough, whose steps move by single elements in memory."""
    n = g.nodes[node]
    last = len(n.extents) - 1
    if n.extents[last] >= 16 or last == 0:
        return last
    longer = [axis for axis in range(last) if n.extents[axis] >= 16]
    if not longer:
        return last
    apart = [a for a in longer if all(r.steps[n.names[a]] is not None for r in n.reads)]
    return apart[-1] if apart else last


def _is_pruned(extents: tuple[int, ...], t: Tiling, machine: Machine) -> bool:
    """The paper's rules: idle cores, idle lanes, too much that is expanded, too many tiles, short lines."""
    own = [size or n for size, n in zip(t.tile, extents, strict=True)]
    counts = [ceil(n / size) for n, size in zip(extents, own, strict=True)]
    if prod(t.expand) >= MOST_SERIAL or prod(counts) > MOST_TILES:
        return True
    shared = [axis for axis in t.order if t.tile[axis]][: t.parallel]
    tasks = prod(counts[axis] for axis in shared)
    if prod(extents) > SMALL and machine.threads > 1 and tasks < TASKS_PER_CORE * machine.threads:
        return True
    if t.parallel and tasks < 2:
        return True
    return t.tile[t.vector] > 0 and t.tile[t.vector] * 4 < LINE
