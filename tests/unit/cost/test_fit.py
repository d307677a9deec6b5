"""Quantities of machines: found again from times that the model gave, and left alone where nothing tells."""

from dataclasses import replace
from random import Random

import pytest

from tilewright import lang
from tilewright.cost import Machine, Sample, fit_machine, seconds
from tilewright.plan import EXACT
from tilewright.strategies import STRATEGIES, History, Prices, Task
from tilewright.support import InputError
from tilewright.target import X86_AVX512

SIZES = [(64, 64, 64), (1, 2048, 1024), (256, 256, 256), (16, 1024, 512), (1024, 32, 64), (8, 4096, 1024)]


def product(m, n, k):
    A, B = lang.placeholder((m, k), name="A"), lang.placeholder((k, n), name="B")
    return lang.program([A, B], [lang.ops.matmul(A, B, name="C")])


@pytest.fixture(scope="module")
def trees():
    """Loops of some plans of each product, on one thread and on two."""
    found = []
    for threads in (1, 2):
        for size in SIZES:
            task = Task(product(*size), Machine(X86_AVX512, threads), accuracy=EXACT)
            drawn = STRATEGIES["random"].start(task, History(), Random(0)).propose(10)
            prices = Prices(task)
            plans = [task.default().plan, *(each.plan for each in drawn)]
            made = [tree for tree in map(prices.tree, plans) if tree is not None]
            found += [(f"{threads} {size}", tree, threads) for tree in made]
    assert len(found) > 60
    return found


def measured(trees, truth, noise=0.0):
    rng = Random(1)
    factors = {}
    samples = []
    for task, tree, threads in trees:
        # what a task's kernel has in common: the model does not know it
        factor = factors.setdefault(task, rng.uniform(0.7, 1.4))
        exact = seconds(tree, Machine(truth, threads))
        samples.append(Sample(task, tree, threads, exact * factor * (1 + rng.uniform(-noise, noise))))
    return samples


def slower(memory, fma=1.0, fork=2e-6):
    """The class's table with other bandwidths outside of the first level."""
    levels = [X86_AVX512.memory[0]]
    levels += [
        replace(level, bandwidth=level.bandwidth * f)
        for level, f in zip(X86_AVX512.memory[1:], memory, strict=True)
    ]
    return replace(
        X86_AVX512, memory=tuple(levels), fma_per_cycle=X86_AVX512.fma_per_cycle * fma, fork_seconds=fork
    )


def test_quantities_are_found_again(trees):
    truth = slower((1.0, 0.5, 0.25), fma=0.5, fork=8e-6)
    found = fit_machine(measured(trees, truth, 0.03), X86_AVX512)
    assert found.error[1] < 0.5 * found.error[0] and found.held_out[1] < 0.7 * found.held_out[0]
    assert found.target.fma_per_cycle == pytest.approx(truth.fma_per_cycle, rel=0.3)
    assert found.target.fork_seconds == pytest.approx(8e-6, rel=0.5)
    before, after = found.quantities["multiply-adds a cycle"]
    assert (before, after) == (X86_AVX512.fma_per_cycle, found.target.fma_per_cycle)


def test_a_machine_that_is_as_its_class_stays_so(trees):
    found = fit_machine(measured(trees, X86_AVX512), X86_AVX512)
    assert found.error[1] <= found.error[0]
    assert {name for name, (a, b) in found.quantities.items() if abs(b / a - 1) > 0.2} == set()


def test_too_few_tasks_are_refused(trees):
    few = [each for each in measured(trees, X86_AVX512) if each.task.startswith("1 (6")]
    with pytest.raises(InputError, match="a fit needs 6 tasks of this machine with several plans that ran"):
        fit_machine(few, X86_AVX512)
    lone = {each.task: each for each in measured(trees, X86_AVX512)}
    with pytest.raises(InputError, match="not 0"):
        fit_machine(list(lone.values()), X86_AVX512)
