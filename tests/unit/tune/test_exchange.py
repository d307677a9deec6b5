"""Databases as lines: what is no row is refused by its number, what is known stays."""

import json

import pytest
from tests.native_kernel import STATED
from tests.unit.tune.test_database import filled

from tilewright.cost import Machine
from tilewright.ir import parse_function, parse_source
from tilewright.strategies import NestTask, loops_plan
from tilewright.support import ArtefactError
from tilewright.tune import Database, Record, exported, imported, pull, push
from tilewright.tune.network import Network, Step

NEST = """function("f", outputs=[x], inouts=[x])
x = f64[9]
for i in range(9):
    with block("S"):
        i = ord(0, 9, i)
        x[i] = x[i] + f64(1.0)
"""
NETWORK = Network("model", (Step("a", "m", "MatMul", func="f", schedule="import os"),))


@pytest.fixture
def lines(tmp_path):
    with Database(filled(tmp_path / "r.db")) as database:
        return list(exported(database))


def test_the_first_line_says_what_they_are(lines):
    assert json.loads(lines[0]) == {"format": "tilewright-records", "version": 3}
    assert [json.loads(line)["table"] for line in lines[1:]] == [
        "tasks",
        "trials",
        "trials",
        "records",
        "records",
    ]


def changed(line, **fields):
    return json.dumps({**json.loads(line), **fields})


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (0, lambda line: "{}", "line 1 does not say that these are records"),
        (0, lambda line: "[]", "line 1 is no object"),
        (1, lambda line: "{", "line 2 is not JSON"),
        (1, lambda line: changed(line, table="users"), "line 2 is no row of"),
        (1, lambda line: changed(line, more=1), "line 2 is no row of"),
        (1, lambda line: changed(line, threads="two"), "line 2: 'threads' is a number"),
        (1, lambda line: changed(line, label=3), "line 2: 'label' is text"),
        (1, lambda line: changed(line, program="x"), "line 2: its program cannot be read"),
        (2, lambda line: changed(line, task="b"), "line 3 is of a task that no line before declares"),
        (2, lambda line: changed(line, status="fine"), "line 3: a status is one of"),
        (2, lambda line: changed(line, build=True), "line 3: 'build' is a number"),
        (2, lambda line: changed(line, seconds=float("nan")), "line 3: 'seconds' is no number that can be"),
        (4, lambda line: changed(line, seconds=0.0), "line 5: seconds of a record are more than none"),
        (2, lambda line: " " * ((1 << 24) + 1), "line 3 has 16777217 characters"),
    ],
)
def test_other_lines_are_refused_by_number(tmp_path, lines, number, change, message):
    lines[number] = change(lines[number])
    with Database(tmp_path / "o.db") as database, pytest.raises(ArtefactError, match=message):
        imported(database, lines)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"key": "k"}, "a network has its own key, and no schedules"),
        ({"network": "{"}, "a network in a database of tuning"),
        ({"network": NETWORK.to_json()}, "a network has its own key, and no schedules"),
    ],
)
def test_networks_of_others_bring_no_schedules(tmp_path, lines, row, message):
    fine = {"table": "networks", "key": NETWORK.key, "network": NETWORK.without_schedules().to_json()}
    lines.append(json.dumps(fine | row))
    with Database(tmp_path / "o.db") as database, pytest.raises(ArtefactError, match=message):
        imported(database, lines)


def test_nests_go_along_as_programs_do(tmp_path):
    func = parse_function(NEST)
    task, plan = NestTask(func, Machine(STATED, 1)), loops_plan("written")
    store, lines = tmp_path / "store", []
    with Database(tmp_path / "o.db") as database:
        database.declare(task, "f", task.key)
        database.keep(task.key, [Record(task.key, plan, "d", 1.0, 2.0)])
        lines = list(exported(database))
        assert push(database, str(store)).written == 1
    with Database(tmp_path / "p.db") as database:
        assert imported(database, lines)["records"] == 1
        assert database.best(task.key).plan == plan
    with Database(tmp_path / "q.db") as database:
        # their keys are looked at
        assert not pull(database, str(store)).refused
        assert database.best(task.key).plan == plan
        (row,) = database.task_rows()
        assert parse_source(row.program) == func


def test_records_that_are_known_stay(tmp_path, lines):
    other = [changed(line, seconds=0.5) if '"records"' in line[:20] else line for line in lines]
    with Database(tmp_path / "r.db") as database:
        assert imported(database, other)["records"] == 0
        assert database.best("a").seconds == 1.0
