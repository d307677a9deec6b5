"""The filter after compiling: what spills is not taken unmeasured."""

from itertools import count
from math import inf
from random import Random

import pytest
from tests.unit.plan.pipeline.test_rule import harris

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import Cluster, GroupPlan, plan_groups
from tilewright.strategies import History, Task, best_by_model
from tilewright.strategies.beam import strategy as module
from tilewright.strategies.beam.search import Settings
from tilewright.strategies.beam.spills import least_spilled, vector_spills
from tilewright.strategies.beam.strategy import FILTERED, BeamStrategy
from tilewright.target import X86_AVX2

MACHINE = Machine(X86_AVX2, 2)
SMALL = BeamStrategy(settings=Settings(beam=4, passes=2), samples=8)


@pytest.mark.parametrize(
    ("spills", "kept"),
    [
        ([3, 0, 7, 0], [1, 3]),
        ([12, 8, 13, 9], [0, 1, 3]),
        ([None, 5, None], [1]),
        ([None], []),
        ([], []),
    ],
)
def test_nothing_spilled_or_within_half_of_the_least(spills, kept):
    found = list(least_spilled(range(len(spills)), spills.__getitem__))
    assert found == [*((n, True) for n in kept), *((n, False) for n in range(len(spills)) if n not in kept)]


def test_what_spills_nothing_is_known_at_once():
    asked = []
    found = least_spilled(range(9), lambda n: asked.append(n) or (2 - n if n < 3 else 1))
    assert next(found) == (2, True)
    assert asked == [0, 1, 2]


def test_expanded_rows_spill_where_registers_are_few():
    x = lang.placeholder((68, 132), name="X")
    window = [(a, b) for a in range(5) for b in range(5)]
    out = lang.compute(
        (64, 128), lambda y, i: sum(x[y + a, i + b] * (0.1 + a * 5 + b) for a, b in window), name="out"
    )
    program = lang.program([x], [out])

    def spills(rows):
        plan = GroupPlan((16, 0), (), (0, 1), 1, (rows, 1), 0)
        return vector_spills(
            plan_groups(program, MACHINE, (), [], [Cluster("pipeline", "out", (), None, plan)]).schedule,
            X86_AVX2,
        )

    assert spills(1) < spills(8)


def test_candidates_that_spill_are_not_taken_unmeasured(monkeypatch):
    task = Task(harris(64, 96), MACHINE)
    numbers = count()
    # every other one of the first spills
    monkeypatch.setattr(module, "vector_spills", lambda schedule, target: next(numbers) % 2)
    found = SMALL.start(task, History(), Random(0)).propose(1 + FILTERED)
    kept = FILTERED // 2
    prices = [c.predicted for c in found]
    assert next(numbers) == FILTERED
    assert inf not in prices[: 1 + kept]
    assert set(prices[1 + kept :]) == {inf}
    # the same plans, in the order of the model, where nothing is compiled
    plain = BeamStrategy(settings=SMALL.settings, samples=8, filtered=False)
    unfiltered = plain.start(task, History(), Random(0)).propose(1 + FILTERED)
    assert [c.plan for c in unfiltered[1::2]] == [c.plan for c in found[1 : 1 + kept]]
    assert {c.plan for c in unfiltered} == {c.plan for c in found}
    assert inf not in [c.predicted for c in unfiltered]


def test_what_is_refused_by_code_generation_is_not_taken(monkeypatch):
    task = Task(harris(64, 96), MACHINE)
    monkeypatch.setattr(module, "vector_spills", lambda schedule, target: None)
    found = SMALL.start(task, History(), Random(0)).propose(5)
    assert {c.predicted for c in found[1:]} == {inf}
    assert best_by_model(SMALL, task).plan == found[0].plan


def unmeasured(margin):
    """What one-shot may take where the default plan's price is another, and what is carried out for that."""
    search = SMALL.start(Task(harris(64, 96), MACHINE), History(), Random(0))
    search._margin = margin
    return list(search.unmeasured())


def test_nothing_is_carried_out_that_one_shot_cannot_take(monkeypatch):
    monkeypatch.setattr(module, "to_plan", lambda *_: pytest.fail("a plan was carried out"))
    (default,) = unmeasured(1e9)
    assert default.plan == Task(harris(64, 96), MACHINE).default().plan


def test_one_shot_takes_the_best_of_those_that_do_not_spill(monkeypatch):
    numbers = count()
    # every other one of the first spills, in the order in which each is asked
    monkeypatch.setattr(module, "vector_spills", lambda schedule, target: next(numbers) % 2)
    default, *others = unmeasured(1e-9)
    assert next(numbers) == FILTERED and len(others) == FILTERED // 2
    prices = [c.predicted for c in others]
    assert prices == sorted(prices) and prices[-1] < default.predicted
    # all spill, one of them much less
    spills = iter([8, 9, 1, *[8] * FILTERED])
    monkeypatch.setattr(module, "vector_spills", lambda schedule, target: next(spills))
    _, least = unmeasured(1e-9)
    assert prices[0] < least.predicted
