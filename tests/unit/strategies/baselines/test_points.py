"""Searches around the default plan: they learn from measurements, and are sooner than random search."""

from dataclasses import replace
from functools import cache
from random import Random
from statistics import mean

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.test_unit import PROGRAMS
from tests.unit.strategies.test_default import check_schedule

from tilewright.cost import Machine
from tilewright.strategies import STRATEGIES, Candidate, History, Task, Trial
from tilewright.strategies.baselines.points import WINDOW, near
from tilewright.strategies.joint.loops import loop_space

LEARNING = ("descent", "evolutionary", "anneal")
TRIALS = 400


def task_of(name):
    return Task(PROGRAMS[name], Machine(STATED, 2))


@cache
def space_of(name):
    return loop_space(task_of(name))


def planted(space, seed):
    """A point of a plan, drawn at random, and seconds that grow with each field's distance from it."""
    rng = Random(seed)
    best = next(p for p in iter(lambda: space.sample(rng), None) if space.plan(p) is not None)

    def taken(plan):
        point = space.nearest(plan)
        far = (abs(a - b) / len(p.options) for a, b, p in zip(point, best, space.parameters, strict=True))
        return 1.0 + sum(far)

    return space.plan(best), taken


def trials_until(strategy, name, seed, count=4):
    """After how many trials a search has proposed the planted optimum."""
    space = space_of(name)
    optimum, taken = planted(space, seed)
    search = STRATEGIES[strategy].start(task_of(name), History(), Random(seed))
    done = 0
    while done < TRIALS:
        proposed = search.propose(count)
        if not proposed:
            break
        for candidate in proposed:
            done += 1
            if candidate.plan == optimum:
                return done
        search.observe([Trial(c, "ok", (taken(c.plan),)) for c in proposed])
    return TRIALS


@pytest.mark.few(2)
@pytest.mark.parametrize("strategy", LEARNING)
def test_a_planted_optimum_is_found_in_fewer_trials_than_by_random_search(strategy):
    name, seeds = "product with weights", range(6)
    known = [trials_until(strategy, name, seed) for seed in seeds]
    drawn = [trials_until("random", name, seed) for seed in seeds]
    assert mean(known) < 0.7 * mean(drawn), (known, drawn)


@pytest.mark.few(4)
@pytest.mark.parametrize("strategy", LEARNING)
@pytest.mark.parametrize("name", ["convolution", "softmax", "general"])
def test_candidates_are_distinct_legal_and_the_default_is_first(strategy, name):
    task = task_of(name)
    search = STRATEGIES[strategy].start(task, History(), Random(1))
    found = []
    for _ in range(4):
        proposed = search.propose(3)
        search.observe([Trial(c, "ok", (1.0 + n,)) for n, c in enumerate(proposed)])
        found += proposed
    assert len({candidate.plan for candidate in found}) == len(found) > 4
    assert found[0].plan == task.default().plan
    for candidate in found[1:4]:
        check_schedule(task.program, candidate.schedule(task))


@pytest.mark.parametrize("strategy", LEARNING)
def test_equal_seeds_and_measurements_make_equal_searches(strategy):
    def run(seed):
        space, found = space_of("product"), []
        _, taken = planted(space, 5)
        search = STRATEGIES[strategy].start(task_of("product"), History(), Random(seed))
        for _ in range(5):
            proposed = search.propose(4)
            found += proposed
            search.observe([Trial(c, "ok", (taken(c.plan),)) for c in proposed])
        return found

    assert run(3) == run(3)
    assert run(3) != run(4)


@pytest.mark.parametrize("strategy", LEARNING)
def test_failures_are_survived_and_a_small_space_ends(strategy):
    """All candidates but the default fail; then there is nothing left to propose."""
    task = task_of("softmax")
    search = STRATEGIES[strategy].start(task, History(), Random(0))
    proposed, count = search.propose(8), 0
    while proposed and count < 1000:
        count += len(proposed)
        search.observe([
            Trial(c, "ok", (1.0,)) if c.plan == task.default().plan else Trial(c, "crashed") for c in proposed
        ])  # fmt: skip
        proposed = search.propose(8)
    assert 8 < count <= space_of("softmax").variants.nests[0].space.size
    assert search.expected_gain() == 0.0


@pytest.mark.parametrize("strategy", LEARNING)
def test_what_is_expected_is_what_was_gained_last(strategy):
    task = task_of("product with weights")
    search = STRATEGIES[strategy].start(task, History(), Random(0))
    assert search.expected_gain() == 1.0
    for n in range(WINDOW // 8 + 1):
        search.observe([Trial(c, "ok", (2.0 if n < 2 else 1.0,)) for c in search.propose(8)])
    assert search.expected_gain() == 0.5
    for _ in range(WINDOW // 8 + 1):
        search.observe([Trial(c, "ok", (1.0,)) for c in search.propose(8)])
    assert search.expected_gain() == 0.0


@pytest.mark.parametrize("strategy", LEARNING)
def test_histories_of_other_tasks_come_right_after_the_default(strategy):
    """A plan of another product, whose stage has another name."""
    task = task_of("product with weights")
    optimum, _ = planted(space_of("product with weights"), 7)
    assert optimum != task.default().plan
    theirs = replace(optimum, nests=tuple(replace(nest, root="y") for nest in optimum.nests))
    history = History((Trial(Candidate("x", theirs), "ok", (1.0,)),))
    search = STRATEGIES[strategy].start(task, history, Random(0))
    first, second = search.propose(2)
    assert (first.plan, second.plan) == (task.default().plan, optimum)


def test_neighbours_differ_in_one_parameter_nearest_first():
    space = space_of("convolution")
    point = space.default
    found = list(near(space, point, 0))
    assert len(found) == len(space.parameters[0].options) - 1
    assert all(p[1:] == point[1:] for p in found)
    far = [abs(p[0] - point[0]) for p in found]
    assert far == sorted(far)
