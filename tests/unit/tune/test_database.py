"""The database of tuning: what goes in comes out, other files are refused, nothing is half-written."""

import sqlite3
from pathlib import Path

import pytest
from tests.native_kernel import HOST
from tests.unit.plan.test_unit import PROGRAMS

from tilewright.plan import plan_unit
from tilewright.strategies import Candidate, Trial
from tilewright.support import ArtefactError
from tilewright.tune import Database, Record

PLAN = plan_unit(PROGRAMS["product"], HOST, 1).plan


def test_winners_and_trials_come_out_as_they_went_in(tmp_path):
    with Database(tmp_path / "records.db") as records:
        assert records.best("a") is None
        trials = [
            Trial(Candidate("x", PLAN), "ok", (2.0, 1.0)),
            Trial(Candidate("x", PLAN), "hung", reason="…"),
        ]
        records.add("a", "MatMul", trials)
        records.keep(Record("a", PLAN, 1.0, 2.0), "MatMul")
    with Database(tmp_path / "records.db") as records:
        assert records.best("a") == Record("a", PLAN, 1.0, 2.0)
        assert records.counts("a") == {"hung": 1, "ok": 1}
        assert list(records.tasks()) == [("a", "MatMul")]


def test_trials_are_added_all_or_none(tmp_path):
    with Database(tmp_path / "records.db") as records:
        broken = Trial(Candidate("x", PLAN), None)  # a status that no column takes
        with pytest.raises(sqlite3.IntegrityError):
            records.add("a", "MatMul", [Trial(Candidate("x", PLAN), "ok", (1.0,)), broken])
        assert records.counts("a") == {}


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


def test_an_edited_winner_is_refused(tmp_path):
    with Database(tmp_path / "records.db") as records:
        records.keep(Record("a", PLAN, 1.0, 2.0), "MatMul")
    with sqlite3.connect(tmp_path / "records.db") as connection:
        connection.execute("UPDATE winners SET plan = '{}'")
    with Database(tmp_path / "records.db") as records, pytest.raises(ArtefactError, match="not a plan"):
        records.best("a")
