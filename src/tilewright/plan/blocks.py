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

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright import tiling
from tilewright.ir import F32, Binary, Index, Program, Stage, stmt_exprs, stmt_loads, walk
from tilewright.plan.rule import Cluster, Context, Rule
from tilewright.plan.space import Space
from tilewright.target import Instruction, Target
from tilewright.tiling import Cut, Leaf, Place, Step, chain, sequence

MOST_ROWS: Final = 4
"""Rows of a tile: weights are unpacked once for them. In registers each has a vector or more of sums."""
MOST_ROWS_OF_DOTS: Final = 6
"""The same of dots. Granite Rapids, 48x1024x1024, 4 bits, one thread, us by tiles of 4, 6 and 8 rows of 32
columns: 298, 268, 273; of 6, 8, 12 and 16 rows of 16 columns 297, 290, 285, 288."""
BYTES_AHEAD: Final = 4096
"""Bytes ahead of which dots ask for weights, into the second cache level. Granite Rapids, 4 bits, one thread,
us without and with 2, 4, 8 and 16 KiB: 4096x4096 by one row from memory 1022, 821, 817, 771, 760, from the
third level 921, 659, 604, 657, 630; 2048x2048 by four rows 177, 146, 153, 152, 153. Where more tiles of rows
follow, which find the panel near, it costs nothing: 1024x1024 by 96 rows 514 without, 492 with 4 KiB."""
MOST_TERMS: Final = 64
"""Terms of an inner sum that are expanded at once; of longer ones groups, in a loop."""


@dataclass(frozen=True, slots=True)
class BlocksPlan:
    """A tile of ``rows`` and ``columns``, sums of which are in registers."""

    rows: int
    columns: int


@dataclass(frozen=True, eq=False)
class BlocksProblem:
    """``outer`` adds up what ``inner`` sums within blocks; ``panel`` columns lie together.

    ``unpack`` makes the bytes that ``instruction`` sums products of: without one multiply-adds do.
    """

    context: Context
    outer: Stage
    inner: Stage
    panel: int
    unpack: Stage | None = None
    instruction: Instruction | None = None

    @property
    def stages(self) -> tuple[str, ...]:
        """What is made for the root, in the program's order."""
        return tuple(stage.name for stage in (self.unpack, self.inner) if stage is not None)


def find_blocks(context: Context, stage: Stage) -> BlocksProblem | None:
    """What ``stage`` adds up, if it is sums within blocks; None for others.

    The inner sum has iterators (row, panel, block, column of the panel; terms), the outer one (row, column;
    block), and weights are unpacked by shifts: in the inner sum itself, whose terms are groups and numbers of
    a word, or by a stage that only it reads, which has bytes of unsigned numbers for an instruction.
    """
    program = context.program
    if [it.kind for it in stage.iters] != ["par", "par", "red"]:
        return None
    for load in stmt_loads(stage.body):
        inner = _only_for(program, load.buffer, stage)
        kinds = [it.kind for it in inner.iters] if inner is not None else []
        if inner is None or kinds[:4] != ["par"] * 4 or kinds[4:] not in (["red"] * 2, ["red"] * 3):
            continue
        panel = inner.iters[3].extent
        if not panel.is_const:
            continue
        if len(kinds) == 6 and _shifts(inner):
            return BlocksProblem(context, stage, inner, panel.as_int())
        column = inner.iters[3].name
        weights = (ld.buffer for ld in stmt_loads(inner.body) if column in ld.indices[-1].vars)
        made = (_only_for(program, name, inner) for name in weights)
        unpack = next((each for each in made if each is not None), None)
        row = _dot(context.machine.target, inner)
        if unpack is not None and row is not None:
            return BlocksProblem(context, stage, inner, panel.as_int(), unpack, row)
    return None


