"""The rule of contractions: register tiles, and the nests of products that memory, not products, decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias

from tilewright import tiling
from tilewright.analysis import Contraction, row_axis
from tilewright.ir import Program, Stage
from tilewright.plan.contraction.gemm import GemmPlan, gemm_nest, is_large_product, plan_gemm
from tilewright.plan.contraction.gemv import GemvPlan, gemv_nest, is_stream, plan_gemv
from tilewright.plan.contraction.instructions import tile_of, use_of
from tilewright.plan.contraction.match import contraction_before, contraction_of, panels_before
from tilewright.plan.contraction.microkernel import Turn, innermost_of, is_expanded
from tilewright.plan.contraction.nest import TilePlan, TileProblem, default_tiles
from tilewright.plan.contraction.output_order import InOrder, find_in_order
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.register_tiling import (
    MAX_ROWS,
    is_tileable,
    rows_in_registers,
    vector_width,
)
from tilewright.plan.contraction.sharing import shared_axes
from tilewright.plan.contraction.skinny_gemm import SkinnyPlan, is_wide, plan_skinny, skinny_nest
from tilewright.plan.contraction.split_k import SplitKPlan, is_deep, plan_split_k, split_k_nest
from tilewright.plan.contraction.tiles import tiles_nests
from tilewright.plan.elementwise.nest import elementwise_nest
from tilewright.plan.elementwise.panels import is_copy
from tilewright.plan.rule import Asked, Cluster, Context, Rule
from tilewright.plan.space import Space
from tilewright.schedule import with_layout
from tilewright.support import ScheduleError

#: Blocks of rows that a search tries also where they do not divide: multiples of usual tiles.
UNEVEN: Final = (8, 12, 24, 28, 48, 56, 96, 112, 192, 256)
#: Lines of a tile that a search tries.
LINES: Final = (2, 3, 4)

ContractionPlan: TypeAlias = TilePlan | GemmPlan | SkinnyPlan | SplitKPlan | GemvPlan


@dataclass(frozen=True, eq=False)
class ContractionProblem:
    """A contraction ``c`` as it stands, and the stages that go with it.

    ``epilogue`` consumes its result point by point, ``ordered`` is the copy that puts it in order, ``panels``
    the stage that makes its operand ``b`` in the order in which it is read.
    """

    context: Context
    c: Contraction
    epilogue: Stage | None
    ordered: InOrder | None
    panels: str | None

    @property
    def program(self) -> Program:
        """The program around it."""
        return self.context.program

    @property
    def alone(self) -> bool:
        """Whether nothing but an epilogue goes with it."""
        return self.ordered is None and self.panels is None

    @property
    def last(self) -> Stage:
        """The stage that ends the nest."""
        return self.ordered.copy if self.ordered is not None else self.epilogue or self.c.stage

    def layout(self, vectors: int | None = None) -> tuple[str, tuple[str, ...]] | None:
        """The constant operand and its layout in panels of so many vectors; ``None``: it keeps its own."""
        target = self.context.machine.target
        return panel_layout(self.program, self.c, target, self.context.constants, vectors)

    def tiles(self, vectors: int | None = None) -> TileProblem:
        """The problem with the constant operand in panels. Raises ScheduleError where no tile reads those."""
        return self.laid_out(vectors)[0]

    def laid_out(self, vectors: int | None = None) -> tuple[TileProblem, Program]:
        """:meth:`tiles`, and the program with the constant operand in panels."""
        target, program, c = self.context.machine.target, self.program, self.c
        packed = self.layout(vectors)
        if packed is not None:
            buffer, layout = packed
            inputs = (with_layout(b, layout) if b.name == buffer else b for b in program.inputs)
            program = replace(program, inputs=tuple(inputs))
            found = is_tileable(program, c.stage, target, self.epilogue)
            if found is None:
                raise ScheduleError(f"the layout of {buffer} leaves {c.stage.name} without a register tile")
            c = found
        panels = None if packed is not None else self.panels
        rows = _rows_maker(program, c, self.ordered)
        copied = _is_copied(program, c)
        return TileProblem(c, self.epilogue, program.outputs, panels, self.ordered, rows, copied), program


class ContractionRule(Rule[ContractionProblem, ContractionPlan]):
    """Sums of products of two operands, of one (pooling), and depthwise ones."""

    name = "contraction"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType(
        {
            "tiles": TilePlan,
            "gemm": GemmPlan,
            "skinny_gemm": SkinnyPlan,
            "split_k": SplitKPlan,
            "gemv": GemvPlan,
        }
    )

    def propose(self, asked: Asked) -> Iterable[Cluster]:
        """A contraction with the stage that alone reads it, and the copy that puts the result in order."""
        program, target = asked.program, asked.context.machine.target
        for stage in asked.roots:
            ordered = find_in_order(program, stage, target)
            if ordered is not None and asked.is_free(ordered.last.name):
                made = contraction_of(program, ordered.last, target)
                if made is not None:
                    inner = _cluster(program, made.stage, ordered.last)
                    stages = [n for n in (*inner.stages, inner.root) if n != stage.name]
                    alone = Cluster("elementwise", stage.name)
                    yield Cluster(self.name, stage.name, tuple(stages), (inner, alone))
                    continue
            found = None if stage.is_reduction else contraction_before(program, stage, target)
            if found is not None:
                yield _cluster(program, found.stage, stage)
            elif is_tileable(program, stage, target, packed=False) is not None:
                yield _cluster(program, stage, stage)

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> ContractionProblem | None:
        """The contraction that ends with ``root``: itself, what it reads in place or puts in order."""
        program, target = context.program, context.machine.target
        stage = program.stage(root)
        ordered = find_in_order(program, stage, target)
        if ordered is not None and ordered.last.name in stages:
            made = contraction_of(program, ordered.last, target)
            return None if made is None else self._problem(context, made, ordered.last, ordered)
        if not stage.is_reduction:
            found = contraction_before(program, stage, target)
            return None if found is None else self._problem(context, found, stage)
        found = is_tileable(program, stage, target, packed=False)
        return None if found is None else self._problem(context, found, stage)

    def _problem(
        self, context: Context, c: Contraction, last: Stage, ordered: InOrder | None = None
    ) -> ContractionProblem:
        epilogue = None if last is c.stage else last
        return ContractionProblem(context, c, epilogue, ordered, panels_before(context.program, c.stage))

    def default(self, problem: ContractionProblem) -> ContractionPlan:
        """Register tiles, unless memory decides: then the nest that reads what is large once."""
        special = None if problem.layout() is not None or not problem.alone else self._special(problem)
        return default_tiles(problem.tiles(), problem.context.machine) if special is None else special

    def _special(self, problem: ContractionProblem) -> ContractionPlan | None:
        program, c, constants = problem.program, problem.c, problem.context.constants
        target = problem.context.machine.target
        wide = is_wide(program, c, problem.context.machine, constants)
        if not wide and is_large_product(program, c, problem.context.machine, constants):
            return plan_gemm(c, problem.context.machine, problem.epilogue)
        if is_deep(program, c, problem.context.machine, constants):
            return plan_split_k(c, target)
        if wide:
            return plan_skinny(c, target)
        if is_stream(program, c, problem.context.machine, constants):
            return plan_gemv(program, c, problem.context.machine)
        return None

    def space(self, problem: ContractionProblem) -> Space[ContractionPlan]:
        """Register tiles of every shape that registers hold, in every order; the special nest that fits."""
        default = self.default(problem)
        target = problem.context.machine.target
        c = problem.tiles().c
        if use_of(c) is not None:
            # the instruction decides about tiles, not about their order
            if tile_of(c) is None or not isinstance(default, TilePlan) or problem.ordered is not None:
                return Space(default)
            inside = default.columns_inside
            return Space(default, {"columns_inside": (inside, not inside)})
        tiles = (
            default
            if isinstance(default, TilePlan)
            else default_tiles(problem.tiles(), problem.context.machine)
        )
        row, width = row_axis(c), vector_width(c, target)
        broadcast = c.vector in c.axes("n")
        whole = -(-c.extent(c.vector) // width)
        most = 1 if row is None else min(MAX_ROWS, c.extent(row))
        counts = tuple(v for v in ((1, 2, 3, 4) if broadcast else (1, 2)) if v <= whole)
        if c.run is not None:
            counts = tuple(v for v in counts if whole % v == 0)
        if c.group is not None:
            counts = tuple(v for v in counts if c.group % (v * width) == 0)
        rows = (tiles.rows,) if c.rows is not None else tuple(range(1, most + 1))
        turns: tuple[Turn | None, ...] = (tiles.turn,)
        if tiles.turn is not None and not is_expanded(c):
            steps = innermost_of(c, 1).steps
            turns = tuple(replace(tiles.turn, unroll=n) for n in (1, 2, 4, 8) if steps % n == 0)
            turns = tuple(dict.fromkeys((tiles.turn, *turns)))
        blocks = (None, *_row_blocks(c)) if problem.alone and c.b is not None and c.group is None else ()
        options: dict[str, tuple[object, ...]] = {
            "rows": tuple(dict.fromkeys((tiles.rows, *rows))),
            "vectors": tuple(dict.fromkeys((tiles.vectors, *counts))),
            "shared": tuple(dict.fromkeys((tiles.shared, None, *shared_axes(c, problem.context.machine)))),
            "lines": tuple(dict.fromkeys((tiles.lines, None, *(_lines(c) if problem.alone else ())))),
            "block": tuple(dict.fromkeys((tiles.block, *blocks))),
            "columns_inside": (tiles.columns_inside, not tiles.columns_inside),
            "turn": turns,
            "prefetch": (True, False),
        }
        if problem.ordered is not None:
            # what makes parts for the copy is decided by these
            options |= {"shared": (tiles.shared,), "block": (tiles.block,)}
            options |= {"columns_inside": (tiles.columns_inside,), "vectors": (tiles.vectors,)}

        def refusal(plan: ContractionPlan) -> str:
            if not isinstance(plan, TilePlan) or plan == tiles:
                return ""
            if plan.tile_rows > max(1, rows_in_registers(target, plan.vectors, broadcast)):
                return f"a tile of {plan.tile_rows}x{plan.vectors} vectors exceeds the registers"
            beside = {} if plan.lines is None else dict([plan.lines])
            step = plan.rows if plan.shared == row else beside.get(plan.shared or "", 1)
            if plan.shared is not None and c.extent(plan.shared) % (max(1, plan.threads) * step):
                return f"{plan.shared} cannot be shared evenly by {plan.threads} threads"
            if plan.block is not None:
                axis, size = plan.block
                own = c.extent(axis) // (plan.threads if axis == plan.shared else 1)
                unit = plan.rows if axis == row else beside.get(axis, 1)
                if size >= own or size % unit:
                    return f"blocks of {size} of {own} steps of {axis} have no tiles of {unit}"
                if own % size and (axis == plan.shared or beside):
                    return f"blocks of {size} do not divide {own} steps of {axis}"
            return ""

        others = () if default is tiles else (default,)
        return Space(tiles, options, refusal, others)

    def trees(self, problem: ContractionProblem, plan: ContractionPlan) -> tuple[tiling.Nest, ...]:
        """The nest; an epilogue of a special nest is one of its own."""
        c, epilogue, machine = problem.c, problem.epilogue, problem.context.machine
        if isinstance(plan, TilePlan):
            tiles, program = problem.laid_out(plan.vectors)
            return tiles_nests(tiles, plan, program, machine.target, problem.layout(plan.vectors))
        if isinstance(plan, GemmPlan):
            return (gemm_nest(c, epilogue, plan, machine),)
        if isinstance(plan, SplitKPlan):
            nest = split_k_nest(c, plan, machine)
        elif isinstance(plan, SkinnyPlan):
            nest = skinny_nest(c, plan, machine)
        else:
            nest = gemv_nest(c, plan, machine)
        after = None if epilogue is None else elementwise_nest(problem.program, epilogue, machine)
        return (nest,) if after is None else (nest, after)


def _is_copied(program: Program, c: Contraction) -> bool:
    """Whether the operand ``b`` of a product by matrices is a copy that is made for it alone."""
    if c.b is None or tile_of(c) is None or program.consumers(c.b.buffer) != (c.stage,):
        return False
    makers = program.producers(c.b.buffer)
    return len(makers) == 1 and is_copy(makers[0])


def _row_blocks(c: Contraction) -> list[tuple[str, int]]:
    """Blocks of the m axes: all divisors of their extents, and sizes that leave a smaller block."""
    axes = [a for a in c.axes("m") if a != c.vector and c.extent(a) > 1]
    return [(a, n) for a in axes for n in range(2, c.extent(a)) if c.extent(a) % n == 0 or n in UNEVEN]


def _lines(c: Contraction) -> list[tuple[str, int]]:
    """Neighbours along a second m axis that a tile may have, where no padding meets these."""
    row, met = row_axis(c), {v for cond in c.guard for v in cond.vars}
    if c.b is None or row is None or c.vector in c.axes("batch") or c.group or c.rows:
        return []
    axes = [a for a in c.axes("m") if a not in (row, c.vector) and a not in met]
    return [(a, n) for a in axes for n in LINES if n < c.extent(a)]


def _rows_maker(program: Program, c: Contraction, ordered: InOrder | None) -> Stage | None:
    """What makes the operand ``a`` of a product of matrices; ``None`` where it stays apart.

    Only of products: of windows neighbouring blocks share rows.
    """
    makers = program.producers(c.a.buffer)
    windows = [axis for axis in c.axes("window") if c.extent(axis) > 1]
    if ordered is not None or windows or tile_of(c) is None or len(makers) != 1 or makers[0].is_reduction:
        return None
    return makers[0] if program.consumers(c.a.buffer) == (c.stage,) else None


def _cluster(program: Program, stage: Stage, last: Stage) -> Cluster:
    """The nest of a contraction and the stage that ends it; its operand's panels are made in it."""
    names = (panels_before(program, stage), stage.name)
    stages = [name for name in names if name is not None and name != last.name]
    each = (Cluster("elementwise", name) for name in dict.fromkeys((stage.name, last.name)))
    return Cluster(ContractionRule.name, last.name, tuple(stages), tuple(each))
