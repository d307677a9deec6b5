"""The rule of fused contractions: a whole program that is a chain of them as one nest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, TypeAlias

from tilewright.plan.contraction.gather import gather_operands
from tilewright.plan.fused.bands import Band, find_band
from tilewright.plan.fused.chain import Chain, find_chain
from tilewright.plan.fused.nests import Prepared, band_nests, prepare_bands, row_chain_nests
from tilewright.plan.rule import Context, Rule
from tilewright.plan.space import Space
from tilewright.schedule import Schedule, Step
from tilewright.support import ScheduleError
from tilewright.tiling import Nest


@dataclass(frozen=True, slots=True)
class BandPlan:
    """Bands of ``rows`` of the last result; threads share ``parts`` of the channels that it sums over."""

    rows: int
    parts: int = 1


@dataclass(frozen=True, slots=True)
class RowChainPlan:
    """Whole rows between two contractions, in tiles of as many rows as registers hold."""


FusedPlan: TypeAlias = BandPlan | RowChainPlan


@dataclass(frozen=True, slots=True, eq=False)
class FusedProblem:
    """A chain, and what is best for it."""

    context: Context
    chain: Chain | None
    band: Band | None


class FusedRule(Rule[FusedProblem, FusedPlan]):
    """Each contraction reads the one before: producers at a tile of the last result."""

    name = "fused"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"bands": BandPlan, "rows": RowChainPlan})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> FusedProblem:
        """The whole program; whether its rows are a chain is seen once their operands are gathered."""
        machine = context.machine
        found = find_band(context.program, machine)
        chain = find_chain(context.program, machine.target) if found is None else found[0]
        return FusedProblem(context, chain, None if found is None else found[1])

    def default(self, problem: FusedProblem) -> FusedPlan:
        """The bands that save most."""
        band = problem.band
        return RowChainPlan() if band is None else BandPlan(band.rows, band.parts)

    def space(self, problem: FusedProblem) -> Space[FusedPlan]:
        """Bands of any number of rows that divides the last result's."""
        default = self.default(problem)
        if not isinstance(default, BandPlan) or problem.chain is None:
            return Space(default)
        tail = problem.chain.links[-1]
        rows = tail.c.extent(tail.axis)
        fits = [n for n in range(1, rows + 1) if rows % n == 0]
        return Space(default, {"rows": tuple(dict.fromkeys((default.rows, *fits)))})

    def steps(self, problem: FusedProblem, plan: FusedPlan) -> tuple[Step, ...]:
        """Sums in parts, or operands in order."""
        if isinstance(plan, BandPlan):
            return _bands(problem, plan).s.trace.steps
        return _gathered(problem).trace.steps

    def trees(self, problem: FusedProblem, plan: FusedPlan) -> tuple[Nest, ...]:
        """One nest, and that of sums in parts. Raises ScheduleError where the program is no such chain."""
        machine = problem.context.machine
        if isinstance(plan, BandPlan):
            return band_nests(_bands(problem, plan), machine)
        # whole rows in tiles; their operands may lie in any order
        program = _gathered(problem).require_program()
        chain = find_chain(program, machine.target)
        if chain is None or not chain.has_rows:
            raise ScheduleError(f"{program.name} is no chain of contractions over rows")
        return row_chain_nests(chain, machine)


def _bands(problem: FusedProblem, plan: BandPlan) -> Prepared:
    assert problem.chain is not None  # else the space has no bands
    band = Band(plan.rows, 0.0, plan.parts)
    return prepare_bands(_start(problem), problem.chain, band, problem.context.machine.target)


def _gathered(problem: FusedProblem) -> Schedule:
    context = problem.context
    return gather_operands(_start(problem), context.machine.target, context.constants)


def _start(problem: FusedProblem) -> Schedule:
    context = problem.context
    return Schedule(context.program, operations=context.machine.on.operations)
