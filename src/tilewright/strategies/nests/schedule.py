"""The schedule of a nest: lifted where values allow it, else in tiles or as written, whichever runs wider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.ir import Block, LoopFunction, int_upper, locate, loop_env
from tilewright.strategies.nests.lifted import lifted_nest
from tilewright.strategies.nests.ordered import ordered_nest
from tilewright.strategies.nests.tiled import tiled_nest
from tilewright.support import ProgramError, ResourceError, ScheduleError
from tilewright.target import CpuTarget, Target

MARGIN: Final = 0.6
"""Tiles are taken where they should need less than so much of the time of the order as written: their loops
have bounds that are dearer, and the estimate knows lanes and threads alone."""


@dataclass(frozen=True, slots=True)
class ScheduledNest:
    """A nest as it will run, and in ``notes`` how it came about."""

    func: LoopFunction
    notes: tuple[str, ...]


def schedule_nest(func: LoopFunction, target: Target, threads: int) -> ScheduledNest:
    """A fast order for a nest of fixed sizes: same arguments, same results but for rounding of sums."""
    notes: list[str] = []
    try:
        return ScheduledNest(lifted_nest(func, target, threads), ("lifted to a program",))
    except (ScheduleError, ResourceError) as error:
        notes.append(f"not lifted: {error.what}")
    made = ordered_nest(func, target, threads)
    try:
        tiles = tiled_nest(func, target, threads)
    except (ScheduleError, ProgramError, ResourceError) as error:
        notes.append(f"not in tiles: {error.what}")
    else:
        here, there = (_instances(func, f, target, threads) for f in (made, tiles))
        if there < MARGIN * here:
            return ScheduledNest(tiles, (*notes, "in tiles"))
        notes.append("tiles would not run wider")
    return ScheduledNest(made, (*notes, "in the order in which it is written"))


def _instances(written: LoopFunction, made: LoopFunction, target: Target, threads: int) -> float:
    """Statement instances that run one after another in a function made of another one, roughly.

    A statement counts as in lanes, or on threads, where one of its copies is; the others are borders.
    """
    kinds: dict[str, set[str]] = {}
    for place in locate(made.body, Block):
        kinds.setdefault(place.node.stage, set()).update(loop.kind.name for loop in place.loops)
    out = 0.0
    known = {b.name: b.dtype.bytes for b in (*made.buffers, *made.body.allocated)}
    for place in locate(written.body, Block):
        count = 1.0
        for n, loop in enumerate(place.loops):
            count *= int_upper(loop.extent, loop_env(place.loops[:n])) or 0
        found = kinds.get(place.node.stage, set())
        if "vector" in found and isinstance(target, CpuTarget):
            widest = max((known.get(name, 8) for name, _ in place.node.writes), default=8)
            count /= target.preferred_vector_bits / (8 * widest)
        out += count / threads if "parallel" in found else count
    return out
