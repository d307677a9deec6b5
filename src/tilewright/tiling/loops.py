"""Loops of a block and the levels of a tree: which axis a loop runs along, splitting, fusing, ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal

from tilewright.schedule import Schedule
from tilewright.support import InternalError
from tilewright.tiling.walk import Row

#: Names of fused loops are cut here.
_LONGEST: Final = 48


def loops_below(s: Schedule, block: str, at: str | None) -> list[str]:
    """The loops of a block inside of a loop; all of them where that is ``None``."""
    loops = list(s.loops(block))
    return loops if at is None else loops[loops.index(at) + 1 :]


def axes_of(s: Schedule, block: str, at: str | None) -> dict[str, str]:
    """The loop of each axis of a block, before any of them is split."""
    loops, found = loops_below(s, block, at), s.block(block)
    out: dict[str, str] = {}
    for it, bind in zip(found.iters, found.bind, strict=True):
        out |= {loop: it.name for loop in loops if loop in bind.vars}
    return {out[loop]: loop for loop in loops if loop in out}


def multiplied(
    s: Schedule, block: str, at: str | None, axes: Mapping[str, str], rows: Sequence[Row]
) -> tuple[Schedule, dict[str, str]]:
    """Axes that a tree takes together, ``h*w`` or tiles of them, ``h/4*w/4``: one loop, split again."""
    out = dict(axes)
    for product, tail in {row.axis: row.level.tail for row in rows if {"*", "/"} & {*row.axis}}.items():
        parts = []
        for axis, _, tile in (part.partition("/") for part in product.split("*")):
            loop = out.pop(axis)
            if tile:
                stem = _fresh(s, loop, 2)
                end: Literal["mask", "guard"] = "mask" if tail == "mask" else "guard"
                s = s.split(loop, int(tile), names=[f"{stem}_0", f"{stem}_1"], tail=end)
                loop, out[axis] = f"{stem}_0", f"{stem}_1"
            parts.append(loop)
        order = loops_below(s, block, at)
        place = min(map(order.index, parts))
        ahead, behind = ([x for x in some if x not in parts] for some in (order[:place], order[place:]))
        wanted = [*ahead, *parts, *behind]
        if wanted != order:
            s = s.reorder(*wanted)
        s, out[product] = fused(s, parts)
    return s, out


def split_axes(s: Schedule, axes: Mapping[str, str], rows: Sequence[Row]) -> tuple[Schedule, list[str]]:
    """Split the loops of axes into those of all levels; returns the names of these in the order of the rows.

    The sizes of an axis are digits: in whatever order its levels stand, each is part of the next larger one.
    """
    chains: dict[str, list[int]] = {}
    masked = {row.axis: row.level.tail == "mask" for row in rows}
    for row in rows:
        chains.setdefault(row.axis, []).append(row.size)
    parts: dict[str, dict[int, list[str]]] = {}
    for axis, chain in chains.items():
        loop = axes[axis]
        tail: Literal["mask", "guard"] = "mask" if masked[axis] else "guard"
        chain.sort(reverse=True)
        if chain[-1] != 1:
            raise InternalError(f"the innermost level of {axis} has iterations of {chain[-1]} elements")
        if len(chain) == 1:
            parts[axis] = {1: [loop]}
            continue
        stem = _fresh(s, loop, len(chain))
        made = [f"{stem}_{n}" for n in range(len(chain))]
        factors = list(pairwise(chain))
        if all(x % y == 0 for x, y in factors):
            s = s.split(loop, [x // y for x, y in factors], names=made, tail=tail)
        else:
            for n, size in enumerate(chain[:-1]):
                rest = made[-1] if n == len(chain) - 2 else f"{stem}_{n}_rest"
                s = s.split(loop, size, names=[made[n], rest], tail=tail)
                loop = rest
        parts[axis] = {}
        for size, name in zip(chain, made, strict=True):
            parts[axis].setdefault(size, []).append(name)
    return s, [parts[row.axis][row.size].pop(0) for row in rows]


def fused(s: Schedule, names: Sequence[str]) -> tuple[Schedule, str]:
    """Neighbouring loops, the outermost one first, as one."""
    first, *more = names
    for loop in more:
        name, taken = f"{first}_{loop}"[:_LONGEST], {x for block in s.blocks() for x in s.loops(block)}
        while name in taken:
            name += "x"
        s = s.fuse(first, loop, names=[name])
        first = name
    return s, first


def end_of(s: Schedule, loop: str, left: int, size: int) -> list[int]:
    """Where a loop ends that has iterations for more than is left; nothing where it has not."""
    at, count = s.loop(loop), -(-left // size)
    if not (at.lo.is_const and at.hi.is_const):
        return []
    return [count] if count < at.hi.as_int() - at.lo.as_int() else []


def _fresh(s: Schedule, loop: str, count: int) -> str:
    """A stem of names for the parts of a loop that no loop has yet."""
    taken = {x for block in s.blocks() for x in s.loops(block)}
    while taken & {f"{loop}_{n}" for n in range(count)}:
        loop = f"{loop}x"
    return loop
