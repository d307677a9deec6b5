"""The database of tuning: what was tried for which task, and what became of it, in one SQLite file.

Only one process writes; others may read meanwhile (write-ahead logging). A record is a hint, never believed:
whoever takes a plan from it carries it out under the same checks as any other, and compares the function's
digest. Programs and plans are in it under canonical names (:func:`tilewright.ir.canonical`), so that
one model's records serve another one.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tilewright.ir import print_source
from tilewright.plan import GraphPlan, UnitPlan, graph_plan_from_data, plan_from_json
from tilewright.schedule import Trace, load_trace
from tilewright.strategies import AnyTask, Candidate, Trial
from tilewright.support import ArtefactError, get_logger
from tilewright.tune.network import Network, network_from_json
from tilewright.tune.schema import COLUMNS, LATER, NUMBERS, OPTIONAL, SCHEMA, STATUSES, VERSION

_log = get_logger(__name__)

#: In place of a path: nothing is kept.
MEMORY: Final = ":memory:"
#: How many times faster than the default plan a record may say that it is: what says more was edited.
MOST_GAIN: Final = 1000.0
#: Seconds for which other processes that write are waited for, and between two questions whether they do.
PATIENCE: Final = 30.0
PAUSE: Final = 0.01
#: Primary result codes of SQLite that blame the disk, permissions or other processes, not what a file holds.
_OF_THE_SYSTEM: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)


@dataclass(frozen=True, slots=True)
class Record:
    """A plan that was kept for a task, its seconds, and those of the untuned plan beside it.

    ``func`` is the digest of the scheduled function that was measured.
    """

    task: str
    plan: UnitPlan
    func: str
    seconds: float
    untuned: float


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """The decisions about a model's graph that were kept, seconds of a run with them and by default."""

    plan: GraphPlan
    seconds: float
    untuned: float


