"""Recurrences of neighbouring iterations side by side: in any order, since their loop is free."""

import pytest
from tests.native_kernel import STATED

from tilewright.cost import Machine
from tilewright.frontend.nests.python import read_python
from tilewright.ir import For, function_at, locate, print_function, verify
from tilewright.poly import check_legal, infer_kinds, loop_facts
from tilewright.strategies import schedule_nest
from tilewright.strategies.nests.jammed import SIDE_BY_SIDE, jam_recurrences

HEAD = "def f(x: f64[N, N], y: f64[N, N], z: f64[N, N], n: f64):\n"


def jammed(text, size=19):
    """The nest with its outermost loop ``i`` side by side, judged; ``None`` where that does not pay."""
    func = infer_kinds(function_at(read_python(HEAD + text), {"N": size}))
    made = jam_recurrences(func, "i", loop_facts(func))
    if made is not None:
        verify(made)
        assert not check_legal(func, made, {}) and not check_legal(func, made, {}, mode="isl")
    return made


def kinds(func):
    """The loops within the outer part, by name: what they are."""
    return {p.node.var: p.node.kind.name for p in locate(func.body, For) if "i_o" in {f.var for f in p.loops}}


@pytest.mark.parametrize("size", [8, 19])
def test_steps_of_iterations_follow_one_another(size):
    made = jammed(
        """
    for i in range(N):
        x[i, 0] = 1.0
        for j in range(1, N):
            x[i, j] = (z[j, i] - x[i, j - 1]) / n
        for j in range(N - 2, -1, -1):
            y[j, i] = x[i, j] * y[j + 1, i]
""",
        size,
    )
    found = kinds(made)
    assert list(found.values()) == ["unroll", "serial", "unroll", "serial", "unroll"]
    unrolled = [p.node for p in locate(made.body, For) if p.node.kind.name == "unroll"]
    assert {f.extent.as_int() for f in unrolled} == {SIDE_BY_SIDE}


def test_loops_for_lanes_stay_whole():
    made = jammed(
        """
    for i in range(N):
        for j in range(1, N):
            x[i, j] = x[i, j - 1] / n
        for j in range(N):
            y[i, j] = x[i, j] * 2.0
"""
    )
    assert list(kinds(made).values()) == ["serial", "unroll", "serial", "serial"]


@pytest.mark.parametrize(
    "body",
    [
        "for j in range(N):\n            y[i, j] = 2.0 * z[i, j]",  # no recurrence
        "for j in range(N):\n            y[i, 0] += z[i, j]",  # a sum
        "for j in range(1, i):\n            x[i, j] = x[i, j - 1] / n",  # of its own length
    ],
)
def test_what_stays_as_it_is(body):
    assert jammed(f"    for i in range(N):\n        {body}\n") is None


def test_nests_in_the_order_of_their_text_have_them():
    text = """
    for t in range(3):
        for i in range(1, N - 1):
            for j in range(1, N):
                x[i, j] = (y[j, i - 1] + y[j, i + 1] - x[i, j - 1]) / n
        for i in range(1, N - 1):
            for j in range(1, N):
                y[i, j] = (x[i - 1, j] + x[i + 1, j] - y[i, j - 1]) / n
"""
    func = function_at(read_python(HEAD + text), {"N": 300})
    made = schedule_nest(func, Machine(STATED, 2))
    assert "in the order in which it is written" in made.notes
    assert print_function(made.func).count(f"unroll({SIDE_BY_SIDE})") == 2
