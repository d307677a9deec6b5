"""Strassen's method as a rewrite: equal to the direct product, and what it is refused for."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import CONST


def product(m, n, k, *, transposed=False, constant=True, dtype="f32", batch=None):
    lead = () if batch is None else (batch,)
    a = lang.placeholder((*lead, m, k), dtype, name="A")
    b = lang.placeholder((n, k) if transposed else (k, n), dtype, name="B")
    r = lang.reduce_axis(k, "k")

    def term(*at):
        return a[*at[:-1], r] * (b[at[-1], r] if transposed else b[r, at[-1]])

    c = lang.compute((*lead, m, n), lambda *at: lang.sum(term(*at), axis=r), name="C")
    program = lang.program([a, b], [c])
    inputs = tuple(x.with_(scope=CONST) if constant and x.name == "B" else x for x in program.inputs)
    return replace(program, inputs=inputs)


def matched(program):
    return lang.match_product(program, program.stage("C"))


@pytest.mark.parametrize(
    ("m", "n", "k", "width", "height", "options"),
    [
        (2, 2, 2, 1, 1, {}),
        (6, 12, 10, 3, 3, {}),
        (6, 12, 10, 2, 1, {"transposed": True}),
        (4, 16, 14, 8, 2, {"batch": 1}),
        (4, 10, 6, 2, 1, {"batch": 3}),
        (2, 30, 4, 5, 1, {}),
        # columns that do not fill the last pair of panels, by one half or both
        (8, 10, 4, 2, 2, {}),
        (8, 13, 4, 4, 1, {"transposed": True}),
        (4, 1, 2, 3, 2, {}),
    ],
)
@pytest.mark.parametrize("copies", [True, False])
def test_equal_to_the_direct_product(m, n, k, width, height, options, copies):
    program = product(m, n, k, **options)
    match = matched(program)
    assert match is not None
    rewritten = lang.strassen(program, match, width, "Q", height, copies)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, [e.as_int() for e in x.shape]).astype(np.float32) for x in program.inputs)
    q = lang.quarter_weights(match, width, b)
    assert q.shape == (4, k // 2, -(-n // (2 * width)) * width)
    # sums of small integers are exact
    got = lang.evaluate(rewritten, {"A": a, "Q": q})["C"]
    np.testing.assert_array_equal(got, lang.evaluate(program, {"A": a, "B": b})["C"])


@pytest.mark.parametrize(
    "program",
    [
        product(3, 8, 4),  # odd rows
        product(4, 8, 5),  # odd reduction
        product(4, 8, 4, constant=False),
        product(4, 8, 4, dtype="f64"),
        product(3, 8, 4, batch=2),  # the rows of each matrix
        product(1, 8, 4),
    ],
)
def test_other_stages_do_not_match(program):
    assert matched(program) is None


def test_a_matrix_that_others_read_stays():
    program = product(4, 8, 4)
    twice = lang.placeholder((4, 8), name="B")
    other = lang.compute((4, 8), lambda i, j: twice[i, j] + 1.0, name="D")
    extra = lang.program([twice], [other])
    both = replace(
        program, outputs=(*program.outputs, *extra.outputs), stages=(*program.stages, *extra.stages)
    )
    assert matched(both) is None


def test_errors_are_those_of_the_method():
    match = matched(product(64, 128, 256))
    weights = np.random.default_rng(0).standard_normal((256, 128)).astype(np.float32)
    assert 1e-8 < lang.strassen_error(match, 16, weights) < 5e-6
    assert lang.strassen_error(match, 16, np.zeros((256, 128), np.float32)) == 0
    # columns of zeros change nothing
    assert 1e-8 < lang.strassen_error(match, 48, weights) < 5e-6
    # sums of quarters leave the range of f32
    assert not lang.strassen_error(match, 16, np.full((256, 128), 3e38, np.float32)) < 1
    # halves of very different size: the large one's rounding is the small one's error, not the result's
    weights[:128] *= 1e6
    assert lang.strassen_error(match, 16, weights) < 5e-5
