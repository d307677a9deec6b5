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

from tilewright.ir import F32, Binary, Program, Stage, stmt_exprs, stmt_loads, walk
from tilewright.plan.rule import Context, Nest, Rule
from tilewright.plan.space import Space
from tilewright.schedule import Schedule

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

    def build(self, s: Schedule, problem: BlocksProblem, plan: BlocksPlan) -> Schedule:
        """Tiles of rows and columns; the inner sum at each block, all of it in registers."""
        root, inner = problem.outer.name, problem.inner.name
        i, n, b = s.loops(root)
        outside: list[str] = []

        def split(loop: str, size: int) -> tuple[Schedule, str, str]:
            made = s.split(loop, size)
            new = [name for name in made.loops(root) if name not in s.loops(root)]
            return made, new[0], new[1]

        s, panel, n = split(n, problem.panel)
        outside.append(panel)
        extent = problem.outer.iters[0].extent
        cut = not extent.is_const or extent.as_int() > plan.rows
        if cut:
            s, tile, i = split(i, plan.rows)
            outside.append(tile)
        if plan.columns < problem.panel:
            s, part, n = split(n, plan.columns)
            outside.append(part)
        s = s.reorder(*outside, b, i, n)
        s = s.cache(root, outside[-1], mode="accumulate", scope="register", name=f"{root}_sums")
        s = s.compute_at(inner, b)
        rows, _, _, lanes, group, term = (name for name in s.loops(inner) if name not in {*outside, b})
        s = s.reorder(group, term, rows, lanes).decompose_init(inner, group)
        groups, terms = (it.extent.as_int() for it in problem.inner.iters[4:])
        if groups * terms <= MOST_TERMS:
            s = s.unroll(group)
        s = s.unroll(term).unroll(rows).vectorize(lanes).set_scope(inner, "register")
        for block in s.blocks():
            if block == f"{inner}_init" or block.startswith(f"{root}_sums"):
                *others, last = (name for name in s.loops(block) if name not in {*outside, b})
                for name in others:
                    s = s.unroll(name)
                s = s.vectorize(last)
        s = s.unroll(i).vectorize(n)
        if cut and not (extent.is_const and extent.as_int() % plan.rows == 0):
            # all tiles but the last have all rows
            s = s.partition(tile, -1)
        return s.parallel(panel) if problem.context.machine.threads > 1 else s


def block_nests(context: Context) -> tuple[Nest, ...]:
    """The nests of all sums of blocks in a program, each by its default plan."""
    rule, nests = BlocksRule(), []
    for stage in context.program.stages:
        found = find_blocks(context.program, stage)
        problem = None if found is None else rule.match(context, stage.name, (found[0].name,))
        if problem is not None:
            nests.append(Nest(rule.name, stage.name, (problem.inner.name,), rule.default(problem)))
    return tuple(nests)
