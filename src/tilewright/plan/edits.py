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
    program, operations, seen = context.program, context.machine.on.operations, {nest.trees}
    extents = {
        st.name: {it.name: it.extent.as_int() if it.extent.is_const else 0 for it in st.iters}
        for st in program.stages
    }
    for n, tree in enumerate(nest.trees):
        for edit in tiling.neighbours(tree, extents):
            try:
                trees = (*nest.trees[:n], edit.of(tree), *nest.trees[n + 1 :])
                if trees in seen:
                    continue
                seen.add(trees)
                tiling.verify(trees, program, operations)
            except ScheduleError:
                continue
            yield edit, replace(nest, rule=EDITED, trees=trees, choice=None)
