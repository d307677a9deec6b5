"""Records in compilations: plans that were found faster, replayed only where they are what was measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.cost import Machine
from tilewright.ir import LoopFunction, canonical_program, structural_hash
from tilewright.plan import GraphPlan, Planned, build_unit, renamed_plan
from tilewright.schedule import ALGORITHMS
from tilewright.strategies import NestPlan, Task
from tilewright.support import ArtefactError, InputError, ScheduleError, Settings, get_logger
from tilewright.tune.database import Database

_log = get_logger(__name__)

#: Says that no database is asked.
OFF = "off"


@dataclass(frozen=True, slots=True)
class Records:
    """The plans of a database, for compilations. It is opened for each question, so that threads may ask.

    A database that nobody named is one of convenience: what is wrong with it is logged, and it is not used.
    """

    path: Path
    named: bool = True

    def plans(self, task: Task) -> Iterator[Planned]:
        """The plans of a task's records, the fastest first, carried out for its own program.

        A plan whose function is not the one that was measured is left out: rules have changed since, or the
        database was edited. So are those with other algorithms than the task allows, and all where one was
        asked for.
        """
        if task.accuracy.is_asked_for:
            return
        try:
            with Database(self.path, read_only=True) as database:
                found = database.ranked(task.key)
        except ArtefactError as error:
            if self.named:
                raise
            _log.warning("records are not used: %s", error)
            return
        source = canonical_program(task.program) if found else task.program
        for record in found:
            taken = [(s, ALGORITHMS.get(s.primitive)) for s in record.plan.rewrites.steps]
            if not all(task.accuracy.allows(a.variant(s)) for s, a in taken if a is not None):
                continue
            try:
                plan = renamed_plan(record.plan, source, task.program, task.machine)
                made = build_unit(task.program, plan, task.machine, task.constants)
            except (ScheduleError, ArtefactError) as error:
                _log.warning("a record of %s is left out: %s", task.key, error)
                continue
            if structural_hash(made.func) != record.func:
                _log.warning("a record of %s is left out: it is of another function", task.key)
                continue
            yield Planned(plan, made)

    def graph(self, key: Callable[[], str]) -> GraphPlan | None:
        """Decisions about a model's graph that were found faster; its key is asked for if there are any."""
        try:
            with Database(self.path, read_only=True) as database:
                found = database.graph(key()) if any(database.rows("graphs")) else None
        except ArtefactError as error:
            if self.named:
                raise
            _log.warning("records are not used: %s", error)
            return None
        return None if found is None else found.plan

    def nest(self, func: LoopFunction, machine: Machine) -> NestPlan | None:
        """The plan of a nest of fixed sizes that was found faster."""
        try:
            with Database(self.path, read_only=True) as database:
                found = database.nest(nest_key(func, machine))
        except ArtefactError as error:
            if self.named:
                raise
            _log.warning("records are not used: %s", error)
            return None
        return None if found is None else found.plan


def nest_key(func: LoopFunction, machine: Machine) -> str:
    """What the plan of a nest of fixed sizes is found by: a digest but for names, and the machine."""
    return f"{structural_hash(func)}/{machine.on.fingerprint[:16]}/{machine.threads}"


def records_at(given: Path | str | None, settings: Settings) -> Records | None:
    """The records of a path, of the settings (``None``), or none (``off``, or where there is no such file).

    Raises InputError for a path that is given and does not exist, and for what is no path.
    """
    if given == OFF:
        return None
    if given is None:
        path = settings.records_path
        return Records(path, named=False) if path is not None and os.path.exists(path) else None
    if not isinstance(given, str | Path):
        raise InputError(f"a database of records is given by its path, not by {type(given).__name__}")
    if not os.path.exists(given):
        raise InputError(
            f"there is no database {str(given)!r}", hint="`tilewright tune MODEL --records FILE` makes one"
        )
    return Records(Path(given))
