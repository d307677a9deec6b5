"""Tuning for real: candidates built, checked and timed in a process that may crash, hang or lie."""

import json
import sys
from dataclasses import replace

import pytest
from tests import onnx_models as tiny
from tests.native_kernel import HOST
from tests.unit.plan.test_unit import PROGRAMS

import tilewright
from tilewright import lang
from tilewright.cost import Machine
from tilewright.driver import LocalMeasurer, tune_model
from tilewright.driver.measure_worker import Runner
from tilewright.driver.tuning import seconds_of
from tilewright.ir import parse_program, print_program
from tilewright.plan import plan_unit
from tilewright.schedule import Schedule, Step, Trace
from tilewright.strategies import Candidate, Task
from tilewright.support import InputError, TargetError
from tilewright.target import AARCH64_NEON

TASK = Task(parse_program(print_program(PROGRAMS["product"])), Machine(HOST, 1))


def default(task=TASK):
    return Candidate("default", task.default().plan)


@pytest.fixture(scope="module")
def measurer():
    with LocalMeasurer() as made:
        yield made


def test_a_candidate_is_built_checked_and_timed(measurer):
    (trial,) = measurer.measure(TASK, [default()])
    assert trial.status == "ok", trial.reason
    assert 0 < trial.best < 1


def test_refused_candidates_say_why(measurer):
    plan = default().plan
    bad = replace(plan, nests=tuple(replace(n, plan=replace(n.plan, rows=999)) for n in plan.nests))
    (trial,) = measurer.measure(TASK, [Candidate("x", bad)])
    assert trial.status == "refused"
    assert "rows is 999" in trial.reason


def test_candidates_may_lay_out_arguments_anew(measurer):
    """Arguments placed, re-indexed, unfolded: converted before the clock starts, compared in their order."""
    task = Task(parse_program(print_program(PROGRAMS["convolution"])), Machine(HOST, 1))
    blocks = ("d0", "d1//8", "d2", "d3", "d1%8")
    for steps in (
        [Step("layout_place", ("Y", blocks)), Step("layout_place", ("X", blocks))],
        [Step("layout_place", ("Y", blocks)), Step("layout_adopt", ("Y",))],
        [Step("layout_place", ("Y", ())), Step("layout_split", ("Y", 1, (4, 8)))],
        [Step("layout_unfold", ("X", 2, 5, 4)), Step("layout_reorder", ("W", (2, 3, 1, 0)))],
    ):
        s = Schedule(task.program).replay(steps)
        made = plan_unit(s.require_program(), HOST, 1).plan
        plan = replace(made, rewrites=Trace((*steps, *made.rewrites.steps)))
        (trial,) = measurer.measure(task, [Candidate("x", plan)])
        assert trial.status == "ok", (steps, trial.reason)


def test_a_wrong_result_is_seen():
    """What is remembered of one program, and a candidate that computes something else."""
    task = Task(parse_program(print_program(PROGRAMS["softmax"])), Machine(HOST, 1))
    reference = default(task).plan.to_json()
    wrong = print_program(PROGRAMS["softmax"]).replace("exp_nonpositive(", "abs(")
    assert wrong != print_program(PROGRAMS["softmax"])
    runner = Runner(HOST)
    request = {
        "program": print_program(PROGRAMS["softmax"]),
        "reference": reference,
        "threads": 1,
        "form": "plan",
        "candidate": reference,
    }
    assert runner.answer(request)["status"] == "ok"
    known = runner._references.pop(request["program"])
    runner._references[wrong] = known
    answer = runner.answer(request | {"program": wrong})
    assert answer["status"] == "wrong"
    assert "by the untuned plan" in answer["reason"]


def test_traces_are_candidates(measurer):
    trials = measurer.measure(TASK, [Candidate("x", TASK.default().schedule.trace), Candidate("x", Trace())])
    assert [trial.status for trial in trials] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("import os; os.abort()", "crashed"),
        ("input(); import time; time.sleep(60)", "hung"),
        ("input(); print('nonsense'); input()", "crashed"),
        ("input(); print('[]'); input()", "crashed"),
    ],
)
def test_processes_that_fail_are_trials(code, status):
    with LocalMeasurer(timeout=2.0, command=(sys.executable, "-c", code)) as measurer:
        (trial,) = measurer.measure(TASK, [default()])
        assert trial.status == status
        assert trial.reason


def test_tasks_of_other_machines_are_refused(measurer):
    with pytest.raises(TargetError, match="cannot be timed on this machine"):
        measurer.measure(Task(TASK.program, Machine(AARCH64_NEON, 1)), [])


def test_models_of_devices_are_not_tuned_yet():
    with pytest.raises(TargetError, match="kernels for 'c' cannot be tuned yet"):
        tune_model(tilewright.compile(tiny.mlp(), target="c"))


def test_a_model_is_tuned_and_compiles_from_what_was_found(tmp_path):
    model = tiny.mlp()
    compiled = tilewright.compile(model, threads=1)
    seen = []
    tuned = tune_model(compiled, budget="60s", trials=3, database=tmp_path / "r.db", watch=seen.append)
    assert len(tuned.results) == len(seen) > 0
    assert all(not done.known and done.untuned < 1 for done in seen)
    again = tune_model(compiled, budget=60, trials=3, database=tmp_path / "r.db")
    assert all(done.known for done in again.results)
    other = tilewright.compile(model, threads=1, plan=json.dumps(json.loads(tuned.plan.to_json())))
    assert other.plan() == tuned.plan


@pytest.mark.parametrize("budget", ["soon", "5", "0s", 0, -1.0, "m"])
def test_other_budgets_are_refused(budget):
    with pytest.raises(InputError, match="is no budget"):
        seconds_of(budget)


def test_budgets_are_read():
    assert [seconds_of(b) for b in ("90s", "1.5m", "2h", 7)] == [90, 90, 7200, 7]


def test_the_default_strategy_searches_nothing():
    with pytest.raises(InputError, match="searches nothing"):
        tune_model(tilewright.compile(tiny.mlp(), threads=1), strategy="default")


def test_differences_may_err_by_the_rounding_of_what_they_are_of():
    """x*x - x*x is nothing, or what the stored product lost: inputs without signs do not show how much."""
    x = lang.placeholder((64, 64), name="X")
    square = lang.compute((64, 64), lambda i, j: x[i, j] * x[i, j], name="square")
    out = lang.compute((64, 64), lambda i, j: x[i, j] * x[i, j] - square[i, j], name="out")
    program = parse_program(print_program(lang.program([x], [out])))
    reference = Task(program, Machine(HOST, 1)).default().plan.to_json()
    request = {"program": print_program(program), "reference": reference, "threads": 1}
    stored = {"form": "trace", "candidate": Schedule(program).trace.to_json()}
    runner = Runner(HOST)
    assert runner.answer(request | stored)["status"] == "ok"
    known = runner._references[request["program"]]
    # what is no rounding is wrong still
    known.results["out"][7, 9] += 1e-2
    assert runner.answer(request | stored)["status"] == "wrong"
