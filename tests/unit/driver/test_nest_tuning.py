"""Tuning nests: what is faster is kept and used, what fails or is wrong never is."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from tilewright.cost import Machine
from tilewright.driver import Nest, nest_tuning, tune_nest
from tilewright.frontend.nests import scop
from tilewright.ir import function_at, print_function
from tilewright.strategies import NestPlan, schedule_nest
from tilewright.support import ArtefactError, InputError, TargetError
from tilewright.target import detect
from tilewright.tune import Database, NestRecord, nest_key
from unit.frontend.nests.polybench import KERNELS

# ruff: noqa: F821 (annotations are read as text; names are those of the mathematics)

SIZES = {"N": 60, "T": 4}
ORDER = "in the order in which it is written"
"""What the rule decides at these sizes: tiles would not run wider on one thread."""


def seidel(**options):
    return Nest(scop(KERNELS["seidel_2d"]).func, threads=1, **options)


def request(**more):
    func = function_at(scop(KERNELS["seidel_2d"]).func, SIZES)
    return {"func": print_function(func), "threads": 1, "seed": 0, "rounds": 2, "seconds": 60.0, **more}


def test_what_is_found_is_kept_and_used(tmp_path, monkeypatch):
    """Times are made up: tiles of 16 in all loops are the fastest."""

    def told(request, plans, rounds, seconds):
        each = (((32,) * 3 if plan is None else plan.tiles) for plan in plans)
        return [[1.0 + sum(abs(size - 16) for size in tiles) if tiles else 99.0] * rounds for tiles in each]

    monkeypatch.setattr(nest_tuning, "_told", told)
    path = tmp_path / "records.db"
    found = tune_nest(seidel(), SIZES, budget=30, database=path)
    assert found.plan == NestPlan((16, 16, 16))
    assert found.times.faster
    assert found.trials[NestPlan(())] == 99.0
    assert seidel(records=path).scheduled(SIZES).notes[-1] == "in tiles of 16 x 16 x 16"
    assert seidel(records=path).scheduled({"N": 61, "T": 4}).notes[-1] == ORDER
    assert (
        Nest(seidel().arguments, threads=2, records=path).scheduled(SIZES).notes[-1]
        != "in tiles of 16 x 16 x 16"
    )
    few = tune_nest(seidel(), SIZES, budget=30, trials=4, database=path)
    assert len(few.trials) <= 4

    asked = []

    def interrupted(request, plans, rounds, seconds):
        asked.append(plans)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return told(request, plans, rounds, seconds)

    monkeypatch.setattr(nest_tuning, "_told", interrupted)
    kept = tune_nest(seidel(), SIZES, budget=30, database=path)
    # the best of those found by then, compared with the default
    assert kept.plan == min(kept.trials, key=kept.trials.get) and asked[3:] == [[None, kept.plan]]

    monkeypatch.setattr(nest_tuning, "_told", lambda *_: [])
    assert tune_nest(seidel(), SIZES, budget=30, database=path).plan is None
    assert seidel(records=path).scheduled(SIZES).notes[-1] == ORDER


def test_candidates_are_measured_in_a_process(tmp_path):
    found = tune_nest(seidel(), SIZES, budget=600, trials=3, database=tmp_path / "r.db")
    assert len(found.trials) == 3
    assert all(0 < seconds < 60 for seconds in found.trials.values())


def test_equal_functions_are_timed_once_and_wrong_ones_never(monkeypatch):
    def other(func, machine, plan=None):
        made = schedule_nest(func, machine, plan)
        if plan == NestPlan((8,)):
            wrong = schedule_nest(function_at(scop(KERNELS["seidel_2d"]).func, SIZES | {"T": 3}), machine)
            return replace(made, func=wrong.func)
        if plan == NestPlan((64,)):
            raise ArtefactError("refused")
        return made

    monkeypatch.setattr(nest_tuning, "schedule_nest", other)
    times = nest_tuning.measured(request(plans=[None, [], [8], [64], [16]]))
    assert times[0] == times[1]
    assert [len(each) for each in times] == [2, 2, 0, 0, 2]


def test_after_the_time_nothing_more_is_built_or_run_again():
    assert [len(each) for each in nest_tuning.measured(request(plans=[None, [8]], seconds=0.0))] == [1, 0]


def test_a_process_that_fails_measures_nothing():
    assert nest_tuning._told({"func": "no function", "threads": 1, "seed": 0}, [None], 1, 30.0) == []


def test_what_cannot_be_tuned_is_refused(tmp_path):
    def sparse(x: f64[N], y: f64[N], column: i32[N]):
        for _t in range(3):
            for i in range(N):
                y[i] = y[i] + x[column[i]] * y[i]

    def tuned(nest, sizes, match, error=InputError):
        with pytest.raises(error, match=match):
            tune_nest(nest, sizes, database=tmp_path / "r.db")

    tuned(Nest(scop(sparse).func), {"N": 9}, "data decide about loops or indices of the nest 'sparse'")
    tuned(Nest(scop(KERNELS["durbin"]).func), {"N": 9}, "'durbin' has no tiles to tune")
    tuned(seidel(strategy="as-written"), SIZES, "is to stay as it is written")
    tuned(seidel(), {"N": 9}, "the size T")
    other = replace(detect(), llvm_cpu="other")
    tuned(seidel(target=other), SIZES, "cannot be timed on this machine", TargetError)


def test_records_of_nests_are_checked(tmp_path, caplog):
    path = tmp_path / "records.db"
    key = nest_key(function_at(seidel().arguments, SIZES), Machine(detect(), 1))
    record = NestRecord(NestPlan((8, 64)), 1.0, 2.0)
    with Database(path) as records:
        records.keep_nest(key, record)
        assert records.nest(key) == record
        assert records.nest("other") is None
    for text in ("[1]", "7", "[", '["8"]', "[[8]]"):
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE nests SET tiles = ?", (text,))
        with pytest.raises(ArtefactError):
            seidel(records=path).scheduled(SIZES)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE nests")
    assert seidel(records=path).scheduled(SIZES).notes[-1] == ORDER
