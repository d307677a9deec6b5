"""What a database of tuning holds: its tasks, all their trials, what won, and what it is compared with."""

from __future__ import annotations

from typing import Final

from tilewright.report.content import STATUSES, Content, Kernel, Points
from tilewright.report.model import machine_facts, now
from tilewright.target import detect
from tilewright.tune import Database

#: Longest reason of a failed trial that is shown.
LONGEST_REASON: Final = 200


def of_database(database: Database, against: Database | None = None) -> Content:
    """The report of a database, beside another one where that is given.

    Tasks are compared by their keys: the program but for names, the target and the threads. Raises
    ArtefactError where a plan of a database was edited.
    """
    kernels = tuple(_kernel(database, key, label, against) for key, label in database.tasks())
    timed = [kernel for kernel in kernels if kernel.untuned is not None]
    before = sum(kernel.untuned or 0.0 for kernel in timed)
    after = sum(kernel.best or kernel.untuned or 0.0 for kernel in timed)
    return Content(
        title=f"Tuning: {database.path.name}",
        kind="tuning",
        made=now(),
        facts=machine_facts(detect(), None, None),
        kernels=kernels,
        untuned=before if timed else None,
        best=after if timed else None,
        against="" if against is None else against.path.name,
    )


def _kernel(database: Database, key: str, label: str, against: Database | None) -> Kernel:
    trials = list(database.trials(key))
    names = tuple(dict.fromkeys(trial.origin for trial in trials))
    place = {name: at for at, name in enumerate(names)}
    reasons: dict[str, str] = {}
    for trial in trials:
        if trial.status != "ok":
            reasons.setdefault(trial.status, trial.reason[:LONGEST_REASON])
    found = database.best(key)
    default = database.untuned_plan(key)
    ran = [trial.seconds for trial in trials if trial.origin == "default" and trial.seconds is not None]
    other = None if against is None else against.best(key)
    won = found is not None and found.plan != default
    return Kernel(
        name=label,
        untuned=found.untuned if found is not None else min(ran, default=None),
        best=None if found is None else found.seconds,
        before=None if other is None else other.seconds,
        plan="" if found is None else str(found.plan),
        default_plan=str(default) if won and default is not None else "",
        points=Points(
            tuple(trial.seconds for trial in trials),
            tuple(STATUSES.index(trial.status) for trial in trials if trial.status in STATUSES),
            tuple(place[trial.origin] for trial in trials),
            names,
        ),
        reasons=tuple(reasons.items()),
    )
