"""Measuring for real: candidates built, checked and timed in processes that may crash, hang, leak or lie."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from tests.native_kernel import HOST
from tests.plans import asked_of as choices_alone
from tests.unit.plan.test_unit import PROGRAMS

from tilewright import lang
from tilewright.cost import Machine
from tilewright.driver import LocalMeasurer, measure_worker, measuring
from tilewright.driver.measure_worker import Runner
from tilewright.ir import parse_program, print_program
from tilewright.plan import plan_unit
from tilewright.runtime import address_of
from tilewright.schedule import Schedule, Step, Trace
from tilewright.strategies import STRATEGIES, Candidate, History, Task
from tilewright.support import TargetError
from tilewright.target import AARCH64_NEON
from tilewright.tune import TrialLimits

ROOT = Path(__file__).parents[3]

TASK = Task(parse_program(print_program(PROGRAMS["product"])), Machine(HOST, 1))


def default(task=TASK):
    return Candidate("default", task.default().plan)


def ran(runner, request):
    """What becomes of one candidate."""
    (told,) = runner.answer({"do": "run", "candidates": [request], "rounds": 1})["trials"]
    return told


@pytest.fixture(scope="module")
def measurer():
    with LocalMeasurer() as made:
        yield made


def test_a_candidate_is_built_checked_and_timed(measurer):
    (trial,) = measurer.measure(TASK, [default()])
    assert trial.status == "ok", trial.reason
    assert 0 < trial.best < 1


def test_after_an_interruption_answers_belong_to_what_is_asked(monkeypatch):
    """Ctrl-C while a process builds or runs: what it would have said is not taken for the next answer."""
    waited = measuring._Worker.wait

    def interrupted(self, seconds):
        monkeypatch.setattr(measuring._Worker, "wait", waited)
        raise KeyboardInterrupt

    with LocalMeasurer(workers=1) as made:
        monkeypatch.setattr(measuring._Worker, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.measure(TASK, [default()])
        assert made.processes == ()
        trials = made.measure(TASK, [default(), default()], TrialLimits(rounds=2))
        assert [(t.status, len(t.seconds)) for t in trials] == [("ok", 2)] * 2


def test_refused_candidates_say_why(measurer):
    plan = default().plan
    bad = choices_alone(plan, replace(plan.nests[0].choice, rows=999))
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
        made = plan_unit(s.require_program(), Machine(HOST, 1)).plan
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
        "slow": 20.0,
    }
    assert ran(runner, request)["status"] == "ok"
    known = runner._references.pop(request["program"])
    runner._references[wrong] = known
    answer = ran(runner, request | {"program": wrong})
    assert answer["status"] == "wrong"
    assert "by the untuned plan" in answer["reason"]


def test_without_the_untuned_plan_nothing_can_be_checked():
    plan = default().plan
    bad = choices_alone(plan, replace(plan.nests[0].choice, rows=999))
    request = {
        "program": print_program(TASK.program),
        "reference": bad.to_json(),
        "threads": 1,
        "form": "plan",
        "candidate": plan.to_json(),
        "slow": 20.0,
    }
    told = ran(Runner(HOST), request)
    assert told["status"] == "uncompilable"
    assert "the untuned plan is refused" in told["reason"]


def test_traces_are_candidates(measurer):
    trials = measurer.measure(TASK, [Candidate("x", TASK.default().schedule.trace), Candidate("x", Trace())])
    assert [trial.status for trial in trials] == ["ok", "ok"]


def test_tasks_of_other_machines_are_refused(measurer):
    with pytest.raises(TargetError, match="cannot be timed on this machine"):
        measurer.measure(Task(TASK.program, Machine(AARCH64_NEON, 1)), [])


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
    with LocalMeasurer(TrialLimits(build_seconds=2.0), command=(sys.executable, "-c", code)) as measurer:
        (trial,) = measurer.measure(TASK, [default()])
        assert trial.status == status
        assert trial.reason


def test_differences_may_err_by_the_rounding_of_what_they_are_of():
    """x*x - x*x is nothing, or what the stored product lost: inputs without signs do not show how much."""
    x = lang.placeholder((64, 64), name="X")
    square = lang.compute((64, 64), lambda i, j: x[i, j] * x[i, j], name="square")
    out = lang.compute((64, 64), lambda i, j: x[i, j] * x[i, j] - square[i, j], name="out")
    program = parse_program(print_program(lang.program([x], [out])))
    reference = Task(program, Machine(HOST, 1)).default().plan.to_json()
    request = {"program": print_program(program), "reference": reference, "threads": 1, "slow": 20.0}
    stored = {"form": "trace", "candidate": Schedule(program).trace.to_json()}
    runner = Runner(HOST)
    assert ran(runner, request | stored)["status"] == "ok"
    known = runner._references[request["program"]]
    # what is no rounding is wrong still
    known.results["out"][7, 9] += 1e-2
    assert ran(runner, request | stored)["status"] == "wrong"


def test_sums_of_lengths_of_their_own_are_checked():
    x = lang.placeholder((30, 7), name="X")

    def running(i, j):
        r = lang.reduce_axis(i + 1, "r")
        return lang.sum(x[r, j], axis=r)

    program = parse_program(print_program(lang.program([x], [lang.compute((30, 7), running, name="sums")])))
    reference = Task(program, Machine(HOST, 1)).default().plan.to_json()
    request = {"program": print_program(program), "reference": reference, "threads": 1, "slow": 20.0}
    other = {"form": "trace", "candidate": Schedule(program).trace.to_json()}
    assert ran(Runner(HOST), request | other)["status"] == "ok"


SAYS_OK = (
    "import sys, json\n"
    "for line in sys.stdin:\n"
    "    r = json.loads(line)\n"
    "    told = {'status': 'ok', 'reason': '', 'func': r.get('candidate', 'f')[:200]}\n"
    "    if r['do'] == 'run':\n"
    "        told = {'trials': [told | {'seconds': SECONDS}] * len(r['candidates']), 'held': HELD}\n"
    "    print(json.dumps(told), flush=True)\n"
)


def saying(seconds, held=0):
    """A process that builds anything and says what it is told."""
    return (sys.executable, "-c", SAYS_OK.replace("SECONDS", repr(seconds)).replace("HELD", repr(held)))


@pytest.mark.parametrize("seconds", [[], [0.0], [-1.0], ["soon"], None, [float("inf")], [True]])
def test_times_that_cannot_be_are_no_times(seconds):
    with LocalMeasurer(command=saying(seconds)) as measurer:
        (trial,) = measurer.measure(TASK, [default()])
        assert trial.status == "crashed"


def test_a_process_that_leaks_is_replaced():
    with LocalMeasurer(workers=1, command=saying([1.0], held=1 << 60)) as measurer:
        (trial,) = measurer.measure(TASK, [default()])
        assert (trial.status, measurer.processes) == ("ok", ())
    with LocalMeasurer(workers=1, command=saying([1.0])) as measurer:
        measurer.measure(TASK, [default()])
        assert len(measurer.processes) == 1


def test_what_takes_too_much_memory_is_told(measurer):
    limits = TrialLimits(memory_bytes=1 << 20)
    with LocalMeasurer(limits, workers=1) as small:
        (trial,) = small.measure(TASK, [default()])
    assert trial.status in ("memory", "crashed", "uncompilable"), trial.reason


def test_a_process_that_is_killed_takes_one_trial_with_it(measurer):
    """What it had built is built again by another one."""
    plans = [default(), *others(5)]
    measurer.measure(TASK, plans)
    for pid in measurer.processes:
        os.kill(pid, signal.SIGKILL)
    fresh = measurer.measure(TASK, [replace(each, origin="again") for each in others(9)[5:]])
    assert sum(trial.status != "ok" for trial in fresh) <= 2
    assert {trial.status for trial in measurer.measure(TASK, others(9)[5:])} == {"ok"}


def others(count):
    search = STRATEGIES["random"].start(TASK, History(), Random(0))
    return list(search.propose(count + 1))[1:]


def test_candidates_take_turns_in_one_process(measurer):
    plans = [default(), *others(2)]
    trials = measurer.measure(TASK, plans, TrialLimits(rounds=4))
    assert [(t.status, len(t.seconds)) for t in trials] == [("ok", 4)] * 3
    assert all(t.build_seconds > 0 for t in trials)


def test_trials_that_ran_tell_how_long_building_took(measurer):
    """Also those of a function that was measured before: what is set aside for decisions follows from it."""
    for origin in ("first", "again"):
        trials = measurer.measure(TASK, [replace(c, origin=origin) for c in others(2)])
        assert [t.status for t in trials] == ["ok"] * 2
        assert all(t.build_seconds > 0 for t in trials)


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 1), (3600.0, 3)])
def test_rounds_end_while_somebody_waits(seconds, rounds):
    """The first is always made; where there is no time for more, what it gave is told."""
    task = Task(TASK.program, TASK.machine)
    with LocalMeasurer() as made:
        made.measure(task, [])
        request = made._request(task, default(), TrialLimits())
    asked = {"do": "run", "candidates": [request] * 2, "rounds": 3, "seconds": seconds}
    answer = Runner(HOST).answer(asked)
    assert [len(told["seconds"]) for told in answer["trials"]] == [rounds] * 2


def asked_of(candidate):
    with LocalMeasurer() as made:
        made.measure(TASK, [])
        return made._request(TASK, candidate, TrialLimits())


def test_arguments_are_moved_between_rounds(monkeypatch):
    """Where arrays lie is drawn anew for each round, and results are the same; large ones stay."""
    runner, rng = Runner(HOST), np.random.default_rng(1)
    request = asked_of(default())
    ready, answer = runner._checked(request)
    assert answer["status"] == "ok"
    places = {tuple(address_of(array) for array in ready._table)}
    for _ in range(6):
        moved = ready.elsewhere(rng)
        before = [array.copy() for array in moved._table]
        for old, new in zip(ready._table, before, strict=True):
            np.testing.assert_array_equal(old, new)
        moved._table[-1].fill(7)  # the result
        moved.plan.run([], [])
        for old, new in zip(before, moved._table, strict=True):
            np.testing.assert_array_equal(old, new)
        places.add(tuple(address_of(array) for array in moved._table))
        ready = moved
    assert len(places) >= 6
    monkeypatch.setattr(measure_worker, "MOST_MOVED", 1)
    assert ready.elsewhere(rng) is ready


@pytest.mark.parametrize(("again", "status"), [(1e-3, "ok"), (0.4, "slow")])
def test_one_slow_run_is_repeated_before_it_is_called_slow(again, status, monkeypatch):
    runner, run = Runner(HOST), Runner._run
    request = asked_of(default())
    assert ran(runner, request)["status"] == "ok"

    def disturbed(self, *arguments):
        results, ready, _ = run(self, *arguments)
        ready.plan = SimpleNamespace(measure=lambda *_, **__: np.full((1, 1), again * 1e9))
        return results, ready, 0.5

    monkeypatch.setattr(Runner, "_run", disturbed)
    assert runner._checked(request)[1]["status"] == status


def test_what_there_is_no_time_for_is_no_trial(measurer):
    for rounds in (1, 4):
        assert measurer.measure(TASK, [default()], TrialLimits(rounds=rounds, until=time.monotonic())) == []
    command = (sys.executable, "-c", "input(); import time; time.sleep(60)")
    with LocalMeasurer(command=command) as hanging:
        begin = time.monotonic()
        assert hanging.measure(TASK, [default()], TrialLimits(until=begin + 0.5)) == []
    assert len(measurer.measure(TASK, [default()], TrialLimits(until=time.monotonic() + 60))) == 1


def test_equal_functions_are_timed_once(measurer):
    trace = TASK.default().schedule.trace
    one, two = measurer.measure(TASK, [default(), Candidate("x", trace)])
    assert one.func == two.func and one.seconds == two.seconds


def test_no_process_outlives_the_one_that_tunes(tmp_path):
    """However that ends: its children are told by the kernel."""
    code = (
        "import sys, time\n"
        "from tilewright.cost import Machine\n"
        "from tilewright.driver import LocalMeasurer\n"
        "from tilewright.ir import parse_program\n"
        "from tilewright.strategies import Candidate, Task\n"
        "from tilewright.target import detect\n"
        f"task = Task(parse_program({print_program(TASK.program)!r}), Machine(detect(), 1))\n"
        "measurer = LocalMeasurer(workers=1)\n"
        "measurer.measure(task, [Candidate('default', task.default().plan)])\n"
        "print(*measurer.processes, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) as tuner:
        pids = [int(n) for n in tuner.stdout.readline().split()]
        assert pids and all(Path(f"/proc/{pid}").exists() for pid in pids)
        for pid in pids:
            # they cannot notice by themselves
            os.kill(pid, signal.SIGSTOP)
        tuner.kill()
        tuner.wait()
    for _ in range(100):
        left = [pid for pid in pids if running(pid)]
        if not left:
            break
        threading.Event().wait(0.05)
    assert not left


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
