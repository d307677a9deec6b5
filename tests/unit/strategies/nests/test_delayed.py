"""Closures in groups of steps: the same operations on each element in the same order."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.build import build
from tilewright.cost import Machine
from tilewright.frontend.nests.python import read_python
from tilewright.ir import (
    For,
    function_at,
    locate,
    map_blocks,
    map_stmt,
    run_function,
    substitute_index,
    var,
    verify,
)
from tilewright.runtime import aligned_copy
from tilewright.strategies.nests.delayed import LEAST_GROUPS, delayed_updates
from tilewright.strategies.nests.ordered import on_machine
from tilewright.strategies.nests.schedule import schedule_nest
from tilewright.target import find_target

#: With few registers groups are short, and so are the nests that are divided into them.
TARGET = replace(find_target("x86_avx512"), vector_registers=8)
STEPS = 4
LEAST = LEAST_GROUPS * STEPS

STATEMENTS = {
    "shortest paths": "a[i, j] = a[i, j] if a[i, j] < a[i, k] + a[k, j] else a[i, k] + a[k, j]",
    "not idempotent": "a[i, j] = 0.5 * a[i, j] - 0.25 * a[i, k] * a[k, j]",
    "what was there is lost": "a[i, j] = a[i, k] - 0.5 * a[k, j]",
    "with others": "a[i, j] = 0.9 * a[i, j] - 0.1 * a[i, k] * a[k, j] * w[k] + 0.01 * w[j]",
}


def nest(statement, n, *, m=0, loops="ij", lo=0):
    """Steps ``lo`` to ``n`` on a matrix with ``m`` rows and columns more."""
    first, second = loops
    text = f"""
def f(a: f64[{n + m}, {n + m}], w: f64[{n + m}]):
    for k in range({lo}, {n}):
        for {first} in range({n + m}):
            for {second} in range({n + m}):
                {statement}
"""
    return function_at(read_python(text), {})


def given(n):
    rng = np.random.default_rng(0)
    return {"a": rng.uniform(0.1, 1.0, (n, n)), "w": rng.uniform(-1, 1, n)}


@pytest.mark.few(5)
@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize(("n", "m", "lo"), [(LEAST, 0, 0), (LEAST + 3, 0, 0), (LEAST + 2, 5, 1)])
def test_results_are_those_of_the_nest_as_written(statement, n, m, lo):
    func = nest(STATEMENTS[statement], n, m=m, lo=lo)
    found = delayed_updates(func, TARGET)
    assert found is not None
    made, facts = found.func, found.facts
    verify(made)
    values = given(n + m)
    want = run_function(func, {k: x.copy() for k, x in values.items()})["a"]
    assert np.array_equal(run_function(made, {k: x.copy() for k, x in values.items()})["a"], want)
    assert np.isfinite(want).all()
    for threads in (1, 2):
        arrays = [aligned_copy(values[b.name]) for b in func.buffers]
        build(on_machine(made, facts, Machine(TARGET, threads)), threads=threads).run(arrays)
        assert np.allclose(arrays[0], want, rtol=1e-11)


def test_rows_and_columns_may_be_written_in_either_order():
    statement = STATEMENTS["not idempotent"]
    results = []
    for loops in ("ij", "ji"):
        func = nest(statement, LEAST + 1, loops=loops)
        found = delayed_updates(func, TARGET)
        assert found is not None
        values = given(LEAST + 1)
        results.append(run_function(found.func, values)["a"])
        assert np.array_equal(results[-1], run_function(func, given(LEAST + 1))["a"])
    assert np.array_equal(*results)


def backwards(func, names):
    """A function with loops in the other direction, on whose variables no bounds depend."""

    def visit(s):
        if not isinstance(s, For) or s.var not in names:
            return s
        at = {s.var: s.lo + s.hi - 1 - var(s.var)}

        def bound(b):
            return replace(b, bind=tuple(substitute_index(x, at) for x in b.bind))

        return replace(s, body=map_blocks(s.body, bound))

    return func.with_body(map_stmt(func.body, visit))


def test_loops_that_are_called_independent_may_run_backwards():
    """Exact dependences of so many statements are too much for isl."""
    func = nest(STATEMENTS["not idempotent"], LEAST + 2, m=3)
    found = delayed_updates(func, TARGET)
    assert found is not None
    assert found.facts.free < {p.node.var for p in locate(found.func.body, For)}
    want = run_function(func, given(LEAST + 5))["a"]
    made = backwards(found.func, found.facts.free)
    assert np.array_equal(run_function(made, given(LEAST + 5))["a"], want)


@pytest.mark.parametrize(
    "statement",
    [
        "a[i, j] = a[i, j] + a[j, i] + a[i, k] * a[k, j]",  # another element
        "a[i, j] = a[i, j] + a[i, k] * a[k, k] * a[k, j]",
        "a[i, j] = a[i, j] + a[i, k]",  # rows wait for nothing
        "a[j, j] = a[i, k] + a[k, j]",
    ],
)
def test_other_statements_are_left_alone(statement):
    assert delayed_updates(nest(statement, LEAST), TARGET) is None


def test_short_nests_triangles_and_several_statements_are_left_alone():
    statement = STATEMENTS["not idempotent"]
    assert delayed_updates(nest(statement, LEAST - 1), TARGET) is None
    head = f"def f(a: f64[{LEAST}, {LEAST}]):\n    for k in range({LEAST}):\n"
    rows = f"        for i in range({{}}, {LEAST}):\n            for j in range({LEAST}):\n"
    body = f"                {statement}\n"
    for text in (rows.format("k + 1") + body, rows.format(0) + body + body, rows.format(1) + body):
        assert delayed_updates(read_python(head + text), TARGET) is None
    assert delayed_updates(read_python(head + rows.format(0) + body), TARGET) is not None


def test_a_schedule_says_so():
    made = schedule_nest(nest(STATEMENTS["shortest paths"], LEAST), Machine(TARGET, 1))
    assert made.notes[-1] == f"in groups of {STEPS} steps, whose rows and columns go first"
