"""Neighbours of a state: one tiling a step away, or one stage of a nest at another place in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from tilewright.cost import Machine
from tilewright.plan import StageGraph
from tilewright.strategies.beam.options import COLUMNS, ROWS, SERIAL, places, room_of
from tilewright.strategies.beam.state import GpuTiling, State, Tiling, held, kernels, why_not
from tilewright.target import GpuTarget

#: Parallel loops over tiles, at most.
MOST_PARALLEL: Final = 2


def neighbours(g: StageGraph, state: State, machine: Machine) -> Iterator[State]:
    """The states that differ in one decision, each once; none that cannot be carried out."""
    room = room_of(machine)
    most = machine.on.threads_per_block if isinstance(machine.on, GpuTarget) else inf
    for new in dict.fromkeys(_steps(g, state, machine, room)):
        if new != state and all(_stands(g, new, n, room, most) for n in range(len(g.nodes))):
            yield new


def _stands(g: StageGraph, state: State, root: int, room: int, threads: float) -> bool:
    if state.places[root] != "own":
        return True
    kernel = next(k for k in kernels(g, state) if k[0] == root)
    tiling = kernel[1]
    if isinstance(tiling, GpuTiling) and tiling.turns(tiling.tile) > threads:
        return False
    return not why_not(g, kernel) and held(g, kernel) <= room


def _steps(g: StageGraph, state: State, machine: Machine, room: int) -> Iterator[State]:
    for root, tiling, members in kernels(g, state):
        if tiling is None:
            continue
        cut = _kernels if isinstance(tiling, GpuTiling) else _tilings
        for new in cut(tiling, g.nodes[root].extents, machine):
            yield state.tiled(root, new)
        for n, _ in members:
            for option in places(g, state, n, room=room):
                # what this stage reads is in its nest still
                if option.places[n] == "inline" or option.homes[n] == root:
                    yield option


def _tilings(t: Tiling, extents: Sequence[int], machine: Machine) -> Iterator[Tiling]:
    """Tilings with one number a step up or down in its list, or another order."""
    rank = len(extents)
    for axis, extent in enumerate(extents):
        sizes = COLUMNS if axis == t.vector else ROWS if axis == t.row else (0, 1, *ROWS[1:])
        for size in _beside(t.tile[axis], [s for s in sizes if s < extent]):
            yield replace(t, tile=_with(t.tile, axis, size))
            if size == 1 or t.tile[axis] == 1:
                # single elements have nothing to expand, whole short axes are expanded
                whole = 1 if size or extent > SERIAL[-1] else extent
                yield replace(t, tile=_with(t.tile, axis, size), expand=_with(t.expand, axis, whole))
        for count in _beside(t.expand[axis], [*SERIAL, extent] if extent < SERIAL[-1] else SERIAL):
            yield replace(t, expand=_with(t.expand, axis, count))
    for first in range(rank):
        order = (first, *(axis for axis in t.order if axis != first))
        if order != t.order:
            yield replace(t, order=order)
    for parallel in _beside(t.parallel, range(MOST_PARALLEL + 1) if machine.threads > 1 else (0,)):
        yield replace(t, parallel=parallel)


def _kernels(t: Tiling, extents: Sequence[int], machine: Machine) -> Iterator[Tiling]:
    """Kernels with twice or half the elements of a thread, or the threads, along one axis."""
    for axis in range(len(extents)):
        each, count = t.expand[axis], t.tile[axis] // t.expand[axis]
        for new, threads in ((2 * each, count), (each // 2, count), (each, 2 * count), (each, count // 2)):
            if new and threads:
                yield replace(t, tile=_with(t.tile, axis, new * threads), expand=_with(t.expand, axis, new))


def _beside(value: int, options: Sequence[int]) -> list[int]:
    """The next options below and above a value."""
    below, above = [o for o in options if o < value], [o for o in options if o > value]
    return [*([max(below)] if below else []), *([min(above)] if above else [])]


def _with(values: tuple[int, ...], n: int, value: int) -> tuple[int, ...]:
    return (*values[:n], value, *values[n + 1 :])
