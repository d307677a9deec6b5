"""Searches over plans of GPUs: the default first, candidates that can be scheduled, the best by price."""

from random import Random

import pytest

from tilewright import lang
from tilewright.build import kernel_source
from tilewright.cost import Machine
from tilewright.lang import ops
from tilewright.strategies import ON_DEVICES, STRATEGIES, History, Prices, Task, best_by_model
from tilewright.target import A100


def attention():
    q, k = lang.placeholder((4, 48, 32), name="Q"), lang.placeholder((4, 32, 48), name="K")
    return lang.program([q, k], [ops.softmax(ops.matmul(q, k), axis=-1)])


@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted(ON_DEVICES))
def test_candidates(name):
    task = Task(attention(), Machine(A100, 1))
    found = STRATEGIES[name].start(task, History(), Random(5)).propose(5)
    assert found[0].plan == task.default().plan
    assert len({candidate.plan for candidate in found}) == len(found)
    # walks end where they end: of a construction there may be fewer states than were asked for
    assert len(found) == 5 or name.startswith("construct")
    scheduled = [candidate.schedule(task) for candidate in found]
    assert kernel_source(scheduled[-1].func, "cuda").kernels


def test_the_best_by_the_model_is_no_worse_than_the_default():
    task = Task(attention(), Machine(A100, 1))
    best = best_by_model(STRATEGIES["random"], task, count=8).plan
    prices = Prices(task)
    assert prices.seconds(best) <= prices.seconds(task.default().plan)
