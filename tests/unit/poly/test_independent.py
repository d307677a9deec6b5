"""Loops by what their iterations have to do with each other, at fixed loops around."""

import pytest

from tilewright.frontend.nests.python import read_python
from tilewright.ir import function_at
from tilewright.poly import loop_facts


def facts(body):
    text = f"def f(x: f64[N], y: f64[N], A: f64[N, N]):\n    for i in range(N):\n        {body}\n"
    return loop_facts(function_at(read_python(text), {"N": 8}))


def test_free_loops():
    found = facts("y[i] = x[i]")
    assert (found.free, found.sums) == ({"i"}, frozenset())


@pytest.mark.parametrize(
    "body",
    [
        "for j in range(i):\n            x[i] -= A[i, j] * x[j]",  # of a triangular system: at fixed i a sum
        "for j in range(i):\n            A[i, i] += A[i, j] * A[j, i]",
        "for j in range(N):\n            y[0] = max(y[0], A[i, j])",
    ],
)
def test_loops_that_only_sum(body):
    assert facts(body).sums >= {"j"}


@pytest.mark.parametrize(
    "body",
    [
        "for j in range(N):\n            x[i] += A[i, j] * x[j]",  # reads itself, at j = i
        "for j in range(1, N):\n            x[j] += x[j - 1]",
        "for j in range(N):\n            y[0] += A[i, j]\n            x[j] = y[0]",
        "for j in range(N):\n            y[0] = A[i, j] - y[0]",
    ],
)
def test_other_loops_keep_their_order(body):
    found = facts(body)
    assert "j" not in found.sums | found.free
