"""A machine's quantities from measurements: those by which the model tells plans of a task apart best.

Each quantity begins with what the machine's class has, and moves in steps, coarse ones first, as long as the
error of all falls. How far a whole task is off counts little: a kernel's algorithm, and what the model leaves
out, move all plans of a task alike; which of them is faster is what the model is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import fmean, median
from types import MappingProxyType
from typing import Final

from tilewright.cost.analytic import seconds
from tilewright.cost.machine import Machine
from tilewright.cost.tree import LoopTree
from tilewright.support import InputError
from tilewright.target import MemoryLevel, Target

#: Factors by which a quantity moves, one after the other.
STEPS: Final = (2.0, 2**0.5, 2**0.25, 2**0.125)
#: How far a quantity may get from where it began, as a factor.
FARTHEST: Final = 4.0
#: The part of the error that a move must save: what measurements do not tell stays as it is. With 0.003 a
#: Zen 4's second level came to 768 bytes a cycle, for 0.003 less of the error of tasks that were held out.
LEAST: Final = 0.02
#: What a task's whole error counts beside the errors among its plans.
WHOLE: Final = 0.1
#: Every so many tasks one is held out.
HELD_OUT: Final = 3
#: Tasks that are needed, with several plans each.
FEWEST: Final = 6

#: Names of the quantities; bandwidths begin with the level's.
_FMA: Final = "multiply-adds a cycle"
_FORK: Final = "seconds of a parallel loop"
_SIZE: Final = "bytes of the last cache level"
_BANDWIDTH: Final = ", bytes a cycle"


@dataclass(frozen=True, slots=True)
class Sample:
    """A plan of a task by its loops, the threads it ran on, and its seconds."""

    task: str
    tree: LoopTree
    threads: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A machine with fitted quantities: before and after by name, and errors of the model.

    Errors are means of absolute natural logarithms of predicted over measured times, of tasks that were
    fitted to, and of those ``held_out``.
    """

    target: Target
    quantities: Mapping[str, tuple[float, float]]
    samples: int
    tasks: int
    error: tuple[float, float]
    held_out: tuple[float, float]


def fit_machine(samples: Sequence[Sample], start: Target) -> Fit:
    """The quantities of a machine by what plans took there, from those of ``start`` on.

    Raises InputError where there are too few tasks with several plans.
    """
    by_task: dict[str, list[Sample]] = {}
    for sample in samples:
        by_task.setdefault(sample.task, []).append(sample)
    groups = [by_task[key] for key in sorted(by_task) if len(by_task[key]) > 1]
    if len(groups) < FEWEST:
        raise InputError(
            f"a fit needs {FEWEST} tasks of this machine with several plans that ran, not {len(groups)}",
            hint="`tilewright tune MODEL --records FILE` measures more",
        )
    ours = [group for n, group in enumerate(groups) if n % HELD_OUT]
    others = groups[::HELD_OUT]
    target, begin = start, _quantities(start)
    least = first = _error(ours, start)
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for name, before in begin.items():
                for factor in (step, 1 / step):
                    value = _quantities(target)[name] * factor
                    if not _may_be(target, name, value, before):
                        continue
                    tried = _put(target, name, value)
                    error = _error(ours, tried)
                    if error < least * (1 - LEAST):
                        target, least, moved = tried, error, True
                        break
    after = _quantities(target)
    return Fit(
        target,
        MappingProxyType({name: (begin[name], after[name]) for name in begin}),
        sum(map(len, groups)),
        len(groups),
        (first, least),
        (_error(others, start), _error(others, target)),
    )


def _error(groups: Sequence[Sequence[Sample]], target: Target) -> float:
    machines = {sample.threads: Machine(target, sample.threads) for group in groups for sample in group}
    errors: list[float] = []
    for group in groups:
        logs = [log(seconds(each.tree, machines[each.threads]) / each.seconds) for each in group]
        off = median(logs)
        errors.append(fmean(abs(each - off) for each in logs) + WHOLE * abs(off))
    return fmean(errors)


def _quantities(target: Target) -> dict[str, float]:
    found = {_FMA: target.fma_per_cycle, _FORK: target.fork_seconds}
    found |= {level.name + _BANDWIDTH: level.bandwidth for level in target.memory[1:]}
    last = _last(target)
    if last is not None and last.size is not None:
        found[_SIZE] = float(last.size)
    return found


def _put(target: Target, name: str, value: float) -> Target:
    """The target with another value of a quantity."""
    if name == _FMA:
        return replace(target, fma_per_cycle=value)
    if name == _FORK:
        return replace(target, fork_seconds=value)
    last = _last(target)

    def changed(level: MemoryLevel) -> MemoryLevel:
        if name == level.name + _BANDWIDTH:
            return replace(level, bandwidth=value)
        return replace(level, size=int(value)) if name == _SIZE and level is last else level

    return replace(target, memory=tuple(map(changed, target.memory)))


def _may_be(target: Target, name: str, value: float, begin: float) -> bool:
    if not 1 / FARTHEST <= value / begin <= FARTHEST:
        return False
    if name != _SIZE:
        return True
    # a guest has no more of the last level than there is, and no less than of the level before
    inner = [level.size for level in target.memory if level.size is not None][:-1]
    return max(inner, default=1) <= value <= begin


def _last(target: Target) -> MemoryLevel | None:
    """The last level that has a size."""
    return next((level for level in reversed(target.memory) if level.size is not None), None)
