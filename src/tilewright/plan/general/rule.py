"""The rule of general reductions: register tiles for any term and any fold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import ClassVar, Final

from tilewright.analysis import pointwise_reader, reads_in_place
from tilewright.ir import Program, Stage
from tilewright.plan.contraction.match import panels_of
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.plan.general.nest import (
    GeneralPlan,
    Reduction,
    default_general,
    fits_registers,
    general_nest,
    match_reduction,
    strided_operands,
    tiles_of,
)
from tilewright.plan.rule import Asked, Cluster, Context, Rule
from tilewright.plan.space import Space
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import Target
from tilewright.tiling import Nest

#: Steps of a reduction for each element read or written, from which on register tiles pay.
REUSE: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class GeneralProblem:
    """A reduction of any term."""

    context: Context
    reduction: Reduction


class GeneralRule(Rule[GeneralProblem, GeneralPlan]):
    """Reductions that are no sums of two factors."""

    name = "general"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"tiles": GeneralPlan})

    def propose(self, asked: Asked) -> Iterable[Cluster]:
        """One nest for a reduction and its reader."""
        for stage in asked.roots:
            found = reduction_before(asked.program, stage, asked.context.machine.target)
            if found is not None and (found.stage is stage or asked.is_free(found.stage.name)):
                names = dict.fromkeys((*found.panels, found.stage.name, stage.name))
                each = tuple(Cluster("elementwise", name) for name in names)
                yield Cluster(self.name, stage.name, tuple(n for n in names if n != stage.name), each)

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> GeneralProblem | None:
        """The reduction that ``root`` is, or whose result it alone reads in place."""
        found = reduction_before(context.program, context.program.stage(root), context.machine.target)
        return None if found is None else GeneralProblem(context, found)

    def default(self, problem: GeneralProblem) -> GeneralPlan:
        """The register tile with the fewest cycles."""
        return default_general(problem.reduction, problem.context.machine)

    def space(self, problem: GeneralProblem) -> Space[GeneralPlan]:
        """All register tiles, in both orders, with every number of steps that divides the reduction."""
        default, r = self.default(problem), problem.reduction
        target = problem.context.machine.target
        tiles = tiles_of(r, problem.context.machine.with_threads(default.threads))
        steps = r.stage.extent(r.sums[-1])
        options: dict[str, tuple[object, ...]] = {
            "rows": tuple(dict.fromkeys((default.rows, *(plan.rows for plan in tiles)))),
            "vectors": tuple(dict.fromkeys((default.vectors, *(plan.vectors for plan in tiles)))),
            "unroll": tuple(dict.fromkeys((default.unroll, *(n for n in (1, 2, 4, 8) if steps % n == 0)))),
            "columns_inside": (False,) if r.panels else (False, True),
            "threads": tuple(dict.fromkeys((default.threads, 1))),
        }

        def refusal(plan: GeneralPlan) -> str:
            if plan != default and not fits_registers(r, plan, target):
                return f"{plan.accumulators} accumulators exceed the registers"
            return ""

        return Space(default, options, refusal)

    def trees(self, problem: GeneralProblem, plan: GeneralPlan) -> tuple[Nest, ...]:
        """Loops over register tiles."""
        context = problem.context
        return (general_nest(problem.reduction, plan, context.program, context.machine.target),)


def reduction_before(program: Program, last: Stage, target: Target) -> Reduction | None:
    """The general reduction that a stage is, or whose result it alone reads, element by element."""
    if last.is_reduction:
        reader = pointwise_reader(program, last)
        # with a reader that can share the nest, that one ends it
        return None if reader is not None else _reused(match_reduction(program, last, None, target), program)
    if any(it.kind == "ord" for it in last.iters):
        # its loops have an order of their own
        return None
    temps = {t.name for t in program.temps if t.layout is None}
    for name in last.reads:
        makers = program.producers(name)
        alone = len(makers) == 1 and program.consumers(name) == (last,) and name in temps
        if alone and makers[0].is_reduction and reads_in_place(last, name):
            return _reused(match_reduction(program, makers[0], last, target), program)
    return None


def _reused(r: Reduction | None, program: Program) -> Reduction | None:
    return r if r is not None and _is_reused(program, r.stage) else None


def gather_general(s: Schedule, target: Target) -> tuple[Schedule, frozenset[str]]:
    """Lay operands of general reductions out along their vectors, where elements are used often enough.

    Returns the names of those reductions, too.
    """
    found: set[str] = set()
    for name in [stage.name for stage in s.require_program().stages]:
        program = s.require_program()
        stage = program.stage(name)
        if not _is_reused(program, stage) or is_tileable(program, stage, target, packed=False) is not None:
            continue
        changed = s
        for n, ld in enumerate(strided_operands(program, stage)):
            now = changed.require_program().stage(name)
            vector = [it.name for it in now.iters if it.kind == "par"][-1]
            moved = {v for i in ld.indices for v in i.vars}
            axes = [it.name for it in now.iters if it.name in moved and it.name != vector]
            at = now.operands.index(ld)
            try:
                changed = changed.gather_operand(name, at, [*axes, vector], f"{panels_of(now)}{n or ''}")
            except ScheduleError:
                # no reduction for this rule; which one it is for, others say
                break
        else:
            made = changed.require_program()
            if match_reduction(made, made.stage(name), None, target) is not None:
                s = changed
                found.add(name)
    return s, frozenset(found)


def _is_reused(program: Program, stage: Stage) -> bool:
    """Whether a reduction has many more steps than it reads and writes elements."""
    if not stage.is_reduction or not all(it.extent.is_const for it in stage.iters):
        return False
    elements = 0
    for name in {*stage.reads, *stage.writes}:
        shape = program.buffer(name).shape
        if not all(e.is_const for e in shape):
            return False
        elements += prod(e.as_int() for e in shape)
    return prod(it.extent.as_int() for it in stage.iters) >= REUSE * elements
