"""Loops whose lengths data decide ask ahead for what they stream, arrays beyond the caches alone."""

import numpy as np
import pytest
from tests.native_kernel import STATED

from tilewright.build import build
from tilewright.cost import Machine
from tilewright.frontend.nests.python import read_python
from tilewright.ir import Block, For, function_at, locate, prefetch_hints, run_function, verify
from tilewright.runtime import aligned_copy
from tilewright.strategies import schedule_nest
from tilewright.strategies.nests.streams import AHEAD, streams_asked_ahead
from tilewright.support import assert_close
from tilewright.target import find_target

WIDE = find_target("x86_avx512")
LARGE = (WIDE.level("l2").size or 0) // 8 + 1  # f64 that do not fit
AWAY = int(AHEAD * (WIDE.level("l1").size or 0)) // 8


def product(inner, n=100, elements=LARGE):
    more = ", C: f64[N, E]" if "C[" in inner else ""
    text = f"""
def f(first: i32[N + 1], column: i32[E], A: f64[E], B: f64[E, 3], x: f64[N], y: f64[N]{more}):
    for i in range(N):
        for e in range(first[i], first[i + 1]):
            {inner}
"""
    return function_at(read_python(text), {"N": n, "E": elements})


def asked(func):
    """The hints of each loop of a black box, in order."""
    loops = [p.node for b in locate(func.body, Block) for p in locate(b.node.body, For)]
    return [[(h.name, h.further, h.level) for h in prefetch_hints(loop)] for loop in loops]


INNER = {
    "single elements alone run in lanes": ("y[i] += A[e] * x[column[e]]", []),
    "rows": ("y[i] += (B[e, 0] + B[e, 2]) * A[e]", ["B", "A"]),
    "what follows in another row is not what comes next": ("y[i] += C[i, e]", []),
    "a place that data decide": ("y[i] += A[column[e]]", []),
    "what it writes": ("A[e] = A[e] + x[i]", []),
    "other steps": ("y[i] += A[2 * e]", []),
}


@pytest.mark.parametrize("name", INNER)
def test_streams_are_asked_for(name):
    inner, streams = INNER[name]
    made = streams_asked_ahead(product(inner), WIDE)
    verify(made)
    assert asked(made) == [[(stream, AWAY, 1) for stream in streams]]


def test_what_a_cache_holds_is_not():
    assert asked(streams_asked_ahead(product(INNER["rows"][0], elements=LARGE // 4), WIDE)) == [[]]


def test_the_loop_that_data_decide_asks_for_those_that_it_holds():
    inner = "for k in range(3): y[i] += B[e, k]"
    assert asked(streams_asked_ahead(product(inner), WIDE)) == [[("B", AWAY, 1)], []]


def test_loops_of_known_lengths_are_left_to_the_hardware():
    text = "def f(A: f64[E], y: f64[1]):\n    for e in range(E):\n        y[0] += A[e]\n"
    func = function_at(read_python(text), {"E": LARGE})
    assert streams_asked_ahead(func, WIDE) == func


def test_results_stay():
    """Near the end of an array, what is asked for lies beyond it."""
    n, target = 50, STATED
    elements = (target.level("l2").size or 0) // 8 + 1
    func = product(INNER["rows"][0], n, elements)
    made = streams_asked_ahead(schedule_nest(func, Machine(target, 1)).func, target)
    assert any(asked(made))
    rng = np.random.default_rng(0)
    given = {b.name: np.zeros([s.as_int() for s in b.shape], b.dtype.numpy) for b in func.buffers}
    given["first"] = np.arange(elements - 4 * n - 1, elements, 4, dtype=np.int32)[: n + 1]
    for name in "ABxy":
        given[name] = rng.uniform(-1, 1, given[name].shape)
    table = [aligned_copy(given[b.name]) for b in made.buffers]
    build(made, target=target).run(table)
    expected = run_function(func, given)["y"]
    got = table[[b.name for b in made.buffers].index("y")]
    assert_close(got, expected, magnitude=np.abs(expected) + 8, terms=12)
