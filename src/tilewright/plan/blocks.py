"""The rule of sums of blocks: sums within blocks stay in registers, where they are scaled and added up.

Products with weights of few bits, which have a scale for each block of a column's terms::

    parallel for panels of columns:
        for rows of a tile:
            for blocks:
                D[rows, columns] = sum of x * unpacked          # registers, all terms expanded
                Y[rows, columns] += scale * D                   # registers

What unpacks a weight is an expression of the inner sum: it is done once for all rows of a tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright import tiling
from tilewright.ir import F32, Binary, Program, Stage, stmt_exprs, stmt_loads, walk
from tilewright.plan.rule import Cluster, Context, Rule
from tilewright.plan.space import Space
from tilewright.tiling import Cut, Leaf, Place, Step, chain, sequence

MOST_ROWS: Final = 4
"""Rows of a tile: weights are unpacked once for them. In registers each has a vector or more of sums."""
MOST_TERMS: Final = 64
"""Terms of an inner sum that are expanded at once; of longer ones groups, in a loop."""


@dataclass(frozen=True, slots=True)
class BlocksPlan:
    """A tile of ``rows`` and ``columns``, sums of which are in registers."""

    rows: int
    columns: int


@dataclass(frozen=True, eq=False)
class BlocksProblem:
    """``outer`` adds up what ``inner`` sums within blocks; ``panel`` columns lie together."""

    context: Context
    outer: Stage
    inner: Stage
    panel: int


def find_blocks(program: Program, stage: Stage) -> tuple[Stage, int] | None:
    """The stage that sums within blocks what ``stage`` adds up, and the columns of a panel; None for others.

    The inner sum has iterators (row, panel, block, column of the panel; group, term), the outer one
    (row, column; block), and weights are unpacked by shifts.
    """
    if [it.kind for it in stage.iters] != ["par", "par", "red"]:
        return None
    for load in stmt_loads(stage.body):
        made = program.producers(load.buffer)
        if len(made) != 1 or made[0].name == stage.name or len(program.consumers(load.buffer)) != 1:
            continue
        (inner,) = made
        if [it.kind for it in inner.iters] != ["par"] * 4 + ["red"] * 2 or load.buffer in {
            b.name for b in program.outputs
        }:
            continue
        panel = inner.iters[3].extent
        shifts = any(
            isinstance(e, Binary) and e.op == "shr" for root in stmt_exprs(inner.body) for e in walk(root)
        )
        if panel.is_const and shifts:
            return inner, panel.as_int()
    return None


class BlocksRule(Rule[BlocksProblem, BlocksPlan]):
    """Sums of blocks, each a sum of unpacked numbers times others."""

    name = "blocks"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"blocks": BlocksPlan})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> BlocksProblem | None:
        """The two sums, if ``stages`` is the inner one."""
        stage = context.program.stage(root)
        found = find_blocks(context.program, stage)
        if found is None or stages != (found[0].name,):
            return None
        inner, panel = found
        return BlocksProblem(context, stage, inner, panel) if panel % self._lanes(context) == 0 else None

    @staticmethod
    def _lanes(context: Context) -> int:
        return context.machine.target.lanes(F32)

    def default(self, problem: BlocksProblem) -> BlocksPlan:
        """Half of the registers for sums: all columns of a panel for one row."""
        target = problem.context.machine.target
        extent = problem.outer.iters[0].extent
        rows = min(MOST_ROWS, extent.as_int()) if extent.is_const else MOST_ROWS
        vectors = max(1, target.vector_registers // 2 // rows)
        columns = self._lanes(problem.context)
        while columns * 2 <= min(problem.panel, vectors * self._lanes(problem.context)):
            columns *= 2
        return BlocksPlan(rows, columns)

    def space(self, problem: BlocksProblem) -> Space[BlocksPlan]:
        """Other tiles."""
        lanes, default = self._lanes(problem.context), self.default(problem)
        widths = tuple(n for n in (lanes, 2 * lanes, 4 * lanes) if problem.panel % n == 0)
        return Space(default, {"rows": tuple(range(1, MOST_ROWS + 3)), "columns": widths})

    def trees(self, problem: BlocksProblem, plan: BlocksPlan) -> tuple[tiling.Nest, ...]:
        """Tiles of rows and columns; the inner sum at each block, all of it in registers."""
        outer, inner = problem.outer, problem.inner
        i, n, b = (it.name for it in outer.iters)
        row, _, _, column, group, term = (it.name for it in inner.iters)
        rows = outer.iters[0].extent.as_int()
        groups, terms = (it.extent.as_int() for it in inner.iters[4:])
        sums = [
            Step(group, 1, "unroll" if groups * terms <= MOST_TERMS else "serial"),
            Step(term, 1, "unroll"),
        ]
        steps = [*sums, Step(row, 1, "unroll"), Step(column, 1, "vector")]
        made = Place(inner.name, "make", "register", chain(steps, Leaf(inner.name)))
        tile = chain([Step(i, 1, "unroll"), Step(n, 1, "vector")], Leaf(outer.name))
        added = chain([Step(b, 1)], sequence(made, tile))
        body = sequence(Place(outer.writes[0], "accumulate", "register", added, tile))
        if plan.columns < problem.panel:
            body = chain([Step(n, plan.columns)], body)
        if rows > plan.rows:
            # all tiles but the last have all rows
            body, whole = chain([Step(i, plan.rows)], body), rows // plan.rows * plan.rows
            body = Cut(i, (whole,), (body, body)) if whole < rows else body
        shared = problem.context.machine.threads > 1
        panels = Step(n, problem.panel, "parallel" if shared else "serial")
        return (tiling.Nest(outer.name, chain([panels], body)),)


def block_nests(context: Context) -> tuple[Cluster, ...]:
    """The nests of all sums of blocks in a program, each by its default plan."""
    rule, nests = BlocksRule(), []
    for stage in context.program.stages:
        found = find_blocks(context.program, stage)
        problem = None if found is None else rule.match(context, stage.name, (found[0].name,))
        if problem is not None:
            nests.append(Cluster(rule.name, stage.name, (problem.inner.name,), None))
    return tuple(nests)
