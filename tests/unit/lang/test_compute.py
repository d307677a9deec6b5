"""Definitions against plain numpy."""

import numpy as np
import pytest

from tilewright import ir, lang

RNG = np.random.default_rng(7)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(inputs, output, *arrays, **params):
    program = lang.program(inputs, output, name="test")
    ir.verify_program(program)
    found = lang.evaluate(program, [*arrays], params)
    return found[program.outputs[0].name] if not isinstance(output, list) else list(found.values())


def test_matmul():
    A, B = lang.placeholder((3, 4), name="A"), lang.placeholder((4, 5), name="B")
    k = lang.reduce_axis(4, "k")
    C = lang.compute((3, 5), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k))
    a, b = f32(3, 4), f32(4, 5)
    np.testing.assert_allclose(run([A, B], C, a, b), a @ b, rtol=1e-5)


def test_symbolic_sizes_come_from_the_shapes():
    n, m = lang.param("n"), lang.param("m", multiple_of=2)
    A = lang.placeholder((n, m), name="A")
    B = lang.compute((m, n), lambda i, j: A[j, i] + i * 10 + j)
    a = f32(3, 4)
    expected = a.T + np.arange(4, dtype=np.float32)[:, None] * 10 + np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(run([A], B, a), expected)


def test_reductions_of_every_kind():
    A = lang.placeholder((3, 5), name="A")
    k, m = lang.reduce_axis(5, "k"), lang.reduce_axis(3, "m")
    a = f32(3, 5)
    cases = {
        lang.sum: np.sum, lang.prod: np.prod, lang.max: np.max, lang.min: np.min,
        lang.argmax: np.argmax, lang.argmin: np.argmin,
    }  # fmt: skip
    for ours, theirs in cases.items():
        rows = lang.compute((3,), lambda i, f=ours: f(A[i, k], axis=k))
        np.testing.assert_allclose(run([A], rows, a), theirs(a, axis=1), rtol=1e-5)
        whole = lang.compute((), lambda f=ours: f(A[m, k], axis=(m, k)))
        np.testing.assert_allclose(run([A], whole, a), theirs(a), rtol=1e-5)
    some = lang.compute((3,), lambda i: lang.any(A[i, k] > 1, axis=k))
    np.testing.assert_array_equal(run([A], some, a), (a > 1).any(axis=1))
    every = lang.compute((5,), lambda j: lang.all(A[m, j] > -1, axis=m))
    np.testing.assert_array_equal(run([A], every, a), (a > -1).all(axis=0))


def test_argmax_takes_the_first_of_equals_and_the_first_nan():
    A = lang.placeholder((4, 6), name="A")
    k = lang.reduce_axis(6, "k")
    a = np.zeros((4, 6), np.float32)
    a[1, [2, 4]] = 3
    a[2, [3, 5]] = np.nan
    a[3] = -np.inf
    for ours, theirs in ((lang.argmax, np.argmax), (lang.argmin, np.argmin)):
        B = lang.compute((4,), lambda i, f=ours: f(A[i, k], axis=k))
        np.testing.assert_array_equal(run([A], B, a), theirs(a, axis=1))


def test_a_pair_of_maximum_and_index_is_one_stage():
    A = lang.placeholder((3, 6), "i32", name="A")
    k = lang.reduce_axis(6, "k")
    pair = lang.compute((3,), lambda i: lang.max_with_index(A[i, k], axis=k), name=("V", "I"))
    a = RNG.integers(-9, 9, (3, 6)).astype(np.int32)
    values, places = run([A], list(pair), a)
    np.testing.assert_array_equal(values, a.max(axis=1))
    np.testing.assert_array_equal(places, a.argmax(axis=1))
    assert len(lang.program([A], pair).stages) == 1


