"""Construction: the default first, distinct plans of their spaces, all right; equal seeds, equal plans."""

import os
import subprocess
import sys
from random import Random

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.test_unit import PROGRAMS
from tests.unit.strategies.test_default import check_schedule

from tilewright.cost import Machine
from tilewright.plan import plan_unit
from tilewright.strategies import STRATEGIES, Candidate, History, Task, Trial, best_by_model, catalog


def candidates(name, count, seed=0, threads=2):
    task = Task(PROGRAMS[name], Machine(STATED, threads))
    return task, STRATEGIES["construct"].start(task, History(), Random(seed)).propose(count)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["product", "product with weights", "convolution", "general", "min-plus"])
def test_candidates_are_distinct_of_their_space_and_right(name):
    task, found = candidates(name, 5)
    assert len({candidate.plan for candidate in found}) == len(found) == 5
    assert found[0].plan == plan_unit(task.program, Machine(STATED, 2)).plan
    for candidate in found[1:]:
        # carried out only where each plan is one of its space
        check_schedule(task.program, candidate.schedule(task))


def test_nests_that_are_not_constructed_keep_their_default_plan():
    _, found = candidates("softmax", 5)
    assert len(found) == 1
    task, found = candidates("skinny product", 4)
    assert len(found) == 4
    check_schedule(task.program, found[1].schedule(task))


def test_one_seed_one_plan_in_every_process():
    # one thread: the tests of strategies set when others are worth it, and a new process does not
    code = (
        "from tests.unit.strategies.construct.test_strategy import candidates\n"
        "print(*(c.plan.to_json() for c in candidates('min-plus', 30, 7, 1)[1]), sep='\\n')"
    )
    env = {**os.environ, "PYTHONHASHSEED": "5", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here = [c.plan.to_json() for c in candidates("min-plus", 30, 7, threads=1)[1]]
    assert done.stdout.splitlines() == here
    assert len(here) > 4


def test_what_was_proposed_is_not_proposed_again():
    task = Task(PROGRAMS["general"], Machine(STATED, 2))
    search = STRATEGIES["construct"].start(task, History(), Random(0))
    first, second = search.propose(4), search.propose(4)
    assert len(first) == len(second) == 4
    assert not {c.plan for c in first} & {c.plan for c in second}


def test_the_model_chooses_among_them():
    task, found = candidates("product", 1000)
    chosen = best_by_model(STRATEGIES["construct"], task, count=4)
    assert chosen.plan in {candidate.plan for candidate in found}


def test_what_was_measured_is_gone_on_from():
    task = Task(PROGRAMS["general"], Machine(STATED, 2))
    search = STRATEGIES["construct"].start(task, History(), Random(0))
    seen = []
    best = None
    for _ in range(12):
        candidates = search.propose(4)
        # few vectors and many rows are the fastest here
        trials = [Trial(c, "ok", (abs(c.plan.nests[0].choice.vectors - 1) + 1.0,)) for c in candidates]
        search.observe(trials)
        seen += [c.plan for c in candidates]
        best = min((best, *trials), key=lambda t: t.best) if best else min(trials, key=lambda t: t.best)
    assert len(set(seen)) == len(seen)
    assert best.candidate.plan.nests[0].choice.vectors == 1
    followed = [c for c in seen[8:] if c.nests[0].choice.vectors == 1]
    assert followed
    check_schedule(task.program, Candidate("construct", seen[-1]).schedule(task))


def test_the_best_by_the_model_is_taken_and_the_default_where_nothing_is_cheaper(monkeypatch):
    task, found = candidates("min-plus", 8)
    gains = [1.0] * 8

    def price(_, plan):
        return 1 / gains[[c.plan for c in found].index(plan)]

    monkeypatch.setattr(catalog.Prices, "seconds", price)
    assert best_by_model(STRATEGIES["construct"], task, count=8).plan == found[0].plan
    gains[2:4] = 1.05, 1.01
    assert best_by_model(STRATEGIES["construct"], task, count=8).plan == found[2].plan
