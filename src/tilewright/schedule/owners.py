"""Which thread of a block an element belongs to, where a buffer of one thread stands outside of their loops.

Loops on one axis name the same threads by their iterations: what they do is compared in the threads'
coordinates, called ``@thread.x`` and so on.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import (
    ZERO,
    Alloc,
    Block,
    Env,
    For,
    Index,
    is_thread,
    locate,
    simplify,
    substitute_index,
    var,
)
from tilewright.schedule.carried import Touch, folded, forced, touches_below


@dataclass(frozen=True, slots=True)
class Placed:
    """An access below an allocation: the axes that spread it over threads, and its indices and facts.

    Both are over loops and coordinates of threads; facts are not negative where the access happens.
    """

    block: Block
    write: bool
    axes: frozenset[str]
    indices: tuple[Index, ...]
    facts: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Ownerless:
    """Two accesses to a buffer of one thread that different threads of ``axis`` may do to one element."""

    axis: str
    first: Block
    second: Block


def placed_accesses(alloc: Alloc, env: Env) -> tuple[tuple[Placed, ...], dict[str, tuple[Index, Index]]]:
    """The accesses to a buffer in coordinates of threads, and the ranges of loops and of coordinates.

    No accesses where no loop over threads is below the allocation.
    """
    touches, ranges = touches_below(alloc.body, env, lambda name: name == alloc.buffer.name)
    coordinates: dict[str, Index] = {}
    axes: dict[str, str] = {}
    last: dict[str, Index] = {}
    for place in locate(alloc.body, For):
        loop = place.node
        if is_thread(loop.kind):
            name = "@" + loop.kind.axis
            high = simplify(loop.hi - loop.lo - 1, ranges)
            count = high if loop.step == 1 else high // loop.step
            known = last.get(name)
            if known is None or (known.is_const and count.is_const and known.const < count.const):
                last[name] = count
            axes[loop.var] = loop.kind.axis
            coordinates[loop.var] = loop.lo + var(name) * loop.step
    if not coordinates:
        return (), ranges
    known_ranges = {name: (ZERO, count) for name, count in last.items()}
    for v, (lo, hi) in ranges.items():
        known_ranges[v] = (substitute_index(lo, coordinates), substitute_index(hi, coordinates))

    def placed(t: Touch) -> Placed:
        loops = sorted(t.loops & axes.keys())
        facts = (*t.facts, *(ranges[v][1] - var(v) for v in loops))
        return Placed(
            t.block,
            t.write,
            frozenset(axes[v] for v in loops),
            tuple(simplify(substitute_index(i, coordinates), known_ranges) for i in t.indices),
            tuple(substitute_index(f, coordinates) for f in facts),
        )

    return tuple(map(placed, touches)), known_ranges


def ownerless(alloc: Alloc, env: Env) -> Ownerless | None:
    """Two accesses that show an element without an owner; ``None`` where each has one thread of every axis.

    The accesses of all loops over threads are compared: wherever two meet, one writing, their threads must be
    forced to be equal. Accesses that one loop spreads over an axis and another does not are taken for
    those of different threads. ``env`` are the ranges of the loops around the allocation.
    """
    found, ranges = placed_accesses(alloc, env)
    wrapped = folded(alloc.buffer)
    for n, a in enumerate(found):
        for b in found[n:]:
            if not (a.write or b.write):
                continue
            wanted = frozenset("@" + axis for axis in a.axes | b.axes)
            held: frozenset[str] = frozenset()
            if a.axes == b.axes and len(a.indices) == len(b.indices) and not wrapped:
                pairs = list(zip(a.indices, b.indices, strict=True))
                held = forced(pairs, ranges, frozenset(env), wanted, (a.facts, b.facts))
            for axis in sorted(a.axes | b.axes):
                if "@" + axis not in held and not _alone(axis, ranges):
                    return Ownerless(axis, a.block, b.block)
    return None


def _alone(axis: str, ranges: Env) -> bool:
    return ranges["@" + axis][1] == ZERO
