"""Which algorithm computes a stage: each asked for the cycles that it would take, the cheapest is taken."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

from tilewright.cost import Machine
from tilewright.ir import Stage, int_upper, iter_env
from tilewright.plan.algorithms.accuracy import AUTO, Accuracy
from tilewright.plan.algorithms.bf16x3 import Bf16x3Choice, choose_bf16x3
from tilewright.plan.algorithms.choice import WinogradChoice, choose_winograd
from tilewright.plan.algorithms.strassen import StrassenChoice, choose_strassen
from tilewright.plan.fused.chain import find_chain
from tilewright.plan.rows.match import ending_stage
from tilewright.schedule import BF16X3, STRASSEN, WINOGRAD, Algorithm, Schedule
from tilewright.support import Catalog


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A stage for which methods are asked; ``accuracy`` says which are exact enough."""

    schedule: Schedule
    stage: Stage
    machine: Machine
    accuracy: Accuracy = AUTO
    constants: Collection[str] = ()


class Choice(Protocol):
    """A method for a stage that surely pays, or was asked for."""

    @property
    def cycles(self) -> float:
        """What the model says that the stage takes by it, its margin over the direct method included."""

    @property
    def match(self) -> object:
        """What of the stage the nest needs to know."""

    @property
    def plan(self) -> object:
        """The plan of the nest, of a class that the method's rule knows; ``None`` without one of its own."""

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of the nest."""

    def rewrite(self, s: Schedule, last: Stage | None) -> Schedule:
        """The program by the method; ``last`` is the stage that alone reads the result, point by point."""


@dataclass(frozen=True, slots=True)
class Method:
    """An algorithm with its choices: ``choose`` says how a stage would be done, ``None`` where it is not.

    ``rule`` plans the nest of its stages; ``None``: they are planned as others are.
    """

    algorithm: Algorithm
    choose: Callable[[Asked], Choice | None]
    rule: str | None = None


def cheapest(asked: Asked) -> tuple[Method, Choice] | None:
    """The method that takes the fewest cycles of those that may be taken, ``None`` for the direct one.

    Which is that of stages without elements or terms.
    """
    env = iter_env(asked.stage.iters)
    if any(int_upper(it.extent, env) == 0 for it in asked.stage.iters):
        return None
    allowed = [m for m in METHODS.values() if any(map(asked.accuracy.allows, m.algorithm.variants))]
    found = [(m, choice) for m in allowed if (choice := m.choose(asked)) is not None]
    return min(found, key=lambda each: each[1].cycles, default=None)


def _winograd(asked: Asked) -> WinogradChoice | None:
    program = asked.schedule.require_program()
    return choose_winograd(program, asked.stage, asked.machine, asked.accuracy)


def _strassen(asked: Asked) -> StrassenChoice | None:
    program = asked.schedule.require_program()
    found = choose_strassen(program, asked.stage, asked.machine)
    # a part of a chain is scheduled with it as a whole
    return found if found is not None and ending_stage(program, asked.stage) is not None else None


def _bf16x3(asked: Asked) -> Bf16x3Choice | None:
    found = choose_bf16x3(asked.schedule, asked.stage, asked.machine, asked.constants)
    if found is None or found.gain <= 0:
        return None
    return found if find_chain(asked.schedule.require_program(), asked.machine.target) is None else None


METHODS: Final[Catalog[str, Method]] = Catalog(
    "methods",
    (
        Method(BF16X3, _bf16x3),
        Method(STRASSEN, _strassen, rule="strassen"),
        Method(WINOGRAD, _winograd, rule="winograd"),
    ),
    key=attrgetter("algorithm.name"),
)
"""All methods: of those that take equally long the first one is taken."""
