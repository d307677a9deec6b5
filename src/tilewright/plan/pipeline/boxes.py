"""Boxes: the elements that one tile of a group's root needs of each producer, for many tiles at once.

Nothing is lowered: ranges of indices follow from ranges of iterators, in numpy, for all candidates together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.ir import Atom, FloorDiv, Index, MinMax, Mod, Param, Stage, Var
from tilewright.plan.pipeline.group import Group, axes_of

Numbers: TypeAlias = npt.NDArray[np.int64]
#: First and last values, one of each a candidate.
Range: TypeAlias = tuple[Numbers, Numbers]
Box: TypeAlias = tuple[Range, ...]
#: Stands for no bound.
FAR: Final = 1 << 40


def boxes(g: Group, root: Box) -> dict[str, Box]:
    """What the instances ``root`` of the root's axes need of each stage of the group, the root included."""
    found: dict[str, Box] = {g.root.name: root}
    by_buffer = {m.writes[0]: m for m in g.members}
    for stage in reversed(g.stages):
        if stage.name not in found:
            continue
        env = environment(stage, found[stage.name])
        for ld in g.reads[stage.name]:
            member = by_buffer[ld.buffer]
            read = tuple(
                clipped(interval(i, env), n) for i, n in zip(ld.indices, axes_of(member), strict=True)
            )
            known = found.get(member.name)
            found[member.name] = read if known is None else union(known, read)
    return found


def environment(stage: Stage, box: Box) -> dict[str, Range]:
    """Ranges of a stage's iterators for a box of its result: those of sums take all values."""
    left = iter(box)
    zero = np.zeros(1, np.int64)
    return {
        it.name: next(left) if it.kind == "par" else (zero, zero + (it.extent.as_int() - 1))
        for it in stage.iters
    }


def union(a: Box, b: Box) -> Box:
    """The smallest box around two."""
    return tuple((np.minimum(x[0], y[0]), np.maximum(x[1], y[1])) for x, y in zip(a, b, strict=True))


def clipped(r: Range, extent: int) -> Range:
    """The part of a range that a dimension has."""
    return np.clip(r[0], 0, extent - 1), np.clip(r[1], 0, extent - 1)


def points(box: Box) -> Numbers:
    """Elements of boxes."""
    out: Any = np.ones(1, np.int64)
    for lo, hi in box:
        out = out * (hi - lo + 1)
    return np.asarray(out)


def whole(extents: Sequence[int]) -> Box:
    """All of some axes."""
    return tuple((np.zeros(1, np.int64), np.full(1, n - 1, np.int64)) for n in extents)


def middle(extents: Sequence[int], tiles: Sequence[Numbers | int]) -> Box:
    """A tile amid the result: of each axis so many elements, all of them where that is 0."""
    out = []
    for n, given in zip(extents, tiles, strict=True):
        size = np.atleast_1d(np.asarray(given, np.int64))
        size = np.where((size <= 0) | (size > n), n, size)
        first = (n // size) // 2 * size
        out.append((first, np.minimum(first + size, n) - 1))
    return tuple(out)


def interval(i: Index, env: Mapping[str, Range]) -> Range:
    """The least and the largest value of an index."""
    lo: Any = np.full(1, i.const, np.int64)
    hi: Any = lo
    for atom, c in i.terms:
        a, b = _atom(atom, env)
        lo, hi = (lo + c * a, hi + c * b) if c > 0 else (lo + c * b, hi + c * a)
    return lo, hi


def _atom(atom: Atom, env: Mapping[str, Range]) -> Range:
    far = np.full(1, FAR, np.int64)
    if isinstance(atom, Var):
        return env.get(atom.name, (-far, far))
    if isinstance(atom, FloorDiv):
        a, b = interval(atom.arg, env)
        return a // atom.divisor, b // atom.divisor
    if isinstance(atom, Mod):
        a, b = interval(atom.arg, env)
        same = a // atom.divisor == b // atom.divisor
        return np.where(same, a % atom.divisor, 0), np.where(same, b % atom.divisor, atom.divisor - 1)
    if isinstance(atom, MinMax):
        pick = np.minimum if atom.op == "min" else np.maximum
        found = [interval(each, env) for each in atom.args]
        lo, hi = found[0]
        for a, b in found[1:]:
            lo, hi = pick(lo, a), pick(hi, b)
        return lo, hi
    if isinstance(atom, Param):
        return np.full(1, atom.lo, np.int64), np.full(1, atom.hi, np.int64)
    return -far, far
