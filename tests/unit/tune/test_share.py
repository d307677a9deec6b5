"""Databases that are shared: objects named by their content, merged in any order, refused by name."""

import hashlib
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.tune.test_database import PLAN, TASK
from tests.unit.tune.test_session import OTHER

from tilewright.cli import main
from tilewright.ir import canonical_program
from tilewright.strategies import Candidate, Trial
from tilewright.support import InputError, InstallationError, ResourceError
from tilewright.tune import Database, Record, exported, pull, push, share
from tilewright.tune.network import Link, Network, Step
from tilewright.tune.share import FOLDER

ROOT = Path(__file__).parents[3]
OWN = replace(TASK, program=canonical_program(TASK.program))


def database(path, *, names=("x",), seconds=1.0, task=OWN):
    plan = PLAN if task is OWN else task.default().plan
    with Database(path) as made:
        number = made.begin("random", 0)
        made.declare(task, "MatMul", task.key)
        made.add(
            task.key, [Trial(Candidate(name, plan), "ok", (seconds,), func=name) for name in names], number
        )
        made.keep(task.key, [Record(task.key, plan, "f", seconds, 2.0)])
    return path


def rows(path):
    with Database(path) as made:
        return sorted(exported(made))


def origins(path):
    with Database(path) as made:
        return sorted(t.origin for key, _ in made.tasks() for t in made.trials(key))


def pushed(path, store):
    with Database(path) as made:
        return push(made, str(store))


def pulled(path, store):
    with Database(path) as made:
        return pull(made, str(store))


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_what_is_pushed_is_pulled(tmp_path, where):
    store = tmp_path / "store" if where == "folder" else f"memory://{tmp_path.name}"
    one = database(tmp_path / "one.db")
    first = pushed(one, store)
    assert (first.written, first.known) == (2, 0)
    again = pushed(one, store)
    assert (again.written, again.known) == (0, 2)
    two = tmp_path / "two.db"
    assert pulled(two, store).rows == {
        "tasks": 1,
        "trials": 1,
        "records": 1,
        "graphs": 0,
        "networks": 0,
    }
    assert rows(two) == rows(one)
    # nothing twice
    assert pulled(two, store).rows["trials"] == 0
    assert rows(two) == rows(one)


def test_networks_travel_without_their_schedules(tmp_path):
    """What a report shows of a pulled database: who reads what, how often, in which layouts."""
    step = Step(OWN.key, "m", "MatMul", ("a",), 2.0, reads=("x: rows",), func="f", schedule="import os")
    network = Network("model", (step, replace(step, label="n")), (Link(0, 1, "v", "rows"),), "here", 2.0, 1.0)
    one, two, store = database(tmp_path / "one.db"), tmp_path / "two.db", tmp_path / "store"
    with Database(one) as made:
        made.keep_network(network, compared=True)
    assert pushed(one, store).written == 3
    assert pulled(two, store).rows["networks"] == 1
    with Database(two) as made:
        assert made.networks() == (network.without_schedules(),)
        assert all(not step.schedule for step in made.networks()[0].steps)
    # those of one's own stay
    pulled(one, store)
    with Database(one) as made:
        assert made.networks() == (network,)


def test_merges_know_no_order_and_no_conflict(tmp_path):
    paths = [
        database(tmp_path / "a.db", names=("a", "b"), seconds=1.0),
        database(tmp_path / "b.db", names=("c",), seconds=0.5),
        database(tmp_path / "c.db", names=("d",), seconds=1.5),
        database(tmp_path / "d.db", names=("e",), task=OTHER),
    ]
    found = []
    for seed in range(4):
        order = random.Random(seed).sample(paths, len(paths))
        store = tmp_path / f"store{seed}"
        for path in order:
            pushed(path, store)
        pulled(tmp_path / f"m{seed}.db", store)
        found.append(rows(tmp_path / f"m{seed}.db"))
    assert found[0] == found[1] == found[2] == found[3]
    with Database(tmp_path / "m0.db") as made:
        assert made.best(OWN.key).seconds == 0.5
    assert origins(tmp_path / "m0.db") == list("abcde")
    # its own records stay
    pulled(paths[2], tmp_path / "store0")
    with Database(paths[2]) as made:
        assert made.best(OWN.key).seconds == 1.5
    assert origins(paths[2]) == list("abcde")


def test_a_later_session_pushes_only_what_is_new(tmp_path):
    one, store = database(tmp_path / "one.db"), tmp_path / "store"
    pushed(one, store)
    with Database(one) as made:
        made.add(OWN.key, [Trial(Candidate("later", PLAN), "ok", (1.0,))], made.begin("random", 1))
    assert pushed(one, store).written == 1
    pulled(tmp_path / "two.db", store)
    assert origins(tmp_path / "two.db") == ["later", "x"]


def objects(store):
    return sorted((store / FOLDER).iterdir())


