"""Rewrites of programs compute what the source computes."""

import numpy as np
import pytest

from tilewright import ir, lang
from tilewright.lang import algorithms, ops
from tilewright.support import ScheduleError

RNG = np.random.default_rng(17)


def same(program, rewritten, arrays):
    """Equal in double precision by the evaluator, and in the interpreter's order."""
    expected = lang.evaluate(program, arrays, dtype_override="f64")
    found = lang.evaluate(rewritten, arrays, dtype_override="f64")
    single = ir.run_program(rewritten, dict(zip((b.name for b in program.inputs), arrays, strict=True)))
    for name, want in expected.items():
        np.testing.assert_allclose(found[name], want, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(single[name], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 3, 4, 12])
def test_split_k(length):
    A, B = lang.placeholder((4, 12), name="A"), lang.placeholder((12, 5), name="B")
    program = lang.program([A, B], ops.matmul(A, B, name="C"))
    split = algorithms.split_reduction(program, "C", "k", length)
    assert [s.name for s in split.stages] == ["C_part", "C"]
    assert [(it.name, it.kind) for it in split.stages[0].iters] == [
        ("k_part", "par"), ("i", "par"), ("j", "par"), ("k", "red"),
    ]  # fmt: skip
    assert [str(n) for n in split.buffer("C_part").shape] == [str(12 // length), "4", "5"]
    same(program, split, [RNG.standard_normal(s).astype(np.float32) for s in ((4, 12), (12, 5))])


@pytest.mark.parametrize("length", [2, 4, 7])
@pytest.mark.parametrize("fold", [lang.sum, lang.max, lang.min, lang.argmax, lang.argmin])
def test_parts_that_do_not_divide_and_conditions(fold, length):
    A = lang.placeholder((5, 7), name="A")
    k = lang.reduce_axis(7, "k")
    plain = lang.compute((5,), lambda i: fold(A[i, k], axis=k), name="P")
    some = lang.compute((5,), lambda i: fold(A[i, k], axis=k, where=(k <= i) & (A[i, k] != 2)), name="S")
    program = lang.program([A], [plain, some])
    split = algorithms.split_reduction(
        algorithms.split_reduction(program, "P", "k", length), "S", "k", length
    )
    data = RNG.integers(-2, 3, (5, 7)).astype(np.float32)
    data[0, 0] = 1
    same(program, split, [data])


def test_one_axis_of_a_convolution_and_several_outputs():
    x, w = lang.placeholder((1, 5, 6, 6), name="x"), lang.placeholder((2, 5, 3, 3), name="w")
    program = lang.program([x, w], ops.conv(x, w, name="Y"))
    arrays = [RNG.standard_normal(s).astype(np.float32) for s in ((1, 5, 6, 6), (2, 5, 3, 3))]
    same(program, algorithms.split_reduction(program, "Y", "ic", 2), arrays)
    A = lang.placeholder((3, 6), name="A")
    k = lang.reduce_axis(6, "k")
    both = lang.compute(
        (3,), lambda i: (lang.sum(A[i, k], axis=k), lang.max(A[i, k], axis=k)), name=("S", "M")
    )
    program = lang.program([A], both)
    split = algorithms.split_reduction(program, "M", "k", 2)
    assert [b.name for b in split.temps] == ["S_part", "M_part"]
    same(program, split, [RNG.standard_normal((3, 6)).astype(np.float32)])


def test_refusals():
    A = lang.placeholder((4, 6), name="A")
    k = lang.reduce_axis(6, "k")
    n = lang.param("n")
    B = lang.placeholder((n,), name="B")
    m = lang.reduce_axis(n, "m")
    S = lang.compute((4,), lambda i: lang.sum(A[i, k], axis=k), name="S")
    T = lang.compute((), lambda: lang.sum(B[m], axis=m), name="T")
    program = lang.program([A, B], [S, T])
    split = algorithms.split_reduction
    for args, message in (
        (("X", "k", 2), "there is no stage 'X'"),
        (("S", "i", 2), "stage 'S' has no reduction over 'i' that can be split"),
        (("T", "m", 2), r"the range of 'm' is \[0, n\)"),
        (("S", "k", 7), "parts of 7 values of an axis of 6"),
    ):
        with pytest.raises(ScheduleError, match=message):
            split(program, *args)
