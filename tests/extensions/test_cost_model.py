"""A cost model is a function from loops and a machine to seconds, given in place of the analytic one."""

from random import Random

from tilewright import lang
from tilewright.cost import Machine, seconds
from tilewright.strategies import STRATEGIES, History, Prices, Task, best_by_model
from tilewright.target import find_target


def most_turns(tree, machine):
    """Seconds that grow as turns of loops become fewer: the opposite of what is fast."""
    turns = 0.0
    for loops, _ in tree.works():
        count = 1.0
        for loop in loops:
            count *= loop.extent if loop.kind in ("serial", "parallel") else 1
        turns += count
    return 1 / turns


def task():
    a, b = lang.placeholder((96, 80), name="A"), lang.placeholder((80, 70), name="B")
    return Task(lang.program([a, b], [lang.ops.matmul(a, b)]), Machine(find_target("x86_avx512"), 2))


def test_the_choice_follows_the_model():
    wanted, strategy = task(), STRATEGIES["random"]
    prices, others = Prices(wanted), Prices(wanted, most_turns)
    usual = best_by_model(strategy, wanted).plan
    other = best_by_model(strategy, wanted, model=most_turns).plan
    assert other != usual
    assert prices.seconds(usual) < prices.seconds(other)
    assert others.seconds(other) < others.seconds(usual)


def test_the_default_model_is_the_analytic_one():
    wanted = task()
    plans = [c.plan for c in STRATEGIES["random"].start(wanted, History(), Random(0)).propose(6)]
    assert [Prices(wanted).seconds(p) for p in plans] == [Prices(wanted, seconds).seconds(p) for p in plans]