def rewritten(store, at, change):
    """An object in place of another one, under the name of its content."""
    lines = objects(store)[at].read_text().splitlines()
    objects(store)[at].unlink()
    content = ("\n".join(change(lines)) + "\n").encode()
    path = store / FOLDER / f"{hashlib.sha256(content).hexdigest()}.jsonl"
    path.write_bytes(content)
    return path.name


def edit(line, **fields):
    return json.dumps({**json.loads(line), **fields})


CHANGES = {
    "line 1 does not say": lambda lines: [edit(lines[0], version=2), *lines[1:]],
    "a task's key is not that": lambda lines: [lines[0], edit(lines[1], target="0" * 40), *lines[2:]],
    "a task's key is not": lambda lines: [lines[0], edit(lines[1], threads=7), *lines[2:]],
    "line 2 is not JSON": lambda lines: [lines[0], lines[1][:-9], *lines[2:]],
    "'threads' is no number that can be": lambda lines: [lines[0], edit(lines[1], threads=1e999), *lines[2:]],
}


@pytest.mark.parametrize("why", CHANGES)
def test_objects_that_are_not_what_they_say_are_refused_by_name(tmp_path, why):
    store = tmp_path / "store"
    pushed(database(tmp_path / "a.db", names=("a",)), store)
    name = rewritten(store, 0, CHANGES[why])
    pushed(database(tmp_path / "b.db", names=("good",), task=OTHER), store)
    done = pulled(tmp_path / "m.db", store)
    ((refused, reason),) = done.refused
    assert refused == name and why in reason
    assert done.objects == 3 and "good" in origins(tmp_path / "m.db")


def test_damaged_and_foreign_files(tmp_path, capsys):
    store, records = tmp_path / "store", str(tmp_path / "m.db")
    assert main(["db", "push", str(store), "--records", str(database(tmp_path / "a.db"))]) == 0
    assert "2 objects written, 0 were there" in capsys.readouterr().out
    (store / FOLDER / "notes.txt").write_text("not ours")
    damaged = objects(store)[0]
    damaged.write_bytes(damaged.read_bytes()[:-20])
    (store / FOLDER / f"{'0' * 64}.jsonl").write_bytes(b"\xff\xfe")
    assert main(["db", "pull", str(store), "--records", records]) == 1
    said = capsys.readouterr()
    assert f"{damaged.name} is refused: its content is not what its name says" in said.err
    assert "1 object: " in said.out and "notes.txt" not in said.err
    assert main(["db", "pull", str(store), "--records", records, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["refused"]) == 2
    assert main(["db", "push", str(store), "--records", records, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command"] == "db push"


def test_objects_that_are_no_text_or_too_large(tmp_path, monkeypatch):
    store = tmp_path / "store"
    pushed(database(tmp_path / "a.db"), store)
    (store / FOLDER / f"{hashlib.sha256(bytes([255])).hexdigest()}.jsonl").write_bytes(bytes([255]))
    assert [why for _, why in pulled(tmp_path / "m.db", store).refused] == ["it is no text"]
    monkeypatch.setattr(share, "MOST_BYTES", 10)
    assert {why for _, why in pulled(tmp_path / "m.db", store).refused} == {
        "it has more than 10 bytes",
        "it is no text",
    }


PUSHER = """
import sys
sys.path[:0] = ["tests", "."]
from pathlib import Path
from tests.unit.tune.test_share import database, pushed
for n in range(8):
    name = f"{sys.argv[2]}{n}"
    pushed(database(Path(sys.argv[1], name + ".db"), names=("same", name)), Path(sys.argv[1], "store"))
"""


@pytest.mark.slow
def test_who_pushes_at_the_same_time_loses_nothing(tmp_path):
    command = [sys.executable, "-c", PUSHER, str(tmp_path)]
    pushers = [subprocess.Popen([*command, name], cwd=ROOT) for name in "abc"]
    assert [pusher.wait() for pusher in pushers] == [0, 0, 0]
    done = pulled(tmp_path / "m.db", tmp_path / "store")
    assert done.refused == ()
    names = origins(tmp_path / "m.db")
    assert set(names) == {"same", *(f"{name}{n}" for name in "abc" for n in range(8))}


def test_what_is_no_place_to_share(tmp_path, monkeypatch):
    path = database(tmp_path / "a.db")
    with pytest.raises(InputError, match="there are no records at"):
        pulled(path, tmp_path / "nothing")
    with pytest.raises(InputError, match="is no path to share at"):
        pushed(path, "nonsense://x")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ResourceError, match="cannot write to"):
        pushed(path, file)
    with pytest.raises(InstallationError, match="needs more"):
        pushed(path, "adl://x/y")
    unreadable = tmp_path / "store"
    pushed(path, unreadable)
    objects(unreadable)[0].unlink()
    (unreadable / FOLDER / f"{'1' * 64}.jsonl").mkdir()
    with pytest.raises(ResourceError, match="cannot read"):
        pulled(path, unreadable)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InstallationError, match="sharing needs fsspec"):
        pushed(path, tmp_path)
