"""Fits of a machine from a database: samples of its own trials alone, and what the command says."""

import json
from dataclasses import replace
from random import Random

import pytest

from tilewright import lang
from tilewright.cli import main
from tilewright.cost import Machine, seconds
from tilewright.ir import canonical_program
from tilewright.plan import EXACT
from tilewright.strategies import STRATEGIES, Candidate, History, Prices, Task, Trial
from tilewright.target import detect
from tilewright.tune import Database, samples_of

SIZES = [
    (64, 64, 64),
    (1, 512, 512),
    (96, 96, 32),
    (16, 128, 512),
    (256, 32, 64),
    (8, 512, 256),
    (32, 32, 32),
]


def product(m, n, k):
    A, B = lang.placeholder((m, k), name="A"), lang.placeholder((k, n), name="B")
    return canonical_program(lang.program([A, B], [lang.ops.matmul(A, B, name="C")]))


@pytest.fixture
def path(tmp_path):
    """A database of what plans would take here if this machine had half the multiply-adds of its class."""
    truth = detect(measured=False)
    truth = replace(truth, fma_per_cycle=truth.fma_per_cycle / 2)
    with Database(tmp_path / "r.db") as found:
        for size in SIZES:
            task = Task(product(*size), Machine(detect(), 1), accuracy=EXACT)
            prices = Prices(task)
            drawn = STRATEGIES["random"].start(task, History(), Random(0)).propose(8)
            trials = [
                Trial(Candidate(each.origin, each.plan), "ok", (seconds(tree, Machine(truth, 1)),))
                for each in [Candidate("default", task.default().plan), *drawn]
                if (tree := prices.tree(each.plan)) is not None
            ]
            found.declare(task, "product", task.key)
            found.add(task.key, [*trials, Trial(trials[0].candidate, "wrong", (), "off by one")])
    return tmp_path / "r.db"


def test_samples_are_of_plans_that_ran_here(path):
    with Database(path) as found:
        samples = samples_of(found, detect())
        assert len({sample.task for sample in samples}) == len(SIZES) < len(samples)
        assert all(sample.threads == 1 and sample.seconds > 0 for sample in samples)
        key = samples[0].task
        found._connection.execute("UPDATE tasks SET target = 'another' WHERE key = ?", (key,))
        assert {s.task for s in samples_of(found, detect())} == {s.task for s in samples} - {key}
        found._connection.execute("UPDATE tasks SET program = 'nonsense'")
        assert samples_of(found, detect()) == []


def test_the_command_fits(path, capsys):
    assert main(["targets", "--fit", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    quantity = told["quantities"]["multiply-adds a cycle"]
    assert quantity["fitted"] == pytest.approx(quantity["class"] / 2, rel=0.3)
    assert told["error"]["fitted"] < told["error"]["class"] and told["tasks"] == len(SIZES)
    assert main(["targets", "--fit", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"of {len(SIZES)} tasks of this machine" in out and "multiply-adds a cycle" in out
    assert "error of the model, tasks held out:" in out


def test_a_database_with_too_little_is_refused(tmp_path, capsys):
    Database(tmp_path / "empty.db").close()
    assert main(["targets", "--fit", str(tmp_path / "empty.db")]) == 2
    assert "a fit needs 6 tasks of this machine" in capsys.readouterr().err
