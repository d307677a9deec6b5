"""Small programs for the tests of loop primitives, and the comparison of a schedule with its program."""

import ml_dtypes
import numpy as np

from tilewright import lang
from tilewright.ir import run_function, run_program
from tilewright.schedule import Schedule


def elementwise(n=10, m=7):
    """`Y[i, j] = 2 X[i, j] + 1`."""
    X = lang.placeholder((n, m), name="X")
    Y = lang.compute((n, m), lambda i, j: X[i, j] * 2 + 1, name="Y")
    return lang.program([X], [Y])


def chain(n=10):
    """`T = X + 1`, `Y = 2 T`: one temporary."""
    X = lang.placeholder((n,), name="X")
    T = lang.compute((n,), lambda i: X[i] + 1, name="T")
    return lang.program([X], [lang.compute((n,), lambda i: T[i] * 2, name="Y")])


def matmul(n=5, m=6, depth=7):
    """`C = A B`."""
    A, B = lang.placeholder((n, depth), name="A"), lang.placeholder((depth, m), name="B")
    k = lang.reduce_axis(depth, "k")
    return lang.program(
        [A, B], [lang.compute((n, m), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="C")]
    )


def scheduled(program):
    """A verified schedule."""
    return Schedule(program, verify=True)


def check(schedule, params=None):
    """The loops give the program's results, in two shuffled orders (small integers: sums are exact)."""
    program = schedule.source
    rng = np.random.default_rng(0)
    params = params or {}
    arrays = {}
    for b in program.inputs:
        shape = [n.const + sum(c * params[a.name] for a, c in n.terms) for n in b.shape]
        arrays[b.name] = rng.integers(-4, 5, shape).astype(b.dtype.numpy)
    expected = run_program(program, arrays, params)
    for seed in range(2):
        actual = run_function(schedule.func, arrays, params, seed=seed)
        for name, want in expected.items():
            np.testing.assert_array_equal(actual[name], want)
    return schedule


def arrays(program, seed=0):
    """Inputs of products that instructions do: bf16 numbers, or bytes over their whole range."""
    rng = np.random.default_rng(seed)
    out = {}
    for b in program.inputs:
        shape = [e.as_int() for e in b.shape]
        if b.dtype.is_float:
            out[b.name] = rng.normal(size=shape).astype(ml_dtypes.bfloat16)
        else:
            low, high = int(b.dtype.min_value), int(b.dtype.max_value)
            out[b.name] = rng.integers(low, high + 1, shape).astype(b.dtype.numpy)
    return out
