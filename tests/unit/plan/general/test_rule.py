"""General reductions: any term, any fold, ragged sizes, with and without a reader."""

import numpy as np
import pytest
from tests.native_kernel import STATED
from tests.unit.strategies.test_default import check, t

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import RULES, plan_unit
from tilewright.plan.rule import Nest


def three_factors(n, m, k, relu=False):
    a, b, d = t(n, k, name="A"), t(k, m, name="B"), t(m, k, name="D")
    axis = lang.reduce_axis(k, "k")
    y = lang.compute((n, m), lambda i, j: lang.sum(a[i, axis] * b[axis, j] * d[j, axis], axis=axis), name="Y")
    if relu:
        z = lang.compute((n, m), lambda i, j: lang.maximum(y[i, j], 0.0), name="Z")
        return lang.program([a, b, d], [z])
    return lang.program([a, b, d], [y])


def min_plus(n, m, k):
    a, b = t(n, k, name="A"), t(k, m, name="B")
    axis = lang.reduce_axis(k, "k")
    y = lang.compute((n, m), lambda i, j: lang.min(a[i, axis] + b[axis, j], axis=axis), name="Y")
    return lang.program([a, b], [y])


def distances(n, m, k):
    a, b = t(n, k, name="A"), t(k, m, name="B")
    axis = lang.reduce_axis(k, "k")
    y = lang.compute(
        (n, m),
        lambda i, j: lang.sum((a[i, axis] - b[axis, j]) * (a[i, axis] - b[axis, j]), axis=axis),
        name="Y",
    )
    return lang.program([a, b], [y])


CASES = {
    "three factors": three_factors(64, 96, 64),
    "three factors, ragged": three_factors(37, 83, 61),
    "three factors and a reader": three_factors(33, 70, 64, relu=True),
    "min-plus": min_plus(64, 64, 64),
    "min-plus, ragged": min_plus(41, 67, 53),
    "distances": distances(48, 80, 40),
}


@pytest.mark.few(9)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_right(name, threads):
    planned = plan_unit(CASES[name], Machine(STATED, threads))
    assert [nest.rule for nest in planned.plan.nests] == ["general"]
    assert planned.schedule.notes == ()
    check(CASES[name], threads=threads, interpret=False)


def test_few_steps_an_element_are_left_to_other_rules():
    """A sum in which each element is used once has nothing to keep in registers."""
    x = t(64, 64, 8, name="X")
    axis = lang.reduce_axis(8, "k")
    y = lang.compute((64, 64), lambda i, j: lang.sum(x[i, j, axis] * x[i, j, axis], axis=axis), name="Y")
    rules = {nest.rule for nest in plan_unit(lang.program([x], [y]), Machine(STATED, 1)).plan.nests}
    assert "general" not in rules


def test_tiles_fit_registers():
    planned = plan_unit(CASES["min-plus"], Machine(STATED, 1))
    (nest,) = planned.plan.nests
    assert isinstance(nest, Nest)
    assert nest.choice.accumulators < STATED.vector_registers
    assert RULES["general"].forms["tiles"] is type(nest.choice)
    assert np.prod([size for _, size in nest.choice.rows]) * nest.choice.vectors == nest.choice.accumulators
