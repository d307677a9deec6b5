import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tilewright.support import (
    assert_close,
    compare,
    compare_norms,
    error_bound,
    growth,
    max_error_ratio,
    unit_roundoff,
)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_unit_roundoff_is_half_an_ulp_of_one(dtype):
    kind = np.dtype(dtype)
    u = unit_roundoff(kind)
    one = np.array(1.0, kind)
    assert (np.array(1.0 + 2 * u, kind) > one) and np.array(1.0 + u, kind) == one  # ties to even
    # Adding anything more than u rounds up.
    assert np.array(1.0 + u * 1.001, kind) > one or kind == np.float64


@pytest.mark.parametrize(
    "dtype", ["i8", "u64", "bool", np.dtype(np.int32), np.dtype(np.uint8), np.dtype(np.bool_)]
)
def test_exact_types_have_no_roundoff(dtype):
    assert unit_roundoff(dtype) == 0.0
    assert error_bound([5.0], dtype)[0] == 0.0


def test_unknown_type_is_refused():
    with pytest.raises(ValueError, match="complex64"):
        unit_roundoff(np.dtype(np.complex64))


def test_growth_is_linear_then_root():
    assert [growth(n) for n in (0, 1, 10, 64)] == [0, 1, 10, 64]
    assert growth(6400) == 640
    with pytest.raises(ValueError, match="-1"):
        growth(-1)


@given(st.integers(1, 600), st.integers(0, 2**32 - 1), st.sampled_from(["float32", "float16", "bfloat16"]))
def test_sums_in_any_order_stay_within_the_bound(n, seed, name):
    rng = np.random.default_rng(seed)
    kind = np.dtype(name) if name != "bfloat16" else np.dtype(ml_dtypes.bfloat16)
    values = rng.standard_normal(n).astype(kind)
    total = np.zeros((), kind)
    for value in rng.permutation(values):
        total = np.add(total, value, dtype=kind)
    exact, magnitude = values.astype(np.float64).sum(), np.abs(values.astype(np.float64)).sum()
    assert_close(np.array(total), np.array(exact), magnitude=magnitude, terms=n)


@given(st.integers(1, 2000), st.integers(0, 2**32 - 1))
def test_a_lost_average_term_is_found(n, seed):
    values = np.random.default_rng(seed).choice([-1.0, 1.0], n).astype(np.float32)
    exact, magnitude = values.sum(dtype=np.float64), np.float64(n)
    assert not compare(
        np.float32(exact - values[-1]).reshape(1), exact.reshape(1), magnitude=magnitude, terms=n
    )


def test_first_offending_index_in_row_major_order():
    expected = np.ones((3, 4), np.float32)
    actual = expected.copy()
    actual[1, 2], actual[2, 0] = 2.0, 9.0
    outcome = compare(actual, expected)
    assert not outcome
    assert (outcome.index, outcome.count, outcome.actual, outcome.expected) == ((1, 2), 2, 2.0, 1.0)
    assert outcome.ratio == pytest.approx(8.0 / (8 * 2.0**-24), rel=1e-6)
    with pytest.raises(
        AssertionError, match=r"logits: 2 elements .* first at \[1, 2\]: got 2.0, expected 1.0"
    ):
        assert_close(actual, expected, what="logits")


def test_not_finite_values_agree_only_with_themselves():
    values = np.array([np.nan, np.inf, -np.inf, 0.0])
    assert compare(values, values)
    assert max_error_ratio(np.array([np.inf]), np.array([-np.inf])) == np.inf
    assert compare(np.array([1.0]), np.array([np.nan])).index == (0,)
    assert compare(np.array([np.nan]), np.array([1.0])).index == (0,)
    # Even where the magnitude overflows, an infinity is not a number.
    assert not compare(np.array([np.inf]), np.array([1.0]), magnitude=[np.inf])
    assert compare(np.array([3.0]), np.array([1.0]), magnitude=[np.inf])


def test_integers_are_compared_exactly_beyond_f64():
    big = np.array([2**63 - 1], np.int64)
    assert compare(big, big)
    assert compare(big - 1, big).actual == 2**63 - 2


def test_underflow_is_allowed_for():
    assert compare(np.zeros(1, np.float32), np.array([1e-39]), magnitude=[1e-39])
    assert not compare(np.zeros(1, np.float32), np.array([1e-36]), magnitude=[1e-36])


def test_scalars_and_empty_arrays():
    assert compare(np.array(1.0), np.array(1.0))
    assert compare(np.array(2.0), np.array(1.0)).index == ()
    assert compare(np.zeros((0, 3)), np.zeros((0, 3)))
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        compare(np.zeros(2), np.zeros(3))


def test_norms_of_rounded_arrays():
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000)
    near = x * (1 + rng.uniform(-1, 1, 1000) * 2.0**-8)
    assert compare_norms(near, x, dtype="bf16", terms=1)
    far = near.copy()
    far[17] += 10
    outcome = compare_norms(far, x, dtype="bf16", terms=1)
    assert not outcome and outcome.index == (17,)
    assert compare_norms(far[:3], x[:3], dtype="bf16", terms=1), "too few elements to say"
    assert not compare_norms(np.ones(20), np.zeros(20), dtype="bf16", terms=1)
    assert compare_norms(np.zeros(20), np.zeros(20), dtype="bf16", terms=1).ratio == 0
