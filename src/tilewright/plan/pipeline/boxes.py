"""Boxes: the elements that one tile of a group's root needs of each producer, for many tiles at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.analysis import ARRAYS, Box, Span, extent_of
from tilewright.ir import Stage
from tilewright.plan.pipeline.group import Group

Numbers: TypeAlias = npt.NDArray[np.int64]


def boxes(g: Group, root: Box) -> dict[str, Box]:
    """What the instances ``root`` of the root's axes need of each stage of the group, the root included."""
    found = g.table.boxes(g.root.name, root, {m.name for m in g.members}, ARRAYS)
    return {
        name: tuple((np.atleast_1d(lo), np.atleast_1d(hi)) for lo, hi in box) for name, box in found.items()
    }


def loop_boxes(g: Group, name: str, box: Box, loops: int) -> dict[str, Box]:
    """What one iteration of a producer's first loops needs of the others, amid its instances ``box``."""
    stage = g.table.stages[name]
    part, sums = iteration(stage, box, loops)
    found = g.table.boxes(name, part, {m.name for m in g.members}, ARRAYS, sums)
    return {
        name: tuple((np.atleast_1d(lo), np.atleast_1d(hi)) for lo, hi in each) for name, each in found.items()
    }


def iteration(stage: Stage, box: Box, loops: int) -> tuple[Box, dict[str, Span]]:
    """One iteration of a stage's first loops amid its instances ``box``, and its iterators of sums there."""
    fixed = min(loops, len(box) - 1)
    at = tuple((lo + (hi - lo) // 2,) * 2 for lo, hi in box[:fixed])
    sums = [it for it in stage.iters if it.kind == "red"][: loops - fixed]
    return (*at, *box[fixed:]), {it.name: (it.lo.const + extent_of(it.extent) // 2,) * 2 for it in sums}


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
