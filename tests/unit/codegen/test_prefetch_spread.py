"""The hint ``prefetch`` with ``spread``: the next iteration's operand is asked for during the present one."""

import re

import numpy as np
import pytest
from tests.native_kernel import Native

from tilewright import lang
from tilewright.codegen import spread
from tilewright.codegen.spread import reduction_steps
from tilewright.ir import F32, SERIAL, ZERO, For, Index, Load, imax, store, var
from tilewright.lang import ops
from tilewright.schedule import Schedule

M, N, K = 8, 48, 64


def tiled(hint="B@spread", rows=4, unroll=1, panels=True, n=N):
    a, b = lang.placeholder((M, K), name="A"), lang.placeholder((K, n), name="B")
    s = Schedule(lang.program([a, b], [ops.matmul(a, b, name="C")]))
    if panels:
        s = s.set_layout("B", ("d1//16", "d0", "d1%16"))
    i, j, k = s.loops("C")
    s = s.split(i, rows, names=["it", "ir"]).split(j, 16, names=["p", "lane"])
    s = s.reorder("p", "it", "ir", "lane", k).cache("C", at="it", scope="register", mode="write", name="acc")
    s = s.reorder(k, "ir", "lane").decompose_init("C", k).annotate(k, "unroll", str(unroll))
    for block in ("C", "C_init", "acc_out"):
        row, lanes = [loop for loop in s.loops(block)[2:] if loop != k]
        s = s.unroll(row).vectorize(lanes)
    s = s.annotate("it", "outline")
    s = s.annotate("p", "prefetch", hint) if hint else s
    return s.partition("p", n // 16) if n % 16 else s


def prefetches(s):
    return Native(s.func).text.text.count("call void @llvm.prefetch")


def operands(s):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(e).astype(np.float32) for e in ((M, K), (K, N)))
    packed = b.reshape(K, N // 16, 16).transpose(1, 0, 2)
    return a, b, np.ascontiguousarray(packed)


@pytest.mark.parametrize(
    ("rows", "unroll", "expected"), [(4, 1, 1), (4, 4, 2), (2, 4, 1), (8, 1, 1), (8, 4, 4)]
)
def test_a_turn_asks_for_its_share_of_the_next_panel(rows, unroll, expected):
    # 64 x 16 elements in 64 steps of each tile of rows: 16 of them to a line
    assert prefetches(tiled(rows=rows, unroll=unroll)) == expected


def test_a_panel_goes_to_the_level_that_the_hint_names():
    """Level 2 is locality 2 of LLVM's intrinsic, the first one 3."""
    for hint, locality in (("B@spread", 3), ("B@spread:2", 2)):
        text = Native(tiled(hint).func).text.text
        assert text.count(f"i32 0, i32 {locality}, i32 1)") == 1 == prefetches(tiled(hint))


def test_steps_are_those_of_the_innermost_loops_of_outlined_bodies():
    body = tiled(rows=2).func.body
    assert reduction_steps(body, False) == (N // 16) * (M // 2) * K
    assert reduction_steps(tiled(rows=2).func.body.body, False) == (M // 2) * K


def test_the_last_iteration_asks_for_its_own_elements_again():
    text = Native(tiled().func).text.text
    assert re.search(rf"call i64 @llvm\.smin\.i64\(i64 {N // 16 - 1}, ", text)


def test_a_buffer_of_which_all_iterations_read_the_same_is_left_out():
    assert prefetches(tiled("A@spread")) == 0


@pytest.mark.parametrize(
    ("rows", "unroll", "expected"), [(4, 1, 1), (4, 4, 2), (2, 4, 1), (8, 1, 1), (8, 4, 4)]
)
def test_runs_that_lie_apart_are_asked_for_one_after_the_other(rows, unroll, expected):
    # 64 runs of one line, 3 lines apart, in 64 steps of each tile of rows
    assert prefetches(tiled(rows=rows, unroll=unroll, panels=False)) == expected


def test_the_last_run_is_asked_for_again_where_turns_are_left():
    text = Native(tiled(rows=2, unroll=4, panels=False).func).text.text
    assert re.search(rf"call i64 @llvm\.smin\.i64\(i64 {K - 1}, ", text)


def test_runs_that_begin_within_a_line_end_in_one_more():
    assert prefetches(tiled(rows=8, panels=False, n=N + 8)) == 2 * prefetches(tiled(rows=8, panels=False))


def test_results_stay_the_same():
    s = tiled(unroll=4)
    a, b, packed = operands(s)
    got = Native(s.func)({"A": a, "B": packed})["C"]
    np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-4)


def test_loops_of_varying_extent_count_as_the_longest():
    body = store("Y", (var("i"),), Load("X", (var("k"),), F32))
    rows = For("k", imax(0, 1 - var("i")), Index(3), For("j", ZERO, Index(16), body), SERIAL)
    assert reduction_steps(rows, True) == 3 * 16
    # of unknown extent
    assert reduction_steps(For("k", ZERO, var("n"), For("j", ZERO, Index(16), body)), True) == 0


def test_a_step_that_would_ask_for_too_many_lines_asks_for_none(monkeypatch):
    assert prefetches(tiled(rows=8)) == 1
    monkeypatch.setattr(spread, "MOST_LINES", 0.5)
    assert prefetches(tiled(rows=8)) == 0
