"""Neighbours along rows pass through registers: same results, one load a vector and row."""

import numpy as np
import pytest

from tilewright.build import build
from tilewright.cost import Machine
from tilewright.driver.nests import Nest
from tilewright.frontend.nests.python import read_python
from tilewright.ir import REGISTER, Block, For, function_at, locate, run_function, stmt_loads, verify
from tilewright.runtime import aligned_copy
from tilewright.strategies.nests.neighbours import LEAST_VECTORS, neighbours_in_registers
from tilewright.strategies.nests.ordered import ordered_nest
from tilewright.target import find_target

WIDE = find_target("x86_avx512")
LANES = 8
ROWS = 3


def stencil(statement, n):
    text = f"""
def f(a: f64[{ROWS}, M], b: f64[{ROWS}, M]):
    for i in range(1, {ROWS} - 1):
        for j in range(2, M - 2):
            {statement}
"""
    return function_at(read_python(text), {"M": n})


def made_of(func, target=WIDE):
    return neighbours_in_registers(ordered_nest(func, Machine(target, 1)), target)


def held(func):
    return [buffer for buffer in func.body.allocated if buffer.scope == REGISTER and buffer.shape]


STENCILS = {
    "three": ("b[i, j] = a[i, j - 1] + a[i, j] + a[i, j + 1]", 1),
    "five, a gap": ("b[i, j] = a[i, j - 2] * a[i, j + 2]", 1),
    "ahead only": ("b[i, j] = a[i, j + 1] - a[i, j + 2]", 1),
    "rows of three": (
        "b[i, j] = a[i - 1, j] + a[i - 1, j + 1] + a[i, j - 1] + a[i, j + 1] + a[i + 1, j]",
        2,
    ),
    "its own element, too": ("b[i, j] = b[i, j] + a[i, j] * a[i, j - 1]", 1),
}


@pytest.mark.parametrize("rest", [0, 1, 5])
@pytest.mark.parametrize("name", STENCILS)
def test_results_are_those_of_the_nest_as_written(name, rest):
    statement, rows = STENCILS[name]
    n = 4 + LANES * LEAST_VECTORS + rest
    func = stencil(statement, n)
    made = made_of(func)
    verify(made)
    assert [buffer.shape[0].as_int() for buffer in held(made)] == [2 * LANES] * rows
    rng = np.random.default_rng(0)
    given = {name: rng.uniform(-1, 1, (ROWS, n)) for name in "ab"}
    want = run_function(func, {k: x.copy() for k, x in given.items()})["b"]
    assert np.array_equal(run_function(made, {k: x.copy() for k, x in given.items()})["b"], want)
    arrays = [aligned_copy(given[b.name]) for b in made.buffers]
    build(made, threads=1).run(arrays)
    assert np.allclose(arrays[1], want, rtol=1e-14)


def test_code_for_other_compilers_has_no_windows():
    func = stencil(STENCILS["three"][0], 200)
    assert not held(ordered_nest(func, Machine(WIDE, 1)))
    assert "_row" not in Nest(func, WIDE, 1).c_source({})


def test_a_turn_loads_each_row_once():
    made = made_of(stencil(STENCILS["three"][0], 200))
    (turn,) = [p.node for p in locate(made.body, For) if p.node.extent.as_int() == 196 // LANES - 1]
    blocks = [p.node for p in locate(turn, Block)]
    assert [[ld.buffer for ld in stmt_loads(s.body)].count("a") for s in blocks] == [1, 0, 0]


@pytest.mark.parametrize(
    "statement",
    [
        "b[i, j] = a[i, j] + a[i - 1, j]",  # no neighbours along rows
        "b[i, j] = a[i, j - 1] + b[i, j + 1]",  # another iteration writes what is read
        "b[i, j] = a[i, M - j] + a[i, M - 1 - j]",  # backwards
    ],
)
def test_other_statements_are_left_alone(statement):
    assert not held(made_of(stencil(statement, 200)))


def test_neighbours_further_apart_than_a_vector_are_loaded():
    text = "def f(a: f64[300], b: f64[300]):\n    for j in range(200):\n        b[j] = a[j] + a[j + {}]\n"
    for apart, expected in ((LANES, 1), (LANES + 1, 0)):
        made = made_of(read_python(text.format(apart)))
        assert len(held(made)) == expected


def test_short_rows_and_vectors_shorter_than_a_line_are_left_alone():
    statement = STENCILS["three"][0]
    short = stencil(statement, 4 + LANES * LEAST_VECTORS - 1)
    assert not held(made_of(short))
    assert not held(made_of(stencil(statement, 200), find_target("x86_avx2")))
    assert held(made_of(stencil(statement, 200)))


def test_rows_take_half_of_the_registers_at_most():
    def made(rows):
        terms = " + ".join(f"a[{n}, j] * a[{n}, j + 1]" for n in range(rows))
        text = f"def f(a: f64[{rows}, 300], b: f64[300]):\n    for j in range(200):\n        b[j] = {terms}\n"
        return held(made_of(read_python(text)))

    most = WIDE.vector_registers // 4
    assert (len(made(most)), len(made(most + 1))) == (most, 0)
