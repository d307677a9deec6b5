"""What a database of tuning says of a machine: its trials as samples for the analytic model's quantities."""

from __future__ import annotations

from random import Random
from typing import Final

from tilewright.cost import Fit, Machine, Sample, fit_machine
from tilewright.ir import parse_program
from tilewright.plan import UnitPlan
from tilewright.strategies import Prices, Task
from tilewright.support import TilewrightError
from tilewright.target import Target
from tilewright.tune.database import Database

#: Plans of a task that are looked at, at most: the fastest one, and others drawn evenly.
MOST_PLANS: Final = 12


def samples_of(database: Database, target: Target) -> list[Sample]:
    """Plans that ran on a machine, with the loops that they make, where these are known without scheduling.

    ``target`` is the machine as it was when they were measured.
    """
    found: list[Sample] = []
    for row in database.task_rows():
        if row.target != target.fingerprint:
            continue
        try:
            task = Task(parse_program(row.program), Machine(target, row.threads))
        except TilewrightError:
            continue
        prices = Prices(task)
        trials = sorted(
            (t for t in database.history(row.key) if t.status == "ok"), key=lambda trial: trial.best
        )
        chosen = trials[:1] + Random(row.key).sample(trials[1:], min(len(trials) - 1, MOST_PLANS - 1))
        for trial in chosen if trials else ():
            plan = trial.candidate.plan
            tree = prices.tree(plan) if isinstance(plan, UnitPlan) else None
            if tree is not None:
                found.append(Sample(row.key, tree, row.threads, trial.best))
    return found


def fitted(database: Database, target: Target, start: Target) -> Fit:
    """A machine's quantities by a database, from those of ``start`` on. Raises InputError: too few tasks."""
    return fit_machine(samples_of(database, target), start)