def test_sums_returned_together_are_one_stage():
    A = lang.placeholder((3, 6), name="A")
    k = lang.reduce_axis(6, "k")
    both = lang.compute(
        (3,), lambda i: (lang.sum(A[i, k], axis=k), lang.sum(A[i, k] * A[i, k], axis=k)), name="S"
    )
    a = f32(3, 6)
    first, second = run([A], list(both), a)
    np.testing.assert_allclose(first, a.sum(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second, (a * a).sum(axis=1), rtol=1e-5)
    assert [s.name for s in lang.program([A], both).stages] == ["S_1"]


def test_several_outputs_of_one_elementwise_stage():
    A = lang.placeholder((4,), name="A")
    up, down = lang.compute((4,), lambda i: (A[i] + 1, A[i] < 0))
    a = f32(4)
    first, second = run([A], [up, down], a)
    np.testing.assert_array_equal(first, a + np.float32(1))
    np.testing.assert_array_equal(second, a < 0)


def test_nested_reductions_and_a_reduction_used_twice():
    A = lang.placeholder((3, 4), name="A")
    k, m = lang.reduce_axis(4, "k"), lang.reduce_axis(3, "m")

    def body(i):
        mean = lang.sum(A[i, k], axis=k) / 4
        return mean * mean + lang.sum(lang.max(A[m, k], axis=k), axis=m)

    a = f32(3, 4)
    expected = a.mean(axis=1) ** 2 + a.max(axis=1).sum()
    B = lang.compute((3,), body, name="B")
    np.testing.assert_allclose(run([A], B, a), expected, rtol=1e-5)
    assert len(lang.program([A], B).stages) == 4


def test_triangular_reductions_by_where_and_by_range():
    A = lang.placeholder((6, 6), name="A")
    k = lang.reduce_axis(6, "k")
    a = f32(6, 6)
    expected = np.tril(a).sum(axis=1)
    by_where = lang.compute((6,), lambda i: lang.sum(A[i, k], axis=k, where=(k <= i) & (i < 6)))
    np.testing.assert_allclose(run([A], by_where, a), expected, rtol=1e-4)

    def body(i):
        r = lang.reduce_axis(i + 1, "r")
        return lang.sum(A[i, r], axis=r)

    np.testing.assert_allclose(run([A], lang.compute((6,), body), a), expected, rtol=1e-4)
    strict = lang.compute((6,), lambda i: lang.max(A[i, k], axis=k, where=k < i))
    found = run([A], strict, a)
    assert found[0] == -np.inf
    assert found[3] == a[3, :3].max()


def test_a_where_on_data():
    A = lang.placeholder((5, 7), name="A")
    k = lang.reduce_axis(7, "k")
    a = f32(5, 7)
    B = lang.compute((5,), lambda i: lang.sum(A[i, k], axis=k, where=A[i, k] > 0))
    np.testing.assert_allclose(run([A], B, a), np.where(a > 0, a, 0).sum(axis=1), rtol=1e-5)
    C = lang.compute((5,), lambda i: lang.argmax(-A[i, k], axis=k, where=A[i, k] > 0))
    masked = np.where(a > 0, -a, -np.inf)
    expected = np.where((a > 0).any(axis=1), masked.argmax(axis=1), np.iinfo(np.int64).max)
    np.testing.assert_array_equal(run([A], C, a), expected)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap", "constant"])
@pytest.mark.parametrize("reach", [2, 9])
def test_boundaries_agree_with_numpy_pad(mode, reach):
    A = lang.placeholder((5, 3), name="A")
    view = lang.boundary(A, mode="clamp" if mode == "edge" else mode)
    B = lang.compute((5 + 2 * reach, 3), lambda i, j: view[i - reach, j])
    a = f32(5, 3)
    np.testing.assert_array_equal(run([A], B, a), np.pad(a, ((reach, reach), (0, 0)), mode=mode))


def test_a_constant_boundary_has_any_value():
    A = lang.placeholder((4,), name="A")
    low = lang.scalar("low")
    for value, number in ((float("-inf"), -np.inf), (2, 2), (low, 3)):
        view = lang.boundary(A, value)
        B = lang.compute((6,), lambda i, v=view: v[i - 1])
        a = f32(4)
        expected = np.pad(a, 1, constant_values=number)
        np.testing.assert_array_equal(run([A, low], B, a, np.float32(3)), expected)


def test_boundaries_of_symbolic_extents():
    n = lang.param("n")
    A = lang.placeholder((n,), name="A")
    for mode in ("clamp", "reflect"):
        view = lang.boundary(A, mode=mode)
        B = lang.compute((n + 2,), lambda i, v=view: v[i - 1])
        a = f32(5)
        expected = np.pad(a, 1, mode="edge" if mode == "clamp" else mode)
        np.testing.assert_array_equal(run([A], B, a), expected)


def test_gather_and_scatter_indices_from_data():
    n = lang.param("n")
    A, at = lang.placeholder((n, 3), name="A"), lang.placeholder((4,), "i64", name="at")
    B = lang.compute((4, 3), lambda i, j: A[lang.clamp(at[i], 0, n - 1), j])
    a = f32(5, 3)
    where = np.array([4, -7, 2, 99])
    np.testing.assert_array_equal(run([A, at], B, a, where), a[np.clip(where, 0, 4)])
    C = lang.compute((4, 3), lambda i, j: A[lang.to_index(lang.clamp(at[i], 0, n - 1)) // 2, j])
    np.testing.assert_array_equal(run([A, at], C, a, where), a[np.clip(where, 0, 4) // 2])


def test_quasi_affine_reads():
    A = lang.placeholder((12,), name="A")
    B = lang.compute((3, 2, 2), lambda i, j, k: A[4 * i + 2 * j + k])
    C = lang.compute((24,), lambda i: A[(i // 3) % 8 + i % 3])
    a = f32(12)
    i = np.arange(24)
    np.testing.assert_array_equal(run([A], B, a), a.reshape(3, 2, 2))
    np.testing.assert_array_equal(run([A], C, a), a[(i // 3) % 8 + i % 3])


def test_scalar_parameters():
    A, alpha = lang.placeholder((4,), name="A"), lang.scalar("alpha")
    B = lang.compute((4,), lambda i: alpha * A[i])
    a = f32(4)
    np.testing.assert_array_equal(run([A, alpha], B, a, np.float32(0.5)), a * np.float32(0.5))


def test_empty_extents():
    n = lang.param("n", lo=0)
    A = lang.placeholder((n, 4), name="A")
    k = lang.reduce_axis(n, "k")
    S = lang.compute((4,), lambda j: lang.sum(A[k, j], axis=k))
    T = lang.compute((n, 4), lambda i, j: A[i, j] + 1)
    np.testing.assert_array_equal(run([A], S, np.zeros((0, 4), np.float32)), np.zeros(4))
    assert run([A], T, np.zeros((0, 4), np.float32)).shape == (0, 4)


def test_len_is_the_first_extent():
    assert len(lang.placeholder((4, 6), name="A")) == 4
    assert lang.placeholder((0,), name="E") is not None and bool(
        lang.placeholder((lang.param("n"),), name="S")
    )