def _only_for(program: Program, buffer: str, reader: Stage) -> Stage | None:
    """The stage that makes a buffer which ``reader`` alone reads."""
    made = program.producers(buffer)
    alone = len(made) == 1 and made[0] is not reader and program.consumers(buffer) == (reader,)
    return made[0] if alone and buffer not in {b.name for b in program.outputs} else None


def _shifts(stage: Stage) -> bool:
    return any(isinstance(e, Binary) and e.op == "shr" for root in stmt_exprs(stage.body) for e in walk(root))


def _dot(target: Target, inner: Stage) -> Instruction | None:
    """The instruction that sums products along the last axis, lane by lane."""
    types = {ld.dtype for ld in stmt_loads(inner.body)}
    for row in target.instructions:
        if len(row.lanes) == len(row.inner_axes) == 1 and row.is_contraction:
            fits = {row.a.dtype, row.b.dtype, row.result.dtype} == types
            if fits and inner.iters[-1].extent == Index(row.depth):
                return row
    return None


class BlocksRule(Rule[BlocksProblem, BlocksPlan]):
    """Sums of blocks, each a sum of unpacked numbers times others."""

    name = "blocks"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"blocks": BlocksPlan})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> BlocksProblem | None:
        """The two sums, if ``stages`` is the inner one, after what unpacks for it."""
        found = find_blocks(context, context.program.stage(root))
        fits = found is not None and stages == found.stages and found.panel % self._lanes(context) == 0
        return found if fits else None

    @staticmethod
    def _lanes(context: Context) -> int:
        return context.machine.target.lanes(F32)

    def default(self, problem: BlocksProblem) -> BlocksPlan:
        """Half of the registers for sums: all columns of a panel for one row."""
        target = problem.context.machine.target
        extent = problem.outer.iters[0].extent
        most = MOST_ROWS if problem.instruction is None else MOST_ROWS_OF_DOTS
        rows = min(most, extent.as_int()) if extent.is_const else most
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
        outer, inner, row = problem.outer, problem.inner, problem.instruction
        i, n, b = (it.name for it in outer.iters)
        line, _, _, column, *terms = (it.name for it in inner.iters)
        rows = outer.iters[0].extent.as_int()
        counts = [it.extent.as_int() for it in inner.iters[4:]]
        if row is not None:
            counts[-1] = 1
        sums = [Step(axis, 1, "unroll") for axis in terms]
        if math.prod(counts) > MOST_TERMS:
            sums[0] = Step(terms[0], 1)
        lanes = [Step(column, 1, "vector")]
        if row is None or problem.unpack is None:
            nest = chain([*sums, Step(line, 1, "unroll"), *lanes], Leaf(inner.name))
        else:
            # registers of bytes have as many columns as those of sums
            width = self._lanes(problem.context)
            lanes = [Step(column, width, "unroll"), *lanes, Step(terms[-1], 1)]
            dots = chain([Step(line, 1, "unroll"), *lanes], Leaf(inner.name, row.name))
            bytes_ = problem.unpack.iters[-1].name
            apart = [Step(bytes_, width * row.depth, "unroll"), Step(bytes_, 1, "vector")]
            made = Place(problem.unpack.name, "make", "register", chain(apart, Leaf(problem.unpack.name)))
            nest = chain(sums[:-1], sequence(made, dots))
        made = Place(inner.name, "make", "register", nest)
        tile = chain([Step(i, 1, "unroll"), Step(n, 1, "vector")], Leaf(outer.name))
        blocks = Step(b, 1)
        if problem.unpack is not None:
            words = next(ld.buffer for ld in stmt_loads(problem.unpack.body))
            blocks.hint("prefetch", f"{words}+{BYTES_AHEAD}")
        added = chain([blocks], sequence(made, tile))
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
        found = find_blocks(context, stage)
        if found is not None and rule.match(context, stage.name, found.stages) is not None:
            nests.append(Cluster(rule.name, stage.name, found.stages, None))
    return tuple(nests)
