"""Random search: distinct plans, all legal, all right, the default first; equal seeds make equal searches."""

from random import Random

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.test_unit import PROGRAMS
from tests.unit.strategies.test_default import check_schedule

from tilewright.cost import Machine, seconds, tree_of
from tilewright.plan import plan_unit
from tilewright.strategies import STRATEGIES, Candidate, History, Task, Trial, best_by_model

TASKS = ("convolution", "product", "softmax")


def candidates(name, count, seed=0):
    task = Task(PROGRAMS[name], Machine(STATED, 2))
    return task, STRATEGIES["random"].start(task, History(), Random(seed)).propose(count)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", TASKS)
def test_candidates_are_distinct_legal_and_right(name):
    task, found = candidates(name, 12)
    assert len({candidate.plan for candidate in found}) == len(found) > 4
    assert found[0].plan == plan_unit(task.program, Machine(STATED, 2)).plan
    for candidate in found[:5]:
        check_schedule(task.program, candidate.schedule(task))


def test_equal_seeds_make_equal_searches():
    assert candidates("convolution", 8, 3)[1] == candidates("convolution", 8, 3)[1]
    assert candidates("convolution", 8, 3)[1] != candidates("convolution", 8, 4)[1]


def test_the_best_by_the_model_is_no_worse_than_the_default_by_it():
    task, _ = candidates("convolution", 1)
    chosen = best_by_model(STRATEGIES["random"], task, count=6)
    price = seconds(tree_of(chosen.schedule.func, STATED.operations), task.machine)
    default = seconds(tree_of(task.default().schedule.func, STATED.operations), task.machine)
    assert price <= default


def test_a_trace_is_a_candidate_too():
    task, _ = candidates("softmax", 1)
    trace = task.default().schedule.trace
    candidate = Candidate("somebody", trace)
    check_schedule(task.program, candidate.schedule(task))
    assert Trial(candidate, "ok", (2.0, 1.0)).best == 1.0
    assert Trial(candidate, "hung").best == float("inf")


def test_a_task_is_known_by_its_program_and_machine():
    one = Task(PROGRAMS["softmax"], Machine(STATED, 1))
    assert one.key == Task(PROGRAMS["softmax"], Machine(STATED, 1)).key
    assert one.key != Task(PROGRAMS["softmax"], Machine(STATED, 2)).key
    assert one.key != Task(PROGRAMS["product"], Machine(STATED, 1)).key
