"""Plans of contractions by register tiles: what they decide, and the default ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.analysis import Contraction, row_axis
from tilewright.cost import Machine
from tilewright.ir import Buffer, Program, Stage
from tilewright.plan.contraction.cache_blocking import RowBlock, choose_row_block
from tilewright.plan.contraction.instructions import InstructionUse, tile_of, use_of
from tilewright.plan.contraction.line_tiling import Beside, lines_beside
from tilewright.plan.contraction.microkernel import Turn, default_turn
from tilewright.plan.contraction.output_order import InOrder, shares_lines
from tilewright.plan.contraction.register_tiling import RegisterTile, choose_tile, vector_width
from tilewright.plan.contraction.sharing import shared_axis, sharing
from tilewright.plan.contraction.tile_order import bands_pass, columns_inside
from tilewright.plan.threads import is_balanced
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class TilePlan:
    """How a contraction is done by register tiles: what :mod:`.tiles` makes a tree of.

    A tile has ``rows`` results along the row axis and ``vectors`` vectors; where ``lines`` names another m
    axis, it takes so many neighbours along that one, too. ``threads`` share the result: evenly the axis
    ``shared``, or, if that is ``None``, the outer loops. ``block`` is an m axis and how much of it stays in
    cache while all panels of the other operand pass (``None``: no blocks). ``columns_inside`` says whether
    tiles follow one another along the vectors first. ``turn`` is that of the reduction's innermost loop
    (``None``: the default one); with ``prefetch`` what comes next is asked for where the machine's figures
    say that it pays. ``instruction`` does the products, and says how operands must lie for that
    (``None``: multiply-adds do).
    """

    rows: int
    vectors: int
    threads: int
    shared: str | None = None
    lines: tuple[str, int] | None = None
    block: tuple[str, int] | None = None
    columns_inside: bool = False
    turn: Turn | None = None
    prefetch: bool = True
    instruction: InstructionUse | None = None

    @property
    def tile_rows(self) -> int:
        """Rows of a tile along all of its axes."""
        return self.rows * (self.lines[1] if self.lines is not None else 1)


@dataclass(frozen=True, slots=True)
class TileProblem:
    """A contraction to be done by register tiles, and what is done together with it.

    ``epilogue`` is the stage that consumes the result point by point; ``outputs`` are the arguments that are
    written. ``panels`` names the stage that makes the operand ``b`` in the order in which it is read, tile
    by tile. A result that a copy puts ``in_order`` is copied part by part. ``rows`` makes the operand ``a``,
    in the loop over blocks of rows that stay in the second cache level, if there is one.
    An operand ``b`` that is ``copied`` for it is made by each thread that takes a part of an m axis.
    """

    c: Contraction
    epilogue: Stage | None
    outputs: tuple[Buffer, ...]
    panels: str | None = None
    in_order: InOrder | None = None
    rows: Stage | None = None
    copied: bool = False

    @property
    def last(self) -> Stage:
        """The stage whose loops are tiled."""
        return self.epilogue or self.c.stage


def default_tiles(p: TileProblem, machine: Machine) -> TilePlan:
    """The tile with the fewest cycles, and the order of tiles that reads least from afar.

    Where the m axes divide evenly, each thread takes a part of them: kernels one after another then find on
    their own core what they wrote there, and only weights go to all. Otherwise threads share the outer loops,
    and also where two of them would write to the same lines of a result that is put in order.
    """
    target = machine.target
    c = p.c
    machine = sharing(p.c.stage, machine)
    chosen = choose_tile(c, target)
    columns = chosen.vectors * vector_width(c, target)
    cut = shared_axis(c, chosen, machine, p.copied)
    if p.in_order is not None and cut is not None:
        even = c.extent(c.vector) % (columns * machine.threads) == 0
        position = [i.as_var() for i in c.write.indices].index(cut)
        if even and shares_lines(p.in_order, position, machine):
            cut = None
    lines = None
    if p.panels is None and p.in_order is None:
        shared = math.prod(c.extent(a) for a in c.axes("batch", "n") if a != c.vector)
        shared *= -(-c.extent(c.vector) // columns)
        balanced = cut is not None or is_balanced(shared, machine.threads)
        lines = lines_beside(c, chosen, machine, cut, balanced)
    block = None
    if p.panels is None:
        row = row_axis(c)
        tiled = {} if row is None else {row: chosen.rows}
        tiled |= {} if lines is None else {lines.axis: lines.count}
        block = choose_row_block(c, machine, tiled, columns, cut, _owns_rows(p, cut, machine.threads))
    plan = _plan(p, machine, chosen, cut, lines, block)
    if tile_of(c) is not None:
        return plan
    return replace(plan, turn=default_turn(c, replace(chosen, rows=plan.tile_rows), target))


def inner_tiles(c: Contraction, epilogue: Stage | None, program: Program, target: Target) -> TilePlan:
    """The tiles of a contraction inside another nest: one thread, no blocks."""
    return _plan(TileProblem(c, epilogue, program.outputs), Machine(target, 1), choose_tile(c, target))


def _plan(
    p: TileProblem,
    machine: Machine,
    chosen: RegisterTile,
    cut: str | None = None,
    lines: Beside | None = None,
    block: RowBlock | None = None,
) -> TilePlan:
    inside = columns_inside(p.c, p.last, p.outputs, machine.target)
    if p.panels is None and p.in_order is None:
        inside = inside or bands_pass(p.c, chosen, machine.target)
    return TilePlan(
        chosen.rows,
        chosen.vectors,
        machine.threads,
        cut,
        None if lines is None else (lines.axis, lines.count),
        None if block is None else (block.axis, block.size),
        inside,
        instruction=use_of(p.c),
    )


def _owns_rows(p: TileProblem, cut: str | None, threads: int) -> bool:
    """Whether rows of ``a`` are made for this contraction, and one thread alone uses those of a block."""
    return p.rows is not None and (cut is not None or threads == 1)
