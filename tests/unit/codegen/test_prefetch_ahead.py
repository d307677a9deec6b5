"""The hint ``prefetch`` with a distance: a serial loop asks for what later iterations touch."""

import numpy as np
import pytest
from tests.native_kernel import Native

from tilewright import lang
from tilewright.schedule import Schedule


def program():
    x, w = lang.placeholder((4, 256), name="X"), lang.placeholder((256,), name="W")
    k = lang.reduce_axis(256, "k")
    y = lang.compute((4,), lambda i: lang.sum(x[i, k] * w[k], axis=k), name="Y")
    return lang.program([x, w], [y])


def scheduled(hint):
    s = Schedule(program()).rfactor("Y", "k", 16, part="inner", name="P")
    i, lanes, turn = s.loops("P")
    s = s.reorder(turn, i, lanes).decompose_init("P", turn)
    s = s.unroll(i).vectorize(lanes)
    return s.annotate(turn, "prefetch", hint) if hint else s


def prefetches(kernel):
    return kernel.text.text.count("call void @llvm.prefetch")


def test_each_line_of_the_named_buffers_is_asked_for_once_an_iteration():
    assert prefetches(Native(scheduled("X@8").func)) == 4
    assert prefetches(Native(scheduled("X@8,W@4").func)) == 5  # all rows share W's line
    assert prefetches(Native(scheduled("X@8,X@8").func)) == 8  # asked for again
    assert prefetches(Native(scheduled("X").func)) == 0  # without a distance: for outlined bodies


def test_elements_further_on_go_to_the_second_level():
    text = Native(scheduled("X+1024").func).text.text
    asked = [line for line in text.splitlines() if "call void @llvm.prefetch" in line]
    assert len(asked) == 4
    assert all("i32 0, i32 2, i32 1)" in line for line in asked)
    for hint in ("X@8", "X+1024:1"):
        near = Native(scheduled(hint).func).text.text
        assert near.count("i32 0, i32 3, i32 1)") == 4


@pytest.mark.parametrize("hint", ["X@1000", "X+100000", "X+100000:1", "X@1000,X+5"])
def test_results_stay_the_same_beyond_the_end(hint):
    rng = np.random.default_rng(0)
    given = {"X": rng.random((4, 256), np.float32), "W": rng.random(256, np.float32)}
    made = Native(scheduled(hint).func)(given)["Y"]
    np.testing.assert_array_equal(made, Native(scheduled("").func)(given)["Y"])
    np.testing.assert_allclose(made, given["X"] @ given["W"], rtol=1e-5)


@pytest.mark.parametrize("hint", ["X@2", "X@2,W@2", "X+64", "X@spread"])
def test_elements_whose_place_is_data_are_not_asked_for(hint):
    """`W[i + 2]` would be read to find what row of X comes two rows later; the last ones do not exist."""
    x, w = lang.placeholder((5, 64), name="X"), lang.placeholder((16,), "i64", name="W")
    s = Schedule(lang.program([x, w], [lang.ops.gather(x, w, 0)]))
    i, j = s.loops("gather")
    kernel = Native(s.annotate(i, "prefetch", hint).vectorize(j).func)
    assert prefetches(kernel) == hint.count("W@")
    rng = np.random.default_rng(0)
    given = {"X": rng.random((5, 64), np.float32), "W": rng.integers(0, 5, 16)}
    np.testing.assert_array_equal(kernel(given)["gather"], given["X"][given["W"]])


def test_what_the_loop_allocates_itself_is_not_asked_for():
    x = lang.placeholder((5, 64), name="X")
    y = lang.compute((5, 64), lambda i, j: x[i, j] * 2, name="Y")
    s = Schedule(lang.program([x], [y])).cache("X", "i", name="L")
    kernel = Native(s.annotate("i", "prefetch", "L@2,X@2").func)
    assert prefetches(kernel) == 1
    given = np.random.default_rng(0).random((5, 64), np.float32)
    np.testing.assert_array_equal(kernel({"X": given})["Y"], given * 2)


def test_vector_loops_ask_once_a_vector():
    x = lang.placeholder((4, 512), name="X")
    y = lang.compute((4, 512), lambda i, j: x[i, j] * 2, name="Y")
    s = Schedule(lang.program([x], [y])).vectorize("j").annotate("j", "prefetch", "X+512")
    kernel = Native(s.func)
    assert prefetches(kernel) == 1
    given = np.random.default_rng(0).random((4, 512), np.float32)
    np.testing.assert_array_equal(kernel({"X": given})["Y"], given * 2)


def test_of_neighbours_further_on_one_a_line_is_asked_for():
    """Nine of f32 next to each other reach into two lines at most; iterations ask for the rest."""
    x = lang.placeholder((50, 9), name="X")
    k = lang.reduce_axis(9, "k")
    y = lang.compute((50,), lambda i: lang.sum(x[i, k], axis=k), name="Y")
    s = Schedule(lang.program([x], [y])).unroll("k").annotate("i", "prefetch", "X+90:1")
    kernel = Native(s.func)
    assert prefetches(kernel) == 1
    given = np.random.default_rng(0).random((50, 9), np.float32)
    np.testing.assert_allclose(kernel({"X": given})["Y"], given.sum(1), rtol=1e-5)
