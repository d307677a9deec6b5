"""Default schedules of programs whose sizes are open: tiles and vectors, right at every size."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.build import build
from tilewright.cost import Machine
from tilewright.ir import Param, program_at
from tilewright.plan.open_sizes import TYPICAL, schedule_open, typical_size
from tilewright.support import assert_close
from tilewright.target import detect

R, N, K = (lang.param(name, hi=4096) for name in "RNK")


def softmax():
    X = lang.placeholder((R, N), name="X")
    return lang.program([X], [lang.ops.softmax(X, axis=-1)], name="soft")


def product(rows, columns, depth):
    A, B = lang.placeholder((rows, depth), name="A"), lang.placeholder((depth, columns), name="B")
    k = lang.reduce_axis(depth, "k")
    C = lang.compute((rows, columns), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = lang.compute((rows, columns), lambda i, j: lang.relu(C[i, j]), name="D")
    return lang.program([A, B], [D], name="product")


def blur():
    A = lang.placeholder((R + 2, N + 2), name="A")
    T = lang.compute((R + 2, N), lambda y, x: A[y, x] + A[y, x + 1] + A[y, x + 2], name="T")
    B = lang.compute((R, N), lambda y, x: (T[y, x] + T[y + 1, x] + T[y + 2, x]) / 9, name="B")
    return lang.program([A], [B], name="blur")


@pytest.mark.parametrize(
    "program",
    [softmax(), product(R, 96, 80), product(R, N, K), blur()],
    ids=["softmax", "rows", "product", "blur"],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_open_programs_get_vectors_and_are_right_at_every_size(program, threads):
    s = schedule_open(program, Machine(detect(), threads))
    primitives = {step.primitive for step in s.trace.steps}
    assert "vectorize" in primitives and ("parallel" in primitives) == (threads > 1)
    if program.name == "product":
        assert {"split", "unroll", "set_scope"} <= primitives
    kernel = build(s, threads=threads)
    rng = np.random.default_rng(3)
    for value in (1, 3, 31, 64, 65, TYPICAL):
        sizes = {p.name: value + at for at, p in enumerate(program.params)}
        fixed = program_at(program, sizes)
        inputs = [
            rng.random([n.as_int() for n in b.shape], np.float32).astype(np.float32) for b in fixed.inputs
        ]
        (want,) = lang.evaluate(fixed, inputs).values()
        (got,) = kernel(*inputs)
        assert_close(got, want, magnitude=np.abs(want).max(), terms=value + 8)


def test_typical_sizes_are_sizes():
    assert typical_size(Param("n")) == TYPICAL
    assert typical_size(Param("n", lo=1, hi=100)) == 97
    assert typical_size(Param("n", lo=600, hi=1000)) == 600
    assert typical_size(Param("n", multiple_of=16)) == 31 * 16
