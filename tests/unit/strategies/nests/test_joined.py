"""Neighbouring loops as one: iterations of one meet equal ones of the other alone, and share data."""

import pytest
from tests.native_kernel import STATED

from tilewright.cost import Machine
from tilewright.frontend.nests import scop
from tilewright.frontend.nests.python import read_python
from tilewright.ir import Alloc, For, function_at, locate, verify
from tilewright.poly import check_legal, infer_kinds, loop_facts
from tilewright.strategies import schedule_nest
from tilewright.strategies.nests.joined import join_loops
from unit.frontend.nests.polybench import KERNELS

HEAD = "def f(x: f64[N], y: f64[N], z: f64[N], A: f64[N, N], B: f64[N, N]):\n"


def outermost(text):
    """The outermost loops that are left; what they do is judged."""
    func = infer_kinds(function_at(read_python(HEAD + text), {"N": 6}))
    facts = loop_facts(func)
    made = join_loops(func, facts)
    verify(made)
    assert not check_legal(func, made, {}) and not check_legal(func, made, {}, mode="isl")
    found = loop_facts(made)
    left = {p.node.var for p in locate(made.body, For)}
    assert (found.free, found.sums) == (facts.free & left, facts.sums & left)
    return [p.node.var for p in locate(made.body, For) if not p.loops]


def test_rows_that_one_loop_leaves_to_the_next():
    text = """
    for i in range(N):
        for j in range(1, N):
            A[i, j] = A[i, j] + A[i, j - 1]
    for i in range(N):
        for j in range(N):
            B[i, j] = A[i, N - 1 - j]
    for i in range(N):
        for j in range(N):
            A[i, j] = 2.0 * B[i, j]
"""
    assert outermost(text) == ["i"]


@pytest.mark.parametrize(
    "second",
    [
        "for i in range(N - 1):\n        y[i] = x[i]",  # another extent
        "for i in range(N):\n        y[i] = x[N - 1 - i]",  # other iterations'
        "for i in range(N):\n        x[i] = z[i]\n        y[i] = x[0]",
        "for i in range(N):\n        y[i] = 2.0",  # nothing in common
        "for i in range(N):\n        for j in range(N):\n            A[i, j] = x[i]",  # would not be in lanes
        "for i in range(1, N + 1):\n        y[i - 1] = x[i - 1]",  # begins elsewhere
    ],
)
def test_loops_that_stay_apart(second):
    first = "    for i in range(N):\n        x[i] = 3.0 * z[i]\n    "
    assert len(outermost(first + second + "\n")) == 2


def test_what_passes_at_equal_iterations_inside_of_a_loop_over_time():
    text = """
    for t in range(3):
        for i in range(N):
            x[i] = x[i] + y[i]
        for i in range(N):
            z[i] = x[i] * 2.0
        for i in range(N):
            y[i] = z[0] * x[i]
"""
    func = infer_kinds(function_at(read_python(HEAD + text), {"N": 6}))
    made = join_loops(func, loop_facts(func))
    assert not check_legal(func, made, {})
    assert [p.node.var for p in locate(made.body, For)] == ["t", "i", "i_2"]


def test_recurrences_of_deriche_share_rows_and_are_in_registers():
    func = function_at(scop(KERNELS["deriche"]).func, {"W": 300, "H": 200})
    made = schedule_nest(func, Machine(STATED, 2)).func
    (loop,) = (p.node for p in locate(made.body, For) if p.node.kind.name == "parallel")
    inside = [p.node.buffer for p in locate(loop, Alloc)]
    assert len(inside) == 7 and {b.scope for b in inside} == {"register"}
