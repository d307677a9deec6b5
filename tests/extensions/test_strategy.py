"""A search strategy is one file: an object that is given by itself, without being listed anywhere."""

from dataclasses import dataclass

import numpy as np

import tilewright
from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import Variants
from tilewright.strategies import Candidate, Prices, Task, best_by_model
from tilewright.target import find_target


@dataclass(frozen=True)
class Sweep:
    """The default plan, then every option of every field of each nest's plan, one changed at a time."""

    name: str = "sweep"

    def start(self, task, history, rng):
        return _Sweep(task)


class _Sweep:
    def __init__(self, task):
        base = task.default().plan
        variants = Variants(task.program, base, task.machine, task.constants)
        # choices that make the same loops are one plan
        found = {base: None}
        for n, varied in enumerate(variants.nests):
            found |= {variants.chosen({n: c}): None for c in varied.space.neighbours(varied.nest.choice)}
        self._left = list(found)

    def propose(self, count):
        now, self._left = self._left[:count], self._left[count:]
        return [Candidate("sweep", plan) for plan in now]

    def observe(self, trials):
        pass

    def expected_gain(self):
        return 0.0


def product():
    a, b = lang.placeholder((96, 80), name="A"), lang.placeholder((80, 70), name="B")
    return lang.program([a, b], [lang.ops.matmul(a, b, name="C")])


def test_it_compiles_programs():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((96, 80), (80, 70)))
    (made,) = tilewright.compile(product(), strategy=Sweep())(a, b)
    np.testing.assert_allclose(made, a @ b, rtol=1e-4, atol=1e-4)


def test_it_is_asked_and_its_best_is_taken():
    task = Task(product(), Machine(find_target("x86_avx512"), 2))
    found = Sweep().start(task, None, None).propose(1000)
    assert len({c.plan for c in found}) == len(found) > 10
    prices = Prices(task)
    best = best_by_model(Sweep(), task)
    assert prices.seconds(best.plan) <= prices.seconds(found[0].plan)
