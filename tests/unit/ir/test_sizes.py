"""Programs at given sizes."""

import numpy as np

from tilewright import lang
from tilewright.ir import buffer_at, evaluate_index, program_at, verify_program


def test_a_program_at_given_sizes_is_that_program_of_fixed_sizes():
    def made(n, m):
        A = lang.placeholder((n, 2 * m + 1), name="A")
        k = lang.reduce_axis(m, "k")
        S = lang.compute(
            (n,), lambda i: lang.sum(A[i, 2 * k + 1] * (k // 2), axis=k, where=k < n - 1), name="S"
        )
        return lang.program([A], [S])

    open_ = made(lang.param("n", hi=64), lang.param("m", hi=64))
    fixed = program_at(open_, {"n": 5, "m": 7})
    verify_program(fixed)
    assert not fixed.params and [b.shape for b in fixed.inputs] == [b.shape for b in made(5, 7).inputs]
    a = np.random.default_rng(0).random((5, 15), np.float32)
    assert np.array_equal(lang.evaluate(fixed, [a])["S"], lang.evaluate(made(5, 7), [a])["S"])


def test_a_buffer_at_given_sizes():
    n = lang.param("n", hi=64)
    b = lang.program(
        [A := lang.placeholder((n, 3), name="A")], [lang.compute((n,), lambda i: A[i, 0])]
    ).inputs[0]
    assert [evaluate_index(e, {}) for e in buffer_at(b, {"n": 4}).shape] == [4, 3]
