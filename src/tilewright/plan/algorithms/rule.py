"""The rules of algorithms that rewrote the program: the nests of Winograd's and of Strassen's method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from tilewright.ir import Stage
from tilewright.lang import ProductMatch, WinogradMatch
from tilewright.plan.algorithms.choice import WinogradPlan
from tilewright.plan.algorithms.strassen import StrassenChoice, StrassenPlan, strassen_nest
from tilewright.plan.algorithms.winograd import winograd_nest
from tilewright.plan.rule import Context, Rule
from tilewright.tiling import Nest


@dataclass(frozen=True, slots=True, eq=False)
class AlgorithmProblem:
    """The stage that ends the nest, and what the algorithm matched before it rewrote the program."""

    context: Context
    last: Stage
    match: object


class WinogradRule(Rule[AlgorithmProblem, WinogradPlan]):
    """All stages of the method fused over blocks of tiles."""

    name = "winograd"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"blocks": WinogradPlan})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> AlgorithmProblem | None:
        """The convolution that the program was rewritten for."""
        return _match(context, root, WinogradMatch)

    def default(self, problem: AlgorithmProblem) -> WinogradPlan:
        """What the program was rewritten for."""
        found = problem.context.matches[f"{problem.last.name}.plan"]
        assert isinstance(found, WinogradPlan)
        return found

    def trees(self, problem: AlgorithmProblem, plan: WinogradPlan) -> tuple[Nest, ...]:
        """The transforms and products of a block, one after the other."""
        assert isinstance(problem.match, WinogradMatch)
        c = problem.context
        return (winograd_nest(c.program, problem.match, plan.m, plan.blocks, problem.last, c.machine),)


class StrassenRule(Rule[AlgorithmProblem, StrassenPlan]):
    """Seven products of half the size, and their sums."""

    name = "strassen"
    forms: ClassVar[Mapping[str, type]] = MappingProxyType({"tiles": StrassenPlan})

    def match(self, context: Context, root: str, stages: tuple[str, ...]) -> AlgorithmProblem | None:
        """The product that the program was rewritten for."""
        return _match(context, root, ProductMatch)

    def default(self, problem: AlgorithmProblem) -> StrassenPlan:
        """What the program was rewritten for."""
        found = problem.context.matches[f"{problem.last.name}.plan"]
        assert isinstance(found, StrassenPlan)
        return found

    def trees(self, problem: AlgorithmProblem, plan: StrassenPlan) -> tuple[Nest, ...]:
        """The sums, the products, and the result."""
        assert isinstance(problem.match, ProductMatch)
        choice = StrassenChoice(problem.match, plan.rows, plan.vectors, plan.lanes, plan.height)
        return (strassen_nest(problem.context.program, choice, problem.last, problem.context.machine),)


def _match(context: Context, root: str, kind: type) -> AlgorithmProblem | None:
    found = context.matches.get(root)
    return AlgorithmProblem(context, context.program.stage(root), found) if isinstance(found, kind) else None
