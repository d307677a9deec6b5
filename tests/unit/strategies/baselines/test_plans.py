"""Searches from plan to plan: they learn from measurements, and are sooner than random search."""

from dataclasses import replace
from difflib import SequenceMatcher
from random import Random
from statistics import mean

import pytest
from tests.native_kernel import STATED
from tests.unit.plan.test_unit import PROGRAMS
from tests.unit.strategies.test_default import check_schedule

from tilewright.cost import Machine
from tilewright.plan import Variants
from tilewright.strategies import STRATEGIES, Candidate, History, Task, Trial
from tilewright.strategies.baselines.plans import WINDOW
from tilewright.strategies.moves import Moves
from tilewright.tiling import show

LEARNING = ("descent", "evolutionary", "anneal")
TRIALS = 48


def task_of(name):
    return Task(PROGRAMS[name], Machine(STATED, 2))


def planted(name, seed):
    """Seconds that grow with the lines in which plans differ from one, some moves from the default."""
    moves, task = Moves(task_of(name), Random(seed)), task_of(name)
    best = task.default().plan
    for _ in range(6):
        best = moves.drawn(best)

    def lines(plan):
        return [line for tree in plan.trees for line in show(tree).splitlines()]

    return lambda plan: 2.0 - SequenceMatcher(None, lines(plan), lines(best), autojunk=False).ratio()


def best_of(strategy, name, seed, count=8):
    """The least seconds that a search comes to."""
    taken, found = planted(name, seed), []
    search = STRATEGIES[strategy].start(task_of(name), History(), Random(seed))
    while len(found) < TRIALS:
        proposed = search.propose(count)
        found += [taken(c.plan) for c in proposed]
        search.observe([Trial(c, "ok", (taken(c.plan),)) for c in proposed])
    return min(found)


@pytest.mark.few(2)
@pytest.mark.parametrize("strategy", LEARNING)
def test_searches_come_nearer_to_a_planted_optimum_than_random_search(strategy):
    known = [best_of(strategy, "product with weights", seed) for seed in range(3)]
    drawn = [best_of("random", "product with weights", seed) for seed in range(3)]
    assert mean(known) < mean(drawn), (known, drawn)


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
        taken, found = planted("product", 5), []
        search = STRATEGIES[strategy].start(task_of("product"), History(), Random(seed))
        for _ in range(5):
            proposed = search.propose(4)
            found += proposed
            search.observe([Trial(c, "ok", (taken(c.plan),)) for c in proposed])
        return found

    assert run(3) == run(3)
    # descent draws nothing where it can look at all moves
    assert (run(3) == run(4)) == (strategy == "descent")


def test_failures_are_survived_and_a_search_with_nothing_left_ends():
    """All candidates but the default fail: there is no other plan whose moves could be tried."""
    task = task_of("general")
    search = STRATEGIES["descent"].start(task, History(), Random(0))
    proposed, count = search.propose(64), 0
    while proposed:
        count += len(proposed)
        search.observe([
            Trial(c, "ok", (1.0,)) if c.plan == task.default().plan else Trial(c, "crashed") for c in proposed
        ])  # fmt: skip
        proposed = search.propose(64)
    assert count == 1 + len(list(Moves(task, Random(0)).around(task.default().plan)))
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
    variants = Variants(task.program, task.default().plan, task.machine)
    rows = variants.nests[0].space
    other = variants.chosen({0: next(iter(rows.neighbours(variants.nests[0].nest.choice)))})
    assert other != task.default().plan
    theirs = replace(
        other,
        nests=tuple(
            replace(nest, root="y", trees=tuple(replace_root(t) for t in nest.trees)) for nest in other.nests
        ),
    )
    history = History((Trial(Candidate("x", theirs), "ok", (1.0,)),))
    search = STRATEGIES[strategy].start(task, history, Random(0))
    first, second = search.propose(2)
    assert (first.plan, second.plan) == (task.default().plan, other)


def replace_root(tree):
    return type(tree)("y", tree.body, tree.layouts, tree.scopes)


@pytest.mark.parametrize("strategy", LEARNING)
def test_edited_plans_of_the_same_program_are_begun_with(strategy):
    task = task_of("softmax")
    moves = Moves(task, Random(3))
    edited = next(p for p in moves.around(task.default().plan) if p.nests[0].choice is None)
    history = History((Trial(Candidate("x", edited), "ok", (1.0,)),))
    search = STRATEGIES[strategy].start(task, history, Random(0))
    assert [c.plan for c in search.propose(2)] == [task.default().plan, edited]


@pytest.mark.parametrize("name", ["convolution", "softmax"])
def test_moves_are_other_choices_and_edits_none_twice(name):
    task = task_of(name)
    default = task.default().plan
    found = list(Moves(task, Random(0)).around(default))
    assert len({*found, default}) == len(found) + 1
    assert {plan.nests[0].choice is None for plan in found} == {True, False}
    assert Moves(task, Random(5)).drawn(default) in found
