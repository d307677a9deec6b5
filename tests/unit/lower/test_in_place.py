"""Intermediate tensors kept in the memory of the result."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import LOWERED, SCHEDULED, For, parse_function, run_function, stmt_children, verify
from tilewright.lower import lower
from tilewright.schedule import Schedule


def rows(make, *, shape=(6, 10), result=None):
    """``E = X - max X`` by rows, and ``Y`` made of it by ``make``; ``E`` inside of the loop over rows."""
    x = lang.placeholder(shape, name="X")
    k = lang.reduce_axis(shape[1], "k")
    m = lang.compute(shape[:1], lambda i: lang.max(x[i, k], axis=k), name="M")
    e = lang.compute(shape, lambda i, j: x[i, j] - m[i], name="E")
    y = lang.compute(result or shape, lambda i, j: make(e, x, i, j), name="Y")
    s = Schedule(lang.program([x], [y])).compute_at("E", "Y_i").compute_at("M", "Y_i")
    return s.decompose_init("M", "M_k")


def loops(stmt):
    here = [stmt] if isinstance(stmt, For) else []
    return here + [loop for child in stmt_children(stmt) for loop in loops(child)]


def check(s, kept):
    """Lower, and compare with the function as scheduled; ``kept`` is whether E has lost its memory."""
    verify(s.func, SCHEDULED)
    rng = np.random.default_rng(0)
    arrays = {
        b.name: rng.integers(-9, 9, [n.const for n in b.shape]).astype(np.float32)
        for b in s.func.buffers
        if b.name not in s.func.outputs
    }
    lowered = lower(s.func)
    verify(lowered, LOWERED)
    assert ("E" not in {b.name for b in lowered.body.allocated}) == kept
    assert all(key != "in_place" for loop in loops(lowered.body) for key, _ in loop.hints)
    want, got = run_function(s.func, arrays), run_function(lowered, arrays)
    for name in s.func.outputs:
        np.testing.assert_array_equal(got[name], want[name])


def test_rows_are_made_where_they_go():
    check(rows(lambda e, x, i, j: e[i, j] * 2).annotate("Y_j", "in_place", "E"), True)


def test_so_are_several_rows_at_once_and_vectors():
    s = rows(lambda e, x, i, j: e[i, j] * 2)
    check(s.parallel("Y_i").vectorize("E_j").vectorize("Y_j").annotate("Y_j", "in_place", "E"), True)
    x = lang.placeholder((8, 10), name="X")
    e = lang.compute((8, 10), lambda i, j: x[i, j] - 1, name="E")
    y = lang.compute((8, 10), lambda i, j: e[i, j] * 2, name="Y")
    s = Schedule(lang.program([x], [y])).split("Y_i", 4, names=["block", "own"]).compute_at("E", "block")
    check(s.annotate("Y_j", "in_place", "E"), True)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda e, x, i, j: e[i, 9 - j] * 2, id="another element"),
        pytest.param(lambda e, x, i, j: e[i, j] + e[i, 0], id="one that is overwritten before"),
        pytest.param(lambda e, x, i, j: lang.select(j < 5, e[i, j], x[i, j]) + e[i, 9 - j], id="both"),
    ],
)
def test_what_reads_other_elements_has_memory_of_its_own(make):
    check(rows(make).annotate("Y_j", "in_place", "E"), False)


def test_what_is_larger_than_the_result_has_memory_of_its_own():
    narrow = rows(lambda e, x, i, j: e[i, j] * 2, result=(6, 8))
    check(narrow.annotate("Y_j", "in_place", "E"), False)


def test_guarded_tiles_have_memory_of_their_own():
    s = rows(lambda e, x, i, j: e[i, j] * 2).split("Y_j", 4, names=["tile", "lane"], tail="mask")
    check(s.annotate("lane", "in_place", "E"), False)


def test_tiles_that_are_shifted_back_have_memory_of_their_own():
    # the last two tiles share rows, and one thread's unfinished ones would be the other's results
    x = lang.placeholder((7, 10), name="X")
    e = lang.compute((7, 10), lambda i, j: x[i, j] - 1, name="E")
    y = lang.compute((7, 10), lambda i, j: e[i, j] * 2, name="Y")
    s = Schedule(lang.program([x], [y])).split("Y_i", 4, names=["tile", "own"], tail="shift")
    check(s.compute_at("E", "own").annotate("Y_j", "in_place", "E"), False)


def test_a_result_has_room_for_one_buffer():
    x = lang.placeholder((6, 10), name="X")
    e = lang.compute((6, 10), lambda i, j: x[i, j] - 1, name="E")
    f = lang.compute((6, 10), lambda i, j: x[i, j] * 3, name="F")
    y = lang.compute((6, 10), lambda i, j: e[i, j] * f[i, j], name="Y")
    s = Schedule(lang.program([x], [y])).compute_at("E", "Y_i").compute_at("F", "Y_i")
    s = s.annotate("Y_j", "in_place", "F,E")
    assert len(lower(s.func).body.allocated) == 1
    check(s, "E" not in {b.name for b in lower(s.func).body.allocated})


def test_a_result_that_is_read_keeps_its_memory_to_itself():
    x = lang.placeholder((6, 10), name="X")
    e = lang.compute((6, 10), lambda i, j: x[i, j] - 1, name="E")
    y = lang.compute((6, 10), lambda i, j: e[i, j] * 2, name="Y")
    z = lang.compute((6, 10), lambda i, j: y[i, j] + 1, name="Z")
    s = Schedule(lang.program([x], [y, z])).compute_at("E", "Y_i")
    check(s.annotate("Y_j", "in_place", "E"), False)


def test_two_stages_share_no_memory_with_a_result_of_another_type():
    x = lang.placeholder((6, 10), name="X")
    e = lang.compute((6, 10), lambda i, j: x[i, j] - 1, name="E")
    y = lang.compute((6, 10), lambda i, j: lang.cast(e[i, j], "f16"), name="Y")
    s = Schedule(lang.program([x], [y])).compute_at("E", "Y_i")
    check(s.annotate("Y_j", "in_place", "E"), False)


def test_what_writes_elements_of_other_tiles_has_memory_of_its_own():
    """Five elements are made for each four results: the fifth, or the first, is a result of another tile."""

    def function(first, count):
        return parse_function(f"""
function("f", outputs=[Y])
X = f32[8]
Y = f32[8]
for t in range(2):
    E = alloc(f32[8])
    for a in range({count}):
        with block("E"):
            i = par(0, 8, {first} + a)
            E[i] = X[i]
    for b in range(4, hints={{"in_place": "E"}}):
        with block("Y"):
            i = par(0, 8, 4*t + b)
            Y[i] = E[i] * f32(2.0)
""")

    for first, count, kept in (("4*t", 4, True), ("3*t", 5, False), ("4*t - t", 5, False)):
        check(Schedule(function(first, count)), kept)
