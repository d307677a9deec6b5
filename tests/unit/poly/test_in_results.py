"""Scalars stored in the elements that they end in: what exact sets allow, and nothing else."""

from functools import partial

import numpy as np
import pytest

from tilewright.frontend.nests import scop
from tilewright.frontend.nests.python import read_python
from tilewright.ir import function_at, run_function, verify
from tilewright.poly import allocations_inside, budget, check_legal, in_results, scalars_in_results
from tilewright.support import ResourceError
from unit.frontend.nests.polybench import KERNELS

HEAD = "def f(x: f64[N], y: f64[N], A: f64[N, N]):\n    for i in range(N):\n"


def moved(body, n=7):
    """A nest over rows with its scalars moved, and what both compute of the same arrays."""
    func = allocations_inside(function_at(read_python(HEAD + body), {"N": n}))
    made = scalars_in_results(func)
    verify(made)
    assert not check_legal(func, made, {})
    rng = np.random.default_rng(0)
    given = {b.name: rng.uniform(1, 2, [e.const for e in b.shape]) for b in func.buffers}
    one, two = (run_function(f, {k: v.copy() for k, v in given.items()}, {}) for f in (func, made))
    for name in func.outputs:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-12)
    return made


SUM = """
        w = {first}
        for j in range({upto}):
            w -= A[i, j] * {operand}
        {last}
"""


@pytest.mark.parametrize(
    ("first", "upto", "operand", "last"),
    [
        ("x[i]", "i", "y[j]", "y[i] = w"),  # a triangular system
        ("0.0", "N", "x[j]", "y[i] = w / A[i, i]"),
        ("x[i]", "i", "x[j]", "x[i] = w / A[i, i]"),  # others of the same array
        ("x[i] + y[i]", "i", "y[j]", "y[i] = w"),  # the definition may read it
    ],
)
def test_sums_are_added_up_where_they_end(first, upto, operand, last):
    assert not moved(SUM.format(first=first, upto=upto, operand=operand, last=last)).body.allocated


@pytest.mark.parametrize(
    ("upto", "operand", "last"),
    [
        ("N", "y[j]", "y[i] = w"),  # at j = i the old value is read
        ("i", "y[j]", "y[i] = w / y[i]"),  # the last reads it
        ("i", "y[j]", "y[i - i] = w"),  # another row's, read at j = 0
        ("i", "y[j]", "y[i] = w\n        x[i] = w"),  # read later: stored in x, which ends it
    ],
)
def test_scalars_whose_element_is_touched_stay(upto, operand, last):
    made = moved(SUM.format(first="x[i]", upto=upto, operand=operand, last=last))
    assert {b.name for b in made.body.allocated} == (set() if "x[i] = w" in last else {"w"})


def test_scalars_that_end_under_a_condition_stay():
    body = SUM.format(first="x[i]", upto="i", operand="x[j]", last="if i > 2:\n            y[i] = w")
    assert moved(body).body.allocated


def test_scalars_of_decompositions():
    func = allocations_inside(function_at(scop(KERNELS["ludcmp"]).func, {"N": 8}))
    made = scalars_in_results(func)
    assert len(list(func.body.allocated)) == 4 and not made.body.allocated
    assert check_legal(func, made, {}) == [] and check_legal(func, made, {}, mode="isl") == []
    lu = function_at(scop(KERNELS["lu"]).func, {"N": 8})
    assert len(made.body.stmts[0].body.stmts) == len(
        lu.body.body.stmts
    )  # copies of an element to itself are gone


def test_a_limit(monkeypatch):
    func = allocations_inside(function_at(scop(KERNELS["ludcmp"]).func, {"N": 8}))
    monkeypatch.setattr(in_results, "bounded", partial(budget.bounded, operations=10))
    with pytest.raises(ResourceError, match="the accesses of ludcmp are too many: isl gave up after 10 oper"):
        scalars_in_results(func)
