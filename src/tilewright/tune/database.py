"""The database of tuning: what was tried for which task, and what became of it, in one SQLite file.

Only one process writes; others may read meanwhile (write-ahead logging). A record is a hint, never believed:
whoever takes a plan from it carries it out under the same checks as any other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tilewright.plan import UnitPlan, plan_from_json
from tilewright.strategies import Trial
from tilewright.support import ArtefactError

VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE tasks (key TEXT PRIMARY KEY, label TEXT NOT NULL, untuned REAL);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL REFERENCES tasks(key), origin TEXT NOT NULL,
    status TEXT NOT NULL, seconds REAL, reason TEXT NOT NULL, plan TEXT NOT NULL);
CREATE TABLE winners (task TEXT PRIMARY KEY REFERENCES tasks(key), plan TEXT NOT NULL, seconds REAL NOT NULL,
    untuned REAL NOT NULL);
CREATE INDEX trials_of_task ON trials(task);
"""


@dataclass(frozen=True, slots=True)
class Record:
    """The plan that was kept for a task, its seconds, and those of the untuned plan beside it."""

    task: str
    plan: UnitPlan
    seconds: float
    untuned: float


@dataclass(frozen=True, slots=True)
class TrialRow:
    """What became of one trial; ``seconds`` are its best run's, where it ran."""

    origin: str
    status: str
    seconds: float | None
    reason: str


class Database:
    """Trials and winners by task. Use as a context manager, or close it."""

    def __init__(self, path: Path | str) -> None:
        """Open or make a database. Raises ArtefactError for a file that is none, or of another version."""
        self.path = Path(path)
        try:
            self._connection = sqlite3.connect(self.path, timeout=30.0)
            self._connection.execute("PRAGMA journal_mode=WAL")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if version == 0 and tables == 0:
                self._connection.executescript(_SCHEMA)
                self._connection.execute(f"PRAGMA user_version={VERSION}")
                self._connection.commit()
                version = VERSION
        except sqlite3.Error as error:
            raise ArtefactError(f"{self.path} is no database of tuning: {error}") from None
        if version != VERSION:
            self._connection.close()
            raise ArtefactError(
                f"{self.path} has version {version}; this Tilewright reads version {VERSION}",
                hint="tune into a new file",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def add(self, task: str, label: str, trials: list[Trial]) -> None:
        """Add trials of a task, all or none."""
        with self._connection:
            self._connection.execute("INSERT OR IGNORE INTO tasks VALUES (?, ?, NULL)", (task, label))
            self._connection.executemany(
                "INSERT INTO trials (task, origin, status, seconds, reason, plan) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (
                        task,
                        trial.candidate.origin,
                        trial.status,
                        trial.best if trial.seconds else None,
                        trial.reason[:1000],
                        trial.candidate.plan.to_json(),
                    )
                    for trial in trials
                ],
            )

    def keep(self, record: Record, label: str) -> None:
        """Keep the winner of a task in place of an earlier one."""
        with self._connection:
            self._connection.execute("INSERT OR IGNORE INTO tasks VALUES (?, ?, NULL)", (record.task, label))
            self._connection.execute(
                "INSERT OR REPLACE INTO winners VALUES (?, ?, ?, ?)",
                (record.task, record.plan.to_json(), record.seconds, record.untuned),
            )

    def best(self, task: str) -> Record | None:
        """The winner of a task. Raises ArtefactError where its text was edited."""
        row = self._connection.execute(
            "SELECT plan, seconds, untuned FROM winners WHERE task = ?", (task,)
        ).fetchone()
        return None if row is None else Record(task, plan_from_json(row[0]), row[1], row[2])

    def trials(self, task: str) -> Iterator[TrialRow]:
        """The trials of a task in the order in which they were made."""
        query = "SELECT origin, status, seconds, reason FROM trials WHERE task = ? ORDER BY id"
        with closing(self._connection.execute(query, (task,))) as rows:
            yield from (TrialRow(*row) for row in rows.fetchall())

    def untuned_plan(self, task: str) -> UnitPlan | None:
        """The plan that was measured first, the default. Raises ArtefactError where it was edited."""
        query = "SELECT plan FROM trials WHERE task = ? AND origin = 'default' ORDER BY id LIMIT 1"
        row = self._connection.execute(query, (task,)).fetchone()
        return None if row is None else plan_from_json(row[0])

    def counts(self, task: str) -> dict[str, int]:
        """How many trials of a task there are of each status."""
        rows = self._connection.execute(
            "SELECT status, count(*) FROM trials WHERE task = ? GROUP BY status ORDER BY status", (task,)
        )
        return dict(rows.fetchall())

    def tasks(self) -> Iterator[tuple[str, str]]:
        """The key and the label of every task."""
        with closing(self._connection.execute("SELECT key, label FROM tasks ORDER BY key")) as rows:
            yield from rows.fetchall()
