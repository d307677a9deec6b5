"""What kernels cost by their default plans, by those who measure them: each program once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf
from typing import Final, Protocol

from tilewright.cost import Machine
from tilewright.driver.units import Unit
from tilewright.ir import Program, structural_hash
from tilewright.strategies import AnyTask, Candidate, Task, Trial
from tilewright.support import ScheduleError, get_logger

_log = get_logger(__name__)

#: Part of the sum that other layouts must save: kernels are measured one by one, networks run them together.
LEAST_GAIN: Final = 0.02


class Prices(Protocol):
    """Who says what kernels cost: :class:`tilewright.driver.LocalMeasurer`, or a model."""

    def measure(self, task: AnyTask, candidates: Sequence[Candidate]) -> list[Trial]:
        """One trial a candidate, in order."""


class KernelPrices:
    """Seconds of kernels by their default plans, each program once; infinite where one cannot be made."""

    def __init__(self, prices: Prices, machine: Machine, until: float = inf) -> None:
        self._prices, self._machine, self._until = prices, machine, until
        self._known: dict[tuple[str, int], float] = {}
        self.interrupted = False

    @property
    def measured(self) -> int:
        """How many programs were priced."""
        return len(self._known)

    def of(self, program: Program, threads: int) -> float | None:
        """The seconds of a program; ``None`` where it is not known and time is up."""
        key = (structural_hash(program), threads)
        if key not in self._known:
            if time.monotonic() >= self._until:
                return None
            try:
                self._known[key] = self._price(program, threads)
            except KeyboardInterrupt:
                # what was measured by now is decided
                self._until, self.interrupted = -inf, True
                return None
        return self._known[key]

    def _price(self, program: Program, threads: int) -> float:
        task = Task(program, Machine(self._machine.target, threads))
        try:
            plan = task.default().plan
        except ScheduleError as error:
            _log.info("no default plan under these layouts: %s", error.what)
            return inf
        (trial,) = self._prices.measure(task, [Candidate("layouts", plan)])
        return trial.best

    def total(self, units: Sequence[Unit]) -> float | None:
        """The sum over units in seconds a run; ``None`` where one is not known and time is up."""
        threads, total = self._machine.threads, 0.0
        for unit in units:
            parts = unit.parts > 1
            seconds = self.of(unit.program, 1 if parts else threads)
            if seconds is None:
                return None
            # threads take different parts at the same time
            total += seconds * (unit.parts / threads if parts else unit.calls)
        return total
