"""Where the start of a reduction goes."""

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.ir import blocks, run_function, run_program
from tilewright.lower import decompose_inits
from tilewright.schedule import Schedule


def summed(n=5, k=12):
    x = lang.placeholder((n, k), "f32", "x")
    axis = lang.reduce_axis(k, "k")
    return Schedule(
        lang.program([x], [lang.compute((n,), lambda i: lang.sum(x[i, axis], axis=axis), name="y")])
    )


def check(s, sizes=(5, 12), params=None):
    x = np.arange(sizes[0] * sizes[1], dtype=np.float32).reshape(sizes)
    want = {"y": x.sum(1)}
    low = decompose_inits(s.func)
    assert all(b.node.init is None for b in blocks(low.body))
    np.testing.assert_array_equal(run_function(low, {"x": x}, params)["y"], want["y"])
    np.testing.assert_array_equal(Native(s.func)({"x": x}, params)["y"], want["y"])
    return low


def names(func):
    return [b.node.name for b in blocks(func.body)]


def test_one_start_before_the_loops_of_the_reduction():
    assert names(check(summed())) == ["y_init_1", "y"]


def test_parts_of_a_reduction_that_do_not_hold_its_first_term_start_nothing():
    s = summed().partition("k", 4)
    assert sum("init" in n for n in names(check(s))) == 1
    s = summed().peel("k", "last")
    assert sum("init" in n for n in names(check(s))) == 1
    s = summed().peel("k", "first")
    assert sum("init" in n for n in names(check(s))) == 1


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 9])
def test_parts_of_symbolic_size_decide_at_run_time(k):
    n = lang.param("n", 1, 64)
    x = lang.placeholder((5, n), "f32", "x")
    axis = lang.reduce_axis(n, "k")
    y = lang.compute((5,), lambda i: lang.sum(x[i, axis], axis=axis), name="y")
    s = Schedule(lang.program([x], [y])).partition("k", -3)
    check(s, (5, k), {"n": k})


def test_split_reductions_start_once():
    s = summed().split("k", 5, tail="guard")
    assert sum("init" in n for n in names(check(s))) == 1


def test_a_reduction_outside_of_its_results_has_a_nest_of_starts():
    s = summed().reorder("k", "i")
    low = check(s)
    assert names(low) == ["y_init_1", "y"]


def test_starts_stay_where_their_results_are_allocated():
    x = lang.placeholder((3, 3), "f32", "x")

    def below(i, j):
        k = lang.reduce_axis((0, j + 1), "k")
        return lang.sum(x[i, k], axis=k)

    y = lang.compute((3, 3), below, name="y")
    z = lang.compute((3, 3), lambda i, j: y[j, i] + x[i, j], name="z")
    program = lang.program([x], [z])
    # the last term of a column's sum is where its allocation's loop says
    s = Schedule(program).compute_at("y", "z_i").peel("y_k", "last")
    a = np.arange(9, dtype=np.float32).reshape(3, 3)
    want = run_program(program, {"x": a})["z"]
    np.testing.assert_array_equal(run_function(decompose_inits(s.func), {"x": a})["z"], want)
    np.testing.assert_array_equal(Native(s.func)({"x": a})["z"], want)
