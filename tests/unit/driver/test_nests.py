"""Nests on numpy arrays, in place."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.build import kernel as kernels
from tilewright.driver import Nest
from tilewright.support import InputError

# ruff: noqa: F821 (annotations are read as text; names are those of the mathematics)


@tilewright.scop
def update(A: f64[N, N], x: f64[N], alpha: f64, n: int):
    for i in range(n):
        for j in range(i + 1):
            A[i, j] += alpha * x[i] * x[j]


def expected(A, x, alpha, n):
    out = A.copy()
    for i in range(n):
        out[i, : i + 1] += alpha * x[i] * x[: i + 1]
    return out


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [0, 3, 7])
def test_arrays_change_in_place(order, n):
    rng = np.random.default_rng(0)
    A, x = np.asarray(rng.random((7, 7)), order=order), rng.random(14)[::2]
    want = expected(A, x, 1.5, n)
    update(A, x, 1.5, n=n)
    np.testing.assert_allclose(A, want, rtol=1e-14)


def test_slices_of_larger_arrays_change_in_place():
    big = np.zeros((9, 9))
    x = np.ones(5)
    update(big[2:7, 2:7], x, alpha=2.0, n=5)
    assert big.sum() == 30 and big[2:7, 2:7].sum() == 30


@pytest.mark.parametrize(
    ("arguments", "named", "match"),
    [
        ((), {}, "the argument 'A' is missing"),
        ((np.zeros((2, 2)), np.zeros(2), 1.0, 2), {}, "takes 3 arguments, got 4"),
        ((np.zeros((2, 2)), np.zeros(2), 1.0), {}, "the size n cannot be read off"),
        ((np.zeros((2, 2)), np.zeros(2), 1.0), {"n": 1.5}, "the size n must be an integer"),
        ((np.zeros((2, 2)), np.zeros(2), 1.0), {"m": 1}, "has no argument 'm'"),
        ((np.zeros((2, 2)), np.zeros(3), 1.0), {"n": 1}, "'x' must be f64 of shape"),
        ((np.zeros((2, 2), np.float32), np.zeros(2), 1.0), {"n": 1}, "'A' must be an array of f64"),
        ((np.zeros((2, 2)), np.zeros(2), 1.0), {"n": 3}, "with N = 2, n = 3, an access of block S0 leaves"),
        (([[0.0]], np.zeros(1), 1.0), {"n": 1}, "'A' is written: it must be an array"),
        ((np.broadcast_to(np.zeros(2), (2, 2)), np.zeros(2), 1.0), {"n": 1}, "an array that may be written"),
    ],
)
def test_wrong_arguments(arguments, named, match):
    with pytest.raises(InputError, match=match):
        update(*arguments, **named)


def test_arrays_that_share_memory_are_refused():
    A, memory = np.zeros((3, 3)), np.zeros(12)
    with pytest.raises(InputError, match="'A' and 'x' share memory"):
        update(A, A[0], 1.0, n=3)
    # interleaved ones do not
    update(A, memory[::4], 1.0, n=3)


def test_strategies_and_sizes_of_nests():
    with pytest.raises(InputError, match="there is no strategy 'fast' of nests"):
        Nest(update.func, strategy="fast")
    with pytest.raises(InputError, match="has no size 'm'"):
        update.scheduled({"m": 3})
    with pytest.raises(InputError, match="the array 'A' would have"):
        update.scheduled({"N": 1 << 30, "n": 3})
    assert Nest(update.func, strategy="as-written").scheduled({"N": 3, "n": 2}).notes == ("as it is written",)


def test_later_calls_plan_nothing(monkeypatch):
    """Settings and quotas of the machine are read once a kernel: on tiny arrays they were most of a call."""
    A, x = np.zeros((5, 5)), np.ones(5)
    update(A, x, 1.5, n=5)

    def none() -> None:
        raise AssertionError("planned again")

    monkeypatch.setattr(kernels, "read_settings", none)
    monkeypatch.setattr(kernels, "PlanBuilder", none)
    update(A, x, 1.5, n=5)
    np.testing.assert_array_equal(A, np.tril(np.full((5, 5), 3.0)))
