"""The database of tuning: what goes in comes out, other files are refused, nothing is half-written."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from tests.native_kernel import HOST
from tests.unit.plan.test_unit import PROGRAMS

from tilewright.cost import Machine
from tilewright.plan import GraphPlan, plan_unit
from tilewright.strategies import Candidate, Task, Trial
from tilewright.support import ArtefactError
from tilewright.tune import Database, GraphRecord, Record, database, exported
from tilewright.tune.schema import SCHEMA

PLAN = plan_unit(PROGRAMS["product"], Machine(HOST, 1)).plan
TASK = Task(PROGRAMS["product"], Machine(HOST, 1))
RECORD = Record("a", PLAN, "f", 1.0, 2.0)
TRIALS = [
    Trial(Candidate("default", PLAN), "ok", (2.0, 1.0), func="f"),
    Trial(Candidate("x", PLAN), "hung", reason="…"),
]


def filled(path):
    with Database(path) as records:
        records.declare(TASK, "MatMul", "a")
        records.add("a", TRIALS)
        records.keep("a", [RECORD, Record("a", PLAN, "g", 2.0, 2.0)])
    return path


def edited(path, statement, *values):
    with sqlite3.connect(path) as connection:
        connection.execute(statement, values)
    return path


def test_records_and_trials_come_out_as_they_went_in(tmp_path):
    with Database(filled(tmp_path / "records.db")) as records:
        assert records.best("a") == RECORD
        assert [r.func for r in records.ranked("a")] == ["f", "g"]
        assert records.best("b") is None and records.ranked("b") == ()
        assert records.counts("a") == {"hung": 1, "ok": 1}
        assert list(records.tasks()) == [("a", "MatMul")]
        assert [(t.status, t.best, t.func) for t in records.history("a")] == [
            ("ok", 1.0, "f"),
            ("hung", float("inf"), ""),
        ]
        assert records.untuned_plan("a") == PLAN
        assert records.finished("a")
        records.demote("a")
        assert [r.func for r in records.ranked("a")] == ["g"]


def test_trials_are_added_all_or_none(tmp_path):
    with Database(filled(tmp_path / "records.db")) as records:
        broken = Trial(Candidate("x", PLAN), None)  # a status that no column takes
        with pytest.raises(sqlite3.IntegrityError):
            records.add("a", [Trial(Candidate("x", PLAN), "ok", (1.0,)), broken])
        assert records.counts("a") == {"hung": 1, "ok": 1}


def test_several_make_one_file_at_once(tmp_path):
    count = 4
    start = Barrier(count)

    def begin(number):
        start.wait()
        with Database(tmp_path / "records.db") as records:
            return records.begin(str(number), 0)

    with ThreadPoolExecutor(count) as threads:
        assert sorted(threads.map(begin, range(count))) == [1, 2, 3, 4]


def test_a_file_whose_making_was_cut_off_is_made(tmp_path):
    with sqlite3.connect(tmp_path / "records.db") as connection:
        connection.executescript(SCHEMA[: SCHEMA.index("CREATE TABLE IF NOT EXISTS records")])
        connection.rollback()  # as the next process does that opens the file
    connection.close()
    filled(tmp_path / "records.db")


def test_a_file_that_another_process_locks_is_waited_for(tmp_path, monkeypatch):
    other = sqlite3.connect(tmp_path / "records.db")
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(database, "PATIENCE", 0.0)
    with pytest.raises(ArtefactError, match="cannot be read or written: database is locked"):
        Database(tmp_path / "records.db")
    monkeypatch.undo()
    monkeypatch.setattr(database.time, "sleep", lambda _: other.close())
    real = sqlite3.connect
    monkeypatch.setattr(database.sqlite3, "connect", lambda path, timeout: real(path, timeout=0.0))
    filled(tmp_path / "records.db")


def test_other_files_are_refused(tmp_path: Path):
    text = tmp_path / "text.db"
    text.write_text("no database at all, but long enough to have a head")
    with pytest.raises(ArtefactError, match="is no database of tuning"):
        Database(text)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(ArtefactError, match="has version 0"):
        Database(other)
    os.mkfifo(tmp_path / "pipe.db")
    for place in (tmp_path / "pipe.db", tmp_path):
        for read_only in (True, False):
            with pytest.raises(ArtefactError, match="is no database of tuning: it is not a regular file"):
                Database(place, read_only=read_only)


def test_what_the_system_refuses_is_not_called_damage(tmp_path):
    with pytest.raises(ArtefactError, match="cannot be read or written: unable to open"):
        Database(tmp_path / "none.db", read_only=True)
    with pytest.raises(ArtefactError, match="cannot be read or written: unable to open"):
        Database(tmp_path / "none" / "r.db")
    path = tmp_path / "full.db"
    with Database(filled(path)) as records:
        records._connection.execute("PRAGMA max_page_count=1")
        with pytest.raises(ArtefactError, match="cannot be read or written: database or disk is full"):
            records.add("a", [Trial(Candidate("x", PLAN), "ok", (1.0,))] * 1_000)


def test_a_file_whose_folder_takes_none_is_read_as_it_is(tmp_path, monkeypatch):
    """SQLite would make files beside it, which root may do in a test, but nobody on a read-only mount."""
    path = filled(tmp_path / "r.db")
    monkeypatch.setattr("os.access", lambda *_: False)
    opened = []
    plain = sqlite3.connect
    monkeypatch.setattr("sqlite3.connect", lambda at, **rest: opened.append(at) or plain(at, **rest))
    with Database(path, read_only=True) as records:
        assert records.task_rows()
        assert [each.name for each in tmp_path.iterdir()] == ["r.db"]
    (tmp_path / "r.db-wal").touch()  # somebody may be writing
    with Database(path, read_only=True) as records:
        assert records.task_rows()
    assert [at.partition("?")[2] for at in opened] == ["immutable=1", "mode=ro"]


def test_a_truncated_file_is_refused_or_reads_as_nothing_wrong(tmp_path):
    """Whatever is left of a file: an error that names it, or what it still has."""
    whole = filled(tmp_path / "whole.db").read_bytes()
    for part in (1, 50, 99, 100, 512, 4096, 4100, len(whole) // 2, len(whole) - 100):
        path = tmp_path / f"{part}.db"
        path.write_bytes(whole[:part])
        try:
            with Database(path) as records:
                assert records.ranked("a") in ((), (RECORD, Record("a", PLAN, "g", 2.0, 2.0)))
        except ArtefactError as error:
            assert str(path) in str(error)


def test_pages_of_noise_are_refused_by_name(tmp_path):
    path = filled(tmp_path / "r.db")
    content = bytearray(path.read_bytes())
    content[4096 + 8 :] = bytes((7 * n) % 251 for n in range(len(content) - 4104))
    path.write_bytes(content)
    with pytest.raises(ArtefactError, match="a damaged one"), Database(path) as records:
        list(records.task_rows())
        records.ranked("a")
        records.history("a")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE records SET plan = '{}'",
        "UPDATE records SET plan = x'00'",
        "UPDATE records SET seconds = 'soon'",
        "UPDATE records SET seconds = 1e-9",
        "UPDATE records SET seconds = -1.0",
        "UPDATE records SET seconds = 9e999",
        "UPDATE records SET func = x'00'",
    ],
)
def test_edited_records_are_left_out(tmp_path, change):
    path = edited(filled(tmp_path / "r.db"), change + " WHERE rank = 0")
    with Database(path) as records:
        assert [r.func for r in records.ranked("a")] == ["g"]
        with pytest.raises(ArtefactError):
            records.best("a")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE trials SET plan = 'x'",
        "UPDATE trials SET status = 'fine'",
        "UPDATE trials SET seconds = -1.0",
        "UPDATE trials SET seconds = 'x'",
    ],
)
def test_edited_trials_are_left_out(tmp_path, change):
    path = edited(filled(tmp_path / "r.db"), change + " WHERE id = 1")
    with Database(path) as records:
        assert [t.status for t in records.history("a")] == ["hung"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE tasks SET key = X'00'", "'key' of a row of tasks is no text"),
        ("UPDATE tasks SET key = NULL", "'key' of a row of tasks is no text"),
        ("UPDATE tasks SET threads = 'two'", "'threads' of a row of tasks is no number"),
        ("UPDATE trials SET status = X'ff'", "'status' of a row of trials is no text"),
        ("UPDATE trials SET load = 'much'", "'load' of a row of trials is no number"),
        ("UPDATE records SET plan = X''", "'plan' of a row of records is no text"),
    ],
)
def test_values_of_other_types_are_refused_by_the_names_of_their_columns(tmp_path, change, said):
    with Database(edited(filled(tmp_path / "r.db"), change)) as database:
        with pytest.raises(ArtefactError, match=said):
            list(exported(database))
        if "trials SET status" in change:
            with pytest.raises(ArtefactError, match=said):
                database.counts("a")


def test_decisions_about_a_graph_come_out_as_they_went_in(tmp_path):
    path = tmp_path / "r.db"
    with Database(path) as records:
        records.keep_graph("g", GraphRecord(GraphPlan(), 1.0, 2.0))
        assert records.graph("g") == GraphRecord(GraphPlan(), 1.0, 2.0)
        assert records.graph("h") is None
    edited(path, "UPDATE graphs SET plan = '{'")
    with Database(path) as records, pytest.raises(ArtefactError, match="are not JSON"):
        records.graph("g")


def test_pruning_keeps_the_fastest_and_the_default(tmp_path):
    with Database(filled(tmp_path / "r.db")) as records:
        more = [Trial(Candidate("x", PLAN), "ok", (float(n),)) for n in range(1, 9)]
        records.add("a", more)
        assert records.prune(3) == 7  # one that hung, and six of eight: the default's run is as fast as one
        assert [t.origin for t in records.trials("a")].count("default") == 1
        assert records.counts("a") == {"ok": 3}
        assert len(records.ranked("a")) == 2
