"""Schedule trees as candidates: Algorithms 1 to 3 on exact sets, carried out by ``import_tree``.

Plans of groups place producers as boxes of their consumers' tiles; where what tiles need is no box, or
several results share a producer in parts, only exact sets say so. Reading and judging a tree takes seconds
where there are many stages: these candidates come last, and of small programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from tilewright.ir import For, locate
from tilewright.poly import (
    Dependences,
    Space,
    bounded,
    compose,
    conservative_fusion,
    extract_model,
    fuse,
)
from tilewright.schedule import Schedule, Trace
from tilewright.strategies.search import Task
from tilewright.support import ProgramError, ResourceError, ScheduleError

STAGES: Final = 12
"""Most stages of a program: the judge takes a second for so many."""
TILES: Final = ((32, 256), (64, 512), (16, 128), (8, 64))
"""Sizes of tiles that are tried."""


def tree_candidates(task: Task, inlined: Sequence[str]) -> Iterator[Trace]:
    """Traces of the program with some stages inlined, one for each size of tiles that fuses something."""
    s = Schedule(task.program)
    for name in inlined:
        s = s.inline_stage(name)
    stages = [stage.name for stage in s.require_program().stages]
    if not 2 <= len(stages) <= STAGES or s.func.params:
        return
    what = f"trees of {s.func.name} are too much for isl"

    def begun() -> tuple[Dependences, list[Space]]:
        dependences = Dependences(extract_model(s.func))
        return dependences, conservative_fusion(dependences)

    def tree(sizes: Sequence[int]) -> str:
        groups = compose(dependences, spaces, sizes)
        return str(fuse(dependences.model, groups)) if any(g.producers for g in groups) else ""

    try:
        dependences, spaces = bounded(begun, what)
        for sizes in TILES:
            text = bounded(partial(tree, sizes), what)
            if text:
                yield _in_lanes(s.import_tree(stages, text)).trace
    except (ScheduleError, ProgramError, ResourceError):
        # what has no exact sets, or needs too many operations, has no such candidates
        return


def _in_lanes(s: Schedule) -> Schedule:
    """Innermost loops as vectors, where the primitive allows that."""
    for loop in [place.node for place in locate(s.func.body, For)]:
        if next(locate(loop.body, For), None) is None:
            try:
                s = s.vectorize(loop.var)
            except ScheduleError:
                # its statements wait for each other, or move along columns
                continue
    return s