@dataclass(frozen=True, slots=True)
class TrialRow:
    """What became of one trial; ``seconds`` are its best run's, where it ran."""

    origin: str
    status: str
    seconds: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of a database; ``program`` is text, ``target`` a fingerprint.

    ``finished`` is 1 where its search came to an end, and will not be gone on with.
    """

    key: str
    label: str
    program: str
    target: str
    threads: int
    finished: int


class Database:
    """Trials and records by task. Use as a context manager, or close it."""

    def __init__(self, path: Path | str, *, read_only: bool = False) -> None:
        """Open or make a database. Raises ArtefactError for a file that is none, or of another version."""
        self.path = Path(path)
        version = 0
        if os.path.exists(path) and not os.path.isfile(path):
            # SQLite would wait for somebody to write into a pipe
            raise ArtefactError(f"{self.path} is no database of tuning: it is not a regular file")
        with self._reading():
            if read_only:
                # beside a file in write-ahead logging even its readers make files, where they may; none is
                # being written where there is no log
                still = not os.access(self.path.parent, os.W_OK) and not Path(f"{path}-wal").exists()
                uri = f"{self.path.absolute().as_uri()}?{'immutable=1' if still else 'mode=ro'}"
                self._connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE)
            else:
                self._connection = sqlite3.connect(self.path, timeout=PATIENCE)
                self._log_ahead()
            # in this order: with its tables a file gets its version
            tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version == 0 and tables == 0 and not read_only:
                self._connection.executescript(SCHEMA)
                version = VERSION
            if version == VERSION and not read_only:
                for statement in LATER.values():
                    self._connection.execute(statement)
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

    def _log_ahead(self) -> None:
        """Turn write-ahead logging on. SQLite does not wait for others that do so at the same time."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(PAUSE)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.Error, OverflowError) as error:
            # errors that Python's own module finds have no code
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_SYSTEM:
                raise ArtefactError(
                    f"the database {self.path} cannot be read or written: {error}",
                    hint="its folder must be there, take new files and have space left",
                ) from None
            raise ArtefactError(
                f"{self.path} is no database of tuning, or a damaged one: {error}",
                hint="tune into a new file",
            ) from None

    def _all(self, query: str, *values: object) -> list[Any]:
        with self._reading(), closing(self._connection.execute(query, values)) as rows:
            return rows.fetchall()

    def _typed(self, table: str, columns: Sequence[str], query: str, *values: object) -> list[Any]:
        """Rows of some columns of a table: SQLite keeps values of any type in any column.

        Raises ArtefactError where one is of another type than its column.
        """
        found = self._all(f"SELECT {', '.join(columns)} FROM {table} {query}", *values)
        for row in found:
            for column, value in zip(columns, row, strict=True):
                missing = value is None and f"{table}.{column}" in OPTIONAL
                if not missing and not isinstance(value, (int, float) if column in NUMBERS else str):
                    wanted = "number" if column in NUMBERS else "text"
                    raise ArtefactError(
                        f"{self.path} is a damaged database: {column!r} of a row of {table} is no {wanted}",
                        hint="tune into a new file",
                    )
        return found

    # ---- writing ----

    def begin(self, strategy: str, seed: int) -> int:
        """Begin a session of tuning: its number."""
        with self._reading(), self._connection:
            made = self._connection.execute(
                "INSERT INTO sessions (begun, strategy, seed, host) VALUES (?, ?, ?, ?)",
                (datetime.now(UTC).isoformat(timespec="seconds"), strategy, seed, platform.machine()),
            )
        return int(made.lastrowid or 0)

    def declare(self, task: AnyTask, label: str, key: str) -> None:
        """Have a task in the database, by its key; its program should have canonical names."""
        row = (
            key,
            label,
            print_source(task.program),
            task.machine.target.fingerprint,
            task.machine.threads,
        )
        with self._reading(), self._connection:
            self._connection.execute("INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?, ?, 0)", row)

    def add(self, task: str, trials: Sequence[Trial], session: int = 0) -> None:
        """Add trials of a task that was declared, all or none."""
        places = ", ".join("?" * len(COLUMNS["trials"]))
        with self._reading(), self._connection:
            self._connection.executemany(
                f"INSERT INTO trials ({', '.join(COLUMNS['trials'])}) VALUES ({places})",
                [
                    (
                        task,
                        session,
                        trial.candidate.origin,
                        trial.status,
                        trial.best if trial.seconds else None,
                        trial.reason[:1000],
                        trial.candidate.plan.to_json(),
                        trial.func,
                        trial.build_seconds,
                        trial.load,
                        trial.host,
                    )
                    for trial in trials
                ],
            )

    def keep(self, task: str, records: Sequence[Record], *, finished: bool = True) -> None:
        """Keep the records of a task, the fastest first, in place of earlier ones."""
        with self._reading(), self._connection:
            self._connection.execute("UPDATE tasks SET finished = ? WHERE key = ?", (int(finished), task))
            self._connection.execute("DELETE FROM records WHERE task = ?", (task,))
            self._connection.executemany(
                "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)",
                [(task, n, r.plan.to_json(), r.func, r.seconds, r.untuned) for n, r in enumerate(records)],
            )

    def reopen(self, task: str) -> None:
        """Let the search of a task not have come to an end."""
        with self._reading(), self._connection:
            self._connection.execute("UPDATE tasks SET finished = 0 WHERE key = ?", (task,))

    def demote(self, task: str) -> None:
        """Let the default plan, the last of a task's records, be the only one."""
        with self._reading(), self._connection:
            self._connection.execute(
                "DELETE FROM records WHERE task = ? AND rank < "
                "(SELECT max(rank) FROM records WHERE task = ?)",
                (task, task),
            )

    def keep_graph(self, key: str, record: GraphRecord) -> None:
        """Keep the decisions about a model's graph in place of earlier ones."""
        row = (key, json.dumps(record.plan.to_data()), record.seconds, record.untuned)
        with self._reading(), self._connection:
            self._connection.execute("INSERT OR REPLACE INTO graphs VALUES (?, ?, ?, ?)", row)

    def keep_network(self, network: Network, *, compared: bool) -> None:
        """Keep what tasks make up, in place of what was kept of the same network.

        Times that are there already stay, unless these were ``compared``.
        """
        before = [each for each in self.networks() if each.key == network.key]
        if before and not compared:
            network = replace(network, untuned=before[0].untuned, best=before[0].best)
        row = network.key, network.to_json()
        with self._reading(), self._connection:
            self._connection.execute("INSERT OR REPLACE INTO networks VALUES (?, ?)", row)

    def insert(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows as they were exported, where there is none of their key: see :data:`COLUMNS`."""
        places = ", ".join("?" * len(COLUMNS[table]))
        names = ", ".join(COLUMNS[table])
        with self._reading(), self._connection:
            self._connection.executemany(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({places})", rows)

    def prune(self, kept: int) -> int:
        """Forget all trials of each task but the default's and the ``kept`` fastest; how many went."""
        with self._reading(), self._connection:
            gone = self._connection.execute(
                "DELETE FROM trials WHERE origin != 'default' AND id NOT IN (SELECT id FROM ("
                "SELECT id, row_number() OVER (PARTITION BY task ORDER BY seconds) AS place FROM trials "
                "WHERE status = 'ok') WHERE place <= ?)",
                (kept,),
            ).rowcount
        with self._reading():
            self._connection.execute("VACUUM")
        return gone

    # ---- reading ----

    def best(self, task: str) -> Record | None:
        """The first record of a task. Raises ArtefactError where its text was edited."""
        rows = self._all(
            "SELECT task, plan, func, seconds, untuned FROM records WHERE task = ? ORDER BY rank LIMIT 1",
            task,
        )
        return _record(rows[0]) if rows else None

    def finished(self, task: str) -> bool:
        """Whether the search of a task came to an end."""
        return bool(self._all("SELECT 1 FROM tasks WHERE key = ? AND finished = 1", task))

    def ranked(self, task: str) -> tuple[Record, ...]:
        """The records of a task, the fastest first; those that cannot be true or read are left out."""
        query = "SELECT task, plan, func, seconds, untuned FROM records WHERE task = ? ORDER BY rank"
        found: list[Record] = []
        for row in self._all(query, task):
            try:
                record = _record(row)
            except ArtefactError as error:
                _log.warning("%s: a record of the task %s is left out: %s", self.path, task, error)
                continue
            found.append(record)
        return tuple(found)

    def graph(self, key: str) -> GraphRecord | None:
        """The decisions about a model's graph that were kept. Raises ArtefactError where they were edited."""
        rows = self._all("SELECT plan, seconds, untuned FROM graphs WHERE key = ?", key)
        if not rows:
            return None
        text, seconds, untuned = rows[0]
        try:
            plan = graph_plan_from_data(json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise ArtefactError(f"the decisions about a graph are not JSON: {error}") from None
        return GraphRecord(plan, seconds, untuned)

    def networks(self) -> tuple[Network, ...]:
        """What was tuned. Raises ArtefactError where the text of one was edited."""
        if not self._has("networks"):
            return ()
        rows = self._all("SELECT network FROM networks ORDER BY rowid")
        return tuple(network_from_json(str(text)) for (text,) in rows)

    def _has(self, table: str) -> bool:
        return bool(self._all("SELECT 1 FROM sqlite_master WHERE name = ?", table))

    def trials(self, task: str) -> Iterator[TrialRow]:
        """The trials of a task in the order in which they were made."""
        columns = ("origin", "status", "seconds", "reason")
        yield from (
            TrialRow(*row) for row in self._typed("trials", columns, "WHERE task = ? ORDER BY id", task)
        )

    def best_before(self, date: str) -> dict[str, float]:
        """The fastest trial of each task in sessions that began before a date, such as ``2026-11-25``."""
        query = (
            "SELECT task, min(seconds) FROM trials JOIN sessions ON session = sessions.id "
            "WHERE status = 'ok' AND begun < ? GROUP BY task"
        )
        return dict(self._all(query, date))

    def conditions(self) -> tuple[list[str], list[float]]:
        """The machines that trials ran on, where they are named, and others' load beside each trial."""
        hosts = [
            host for (host,) in self._all("SELECT DISTINCT host FROM trials WHERE host != '' ORDER BY 1")
        ]
        loads = self._all("SELECT load FROM trials WHERE load IS NOT NULL")
        return hosts, [float(load) for (load,) in loads]

    def history(self, task: str) -> tuple[Trial, ...]:
        """The trials of a task with their plans, in order; those that cannot be read are left out."""
        query = "SELECT origin, status, seconds, reason, plan, func FROM trials WHERE task = ? ORDER BY id"
        found: list[Trial] = []
        for origin, status, seconds, reason, text, func in self._all(query, task):
            try:
                plan = _plan(text)
            except ArtefactError:
                continue
            fine = isinstance(seconds, float) and isfinite(seconds) and seconds > 0
            if status not in STATUSES or (status == "ok" and not fine):
                continue
            times = (seconds,) if status == "ok" else ()
            found.append(Trial(Candidate(str(origin), plan), status, times, str(reason), str(func)))
        return tuple(found)

    def untuned_plan(self, task: str) -> UnitPlan | None:
        """The plan that was measured first, the default. Raises ArtefactError where it was edited."""
        query = "SELECT plan FROM trials WHERE task = ? AND origin = 'default' ORDER BY id LIMIT 1"
        rows = self._all(query, task)
        return plan_from_json(rows[0][0]) if rows else None

    def counts(self, task: str) -> dict[str, int]:
        """How many trials of a task there are of each status."""
        return dict(sorted(Counter(row.status for row in self.trials(task)).items()))

    def tasks(self) -> Iterator[tuple[str, str]]:
        """The key and the label of every task."""
        yield from ((row.key, row.label) for row in self.task_rows())

    def task_rows(self) -> Iterator[TaskRow]:
        """Every task."""
        yield from (TaskRow(*row) for row in self._typed("tasks", COLUMNS["tasks"], "ORDER BY key"))

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """All rows of a table: its :data:`COLUMNS`."""
        if table in LATER and not self._has(table):
            return
        yield from self._typed(table, COLUMNS[table], "ORDER BY rowid")


def _plan(text: object) -> UnitPlan | Trace:
    """A plan, or a trace. Raises ArtefactError for other text."""
    if not isinstance(text, str):
        raise ArtefactError("a plan is text")
    return plan_from_json(text) if '"tilewright-plan"' in text[:200] else load_trace(text)


def _record(row: tuple[Any, ...]) -> Record:
    task, text, func, seconds, untuned = row
    plan = _plan(text)
    if not isinstance(plan, UnitPlan) or not isinstance(func, str):
        raise ArtefactError("a record is of a plan and of a function's digest")
    _check_times(seconds, untuned)
    return Record(task, plan, func, seconds, untuned)


def _check_times(seconds: object, untuned: object) -> tuple[float, float]:
    for each in (seconds, untuned):
        if not isinstance(each, float) or not isfinite(each) or each <= 0:
            raise ArtefactError(f"seconds of a record are more than none, not {seconds!r} and {untuned!r}")
    assert isinstance(seconds, float) and isinstance(untuned, float)
    if untuned / seconds > MOST_GAIN:
        raise ArtefactError(f"nothing is {untuned / seconds:.3g} times faster than by default")
    return seconds, untuned
