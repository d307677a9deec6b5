"""Tuning nests, as models are: parts are tasks, what is found is kept and used, and plans are files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.cost import Machine
from tilewright.driver import LocalMeasurer, Nest, tune_model, tuning
from tilewright.driver.measure_worker import Runner
from tilewright.frontend.nests import scop
from tilewright.ir import function_at, print_source, structural_hash
from tilewright.strategies import NestTask, Trial, loops_plan
from tilewright.support import ArtefactError, InputError, TargetError
from tilewright.target import detect
from tilewright.tune import Database, Record
from unit.frontend.nests.polybench import KERNELS

# ruff: noqa: F821 (annotations are read as text; names are those of the mathematics)

SIZES = {"N": 60, "T": 4}
ORDER = "in the order in which it is written"
"""What the rule decides at these sizes: tiles would not run wider on one thread."""
WRITTEN, BEST = loops_plan("written"), loops_plan("tiles", (16, 16, 16))


def seidel(threads=1, **options):
    return Nest(scop(KERNELS["seidel_2d"]).func, threads=threads, **options)


def tuned(database, **options):
    given = {"budget": 30, "sizes": SIZES, "threads": 1, "database": database, **options}
    return tune_model(KERNELS["seidel_2d"], **given)


class MadeUp(LocalMeasurer):
    """Times are made up: tiles of 16 in all loops are the fastest."""

    def measure(self, task, candidates, limits=None):
        rounds = 13 if limits is None else limits.rounds
        return [
            Trial(each, "ok", (self.seconds(each.plan),) * rounds, func=each.plan.to_json())
            for each in candidates
        ]

    def seconds(self, plan):
        lines = [line for line in plan.to_json().split('"') if "for d" in line]
        return 99.0 if not lines else 1.0 + sum(abs(int(line.split("/")[1]) - 16) for line in lines)


def test_what_is_found_is_kept_and_used(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "LocalMeasurer", MadeUp)
    path = tmp_path / "records.db"
    made = tuned(path)
    (result,) = made.results
    assert result.plan == BEST and result.untuned == 99.0 and made.plan.units
    assert made.model.scheduled({}).notes[-1] == "in tiles of 16 x 16 x 16"
    # the file of the plan says the same, of other sizes nothing
    plan = made.plan.to_json()
    assert seidel(plan=plan).scheduled(SIZES).notes == made.model.scheduled({}).notes
    with pytest.raises(InputError, match="the plan is of another model"):
        seidel(plan=plan).scheduled({"N": 61, "T": 4})
    with pytest.raises(InputError, match="the plan was made for 1 thread"):
        seidel(threads=2, plan=plan).scheduled(SIZES)
    edited = plan.replace("for d0/16", "for d0/1600")
    with pytest.raises(ArtefactError, match="loops have no frame"):
        seidel(plan=edited).scheduled(SIZES)


def test_records_are_used_where_the_function_is_the_one_that_was_measured(tmp_path):
    path, func = tmp_path / "records.db", function_at(seidel().arguments, SIZES)
    task = NestTask(func, Machine(detect(), 1))
    record = Record(task.key, BEST, structural_hash(task.carried_out(BEST).func), 1.0, 2.0)
    with Database(path) as records:
        records.declare(task, "seidel", task.key)
        records.keep(task.key, [record])
    assert seidel(records=path).scheduled(SIZES).notes == ("in tiles of 16 x 16 x 16",)
    assert seidel(records=path).scheduled({"N": 61, "T": 4}).notes[-1] == ORDER
    assert seidel(2, records=path).scheduled(SIZES).notes[-1] != "in tiles of 16 x 16 x 16"
    with Database(path) as records:
        records.keep(task.key, [replace(record, func="of another function")])
    assert seidel(records=path).scheduled(SIZES).notes[-1] == ORDER


def request(plan, **more):
    func = function_at(seidel().arguments, SIZES)
    return {
        "program": print_source(func), "reference": WRITTEN.to_json(), "threads": 1, "form": "plan",
        "candidate": plan.to_json(), "slow": 1e9, **more,
    }  # fmt: skip


def test_arrays_are_as_they_were_before_each_run_and_wrong_results_are_found(monkeypatch):
    runner = Runner(detect())
    (told,) = runner.answer({"do": "run", "candidates": [request(BEST)], "rounds": 1})["trials"]
    # a run on what another one left would go on with it
    assert told["status"] == "ok" and told["seconds"]
    ready, _ = runner._checked(request(BEST))
    ready.plan.measure([], [], repeats=3)
    once, _ = runner._checked(request(BEST))
    once.plan.run([], [])
    for a, b in zip(ready._table, once._table, strict=True):
        assert (a == b).all()
    other = function_at(seidel().arguments, SIZES | {"T": 3})
    wrong = NestTask(other, Machine(detect(), 1)).carried_out(WRITTEN)
    monkeypatch.setattr(NestTask, "carried_out", lambda self, plan: wrong)
    runner._built.clear()
    (told,) = runner.answer({"do": "run", "candidates": [request(BEST)], "rounds": 1})["trials"]
    assert told["status"] == "wrong" and "by the untuned plan" in told["reason"]


def test_what_cannot_be_tuned_is_refused():
    def sparse(x: f64[N], y: f64[N], column: i32[N]):
        for _t in range(3):
            for i in range(N):
                y[i] = y[i] + x[column[i]] * y[i]

    def refused(match, error=InputError, function=KERNELS["seidel_2d"], **options):
        with pytest.raises(error, match=match):
            tune_model(function, **{"sizes": SIZES, "database": "off", "budget": 1, **options})

    refused("has no part to tune", function=sparse, sizes={"N": 9})
    refused("the size T", sizes={"N": 9})
    refused("cannot be timed on this machine", TargetError, target="x86_avx2")
