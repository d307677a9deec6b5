"""Records in compilations: plans that were found faster, replayed only where they are what was measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from tilewright.ir import structural_hash
from tilewright.plan import GraphPlan, Planned
from tilewright.schedule import ALGORITHMS
from tilewright.strategies import AnyTask, NestTask, ScheduledNest, Task
from tilewright.support import (
    ArtefactError,
    InputError,
    ProgramError,
    ResourceError,
    ScheduleError,
    Settings,
    get_logger,
)
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

    @overload
    def plans(self, task: Task) -> Iterator[Planned]: ...
    @overload
    def plans(self, task: NestTask) -> Iterator[ScheduledNest]: ...
    def plans(self, task: AnyTask) -> Iterator[Planned] | Iterator[ScheduledNest]:
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
        source = task.canonical().program if found else task.program
        for record in found:
            taken = [(s, ALGORITHMS.get(s.primitive)) for s in record.plan.rewrites.steps]
            if not all(task.accuracy.allows(a.variant(s)) for s, a in taken if a is not None):
                continue
            try:
                made = task.carried_out(task.renamed(record.plan, source))
            except (ScheduleError, ProgramError, ResourceError, ArtefactError) as error:
                _log.warning("a record of %s is left out: %s", task.key, error)
                continue
            if structural_hash(made.func) != record.func:
                _log.warning("a record of %s is left out: it is of another function", task.key)
                continue
            yield made

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
