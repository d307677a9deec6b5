"""What one edit makes of the trees of a nest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright import tiling
from tilewright.plan.rule import Context, Nest
from tilewright.plan.unit import EDITED
from tilewright.support import ScheduleError


def edited(context: Context, nest: Nest) -> Iterator[tuple[tiling.Edit, Nest]]:
    """The nests that one edit makes of a nest, each with the edit; none twice, and none that is refused.

    ``context`` is that of the program for which the trees are.
    """
    seen = {nest.trees}
    for at, tree in enumerate(nest.trees):
        for edit in tiling.neighbours(tree, context.extents):
            try:
                made = edit_nest(context, nest, at, edit)
            except ScheduleError:
                continue
            if made.trees not in seen:
                seen.add(made.trees)
                yield edit, made


def edit_nest(context: Context, nest: Nest, at: int, edit: tiling.Edit) -> Nest:
    """A nest with an edit of its tree number ``at``.

    Raises ScheduleError where that is no tree of the program.
    """
    trees = (*nest.trees[:at], edit.of(nest.trees[at]), *nest.trees[at + 1 :])
    tiling.verify(trees, context.program, context.machine.on.operations)
    return replace(nest, rule=EDITED, trees=trees, choice=None)
