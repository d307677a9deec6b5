"""Sums along rows in lanes: joined once behind the loop, whatever its length."""

import numpy as np
import pytest
from tests.native_kernel import STATED

from tilewright.build import build
from tilewright.cost import Machine
from tilewright.frontend.nests.python import read_python
from tilewright.ir import For, function_at, locate, run_function, verify
from tilewright.runtime import aligned_copy
from tilewright.strategies.nests.ordered import ordered_nest
from tilewright.strategies.nests.sums import sum_in_lanes
from tilewright.support import assert_close

TARGET = STATED
LANES = TARGET.preferred_vector_bits // 64


def solved(statement):
    return f"""
def f(L: f64[N, N], x: f64[N]):
    for i in range(N):
        for j in range(i):
            {statement}
        x[i] = x[i] / 2.0
"""


@pytest.mark.parametrize(
    "statement", ["x[i] -= L[i, j] * x[j]", "x[i] += L[i, j] * x[j]", "x[i] = L[i, j] * x[j] + x[i]"]
)
@pytest.mark.parametrize("n", [5, 40, 100])
def test_sums_of_every_length(statement, n):
    func = function_at(read_python(solved(statement)), {"N": n})
    made = ordered_nest(func, Machine(TARGET, 1))
    verify(made)
    # a sum of four terms at most is left to be written out
    vectors = [lanes.shape[0].as_int() // LANES for lanes in made.body.allocated]
    assert vectors == ([] if n == 5 else [min(TARGET.fma_latency, (n - 1) // (2 * LANES))])
    rng = np.random.default_rng(0)
    given = {"L": rng.uniform(-1, 1, (n, n)) / n, "x": rng.uniform(-1, 1, n)}
    want = run_function(func, {k: a.copy() for k, a in given.items()})["x"]
    assert_close(
        run_function(made, {k: a.copy() for k, a in given.items()})["x"],
        want,
        magnitude=np.full(n, 4.0),
        terms=n,
    )
    arrays = [aligned_copy(given[b.name]) for b in made.buffers]
    build(made, threads=1).run(arrays)
    assert_close(arrays[1], want, magnitude=np.full(n, 4.0), terms=n)


def test_lanes_are_joined_once_behind_the_loop():
    made = ordered_nest(
        function_at(read_python(solved("x[i] -= L[i, j] * x[j]")), {"N": 100}), Machine(TARGET, 1)
    )
    joined = [
        place
        for place in locate(made.body, For)
        if place.node.kind.name == "vector" and any(it.kind == "red" for it in place.node.body.iters)
    ]
    assert len(joined) == 1 and len(joined[0].loops) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "x[i] = max(x[i], L[i, j])",
        "x[i] *= L[i, j]",
        "x[i] = L[i, j] - x[i]",
        "x[i] = L[i, j]",
    ],
)
def test_other_statements_are_left_alone(statement):
    func = read_python(solved(statement))
    loop = next(p for p in locate(func.body, For) if p.node.var == "j")
    assert sum_in_lanes(func, loop.node, list(loop.loops), 8, 4) is None
