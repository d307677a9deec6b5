"""The evaluator itself: chunks, magnitudes, double precision, fast paths, errors."""

import numpy as np
import pytest

from tilewright import ir, lang
from tilewright.lang.evaluation import contraction, stages
from tilewright.support import InputError, ProgramError, compare

RNG = np.random.default_rng(5)


def _softmax_of_product():
    A, B = lang.placeholder((40, 30), name="A"), lang.placeholder((30, 20), name="B")
    k, m = lang.reduce_axis(30, "k"), lang.reduce_axis(20, "m")
    C = lang.compute((40, 20), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="C")
    E = lang.compute((40, 20), lambda i, j: lang.exp(C[i, j] - lang.max(C[i, m], axis=m)), name="E")
    S = lang.compute((40, 20), lambda i, j: E[i, j] / lang.sum(E[i, m], axis=m), name="S")
    return lang.program([A, B], S)


def _data():
    return [RNG.standard_normal(s).astype(np.float32) for s in ((40, 30), (30, 20))]


def test_small_chunks_and_the_general_path_give_the_same(monkeypatch):
    program, data = _softmax_of_product(), _data()
    expected = lang.evaluate(program, data)["S"]
    monkeypatch.setattr(stages, "CHUNK", 7)
    monkeypatch.setattr(contraction, "OPERAND_LIMIT", 100)
    np.testing.assert_allclose(lang.evaluate(program, data)["S"], expected, rtol=1e-5)
    monkeypatch.setattr(contraction, "SMALLEST", 1 << 40)
    np.testing.assert_allclose(lang.evaluate(program, data)["S"], expected, rtol=1e-5)


def test_single_precision_is_within_the_bound_of_double():
    program, data = _softmax_of_product(), _data()
    exact = lang.evaluate(program, data, dtype_override="f64")["S"]
    assert exact.dtype == np.float64
    magnitude = lang.evaluate(program, data, absolute=True)["S"]
    terms = lang.roundings(program)["S"]
    assert 50 <= terms <= 80
    outcome = compare(lang.evaluate(program, data)["S"], exact, magnitude=magnitude, terms=terms)
    assert outcome
    wrong = exact.astype(np.float32).copy()
    wrong[3, 4] *= 1.01
    assert not compare(wrong, exact, magnitude=magnitude, terms=terms)


def test_the_magnitude_of_a_cancelling_sum_is_the_sum_of_absolute_values():
    A = lang.placeholder((6,), name="A")
    k = lang.reduce_axis(6, "k")
    S = lang.compute((), lambda: lang.sum(A[k], axis=k) - 3, name="S")
    data = [np.array([1, -1, 2, -2, 3, -3], np.float32)]
    assert lang.evaluate(lang.program([A], S), data, absolute=True)["S"] == 15


@pytest.mark.parametrize(
    "fn", [lang.exp, lang.log, lang.sqrt, lang.tanh, lang.erf, lang.rsqrt, lang.sin, lang.atan]
)
def test_magnitudes_bound_the_errors_of_functions(fn):
    A = lang.placeholder((500,), name="A")
    B = lang.compute((500,), lambda i: fn(A[i] * A[i] - A[i] + 1), name="B")
    program, data = lang.program([A], B), [RNG.uniform(0.1, 9, 500).astype(np.float32)]
    exact = lang.evaluate(program, data, dtype_override="f64")["B"]
    magnitude = lang.evaluate(program, data, absolute=True)["B"]
    found = lang.evaluate(program, data)["B"]
    assert compare(found, exact, magnitude=magnitude, terms=lang.roundings(program)["B"])
    assert np.all(magnitude >= np.abs(exact) * (1 - 1e-12))


def test_unrecognised_reductions_run_element_by_element():
    A = ir.buffer("A", (5,), ir.F32)
    k = ir.var("k")
    old = ir.Load("S", (), ir.F32)
    body = ir.store("S", (), ir.Binary("sub", ir.Load("A", (k,), ir.F32), old))
    init = ir.store("S", (), ir.Const(0.0, ir.F32))
    stage = ir.Stage("S", (ir.Iter("k", ir.ZERO, ir.index(5), "red"),), body, init)
    program = ir.Program("p", (), (A,), (ir.buffer("S", (), ir.F32),), (), (stage,))
    data = np.arange(5, dtype=np.float32)
    assert lang.evaluate(program, [data])["S"] == 4 - (3 - (2 - (1 - 0)))


def test_unwritten_elements_are_conspicuous():
    A = lang.placeholder((4,), name="A")
    B = lang.compute((4,), lambda i: A[i], name="B")
    program = lang.program([A], B)
    (stage,) = program.stages
    half = ir.Stage(stage.name, (ir.Iter("i", ir.ZERO, ir.index(2), "par"),), stage.body)
    found = lang.evaluate(program.with_stages((half,)), [np.ones(4, np.float32)])["B"]
    np.testing.assert_array_equal(found, [1, 1, np.nan, np.nan])


def test_intermediate_buffers_can_be_kept():
    found = lang.evaluate(_softmax_of_product(), _data(), keep=["C"])
    assert sorted(found) == ["C", "S"]


def test_an_access_out_of_bounds_names_the_stage_its_line_and_the_point():
    n = lang.param("n")
    A = lang.placeholder((n,), name="A")
    B = lang.compute((n,), lambda i: A[i + 1], name="B")
    with pytest.raises(
        ProgramError, match=r"'B' accesses memory out of bounds: index 0 \(i \+ 1\) is 4 at i=3"
    ) as e:
        lang.evaluate(lang.program([A], B), [np.zeros(4, np.float32)])
    assert "lambda i: A[i + 1]" in str(e.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "the input 'A' is missing"),
        ({"A": np.zeros((4, 2), np.float32), "Z": 1}, "there is no input 'Z'"),
        ([np.zeros((4, 2), np.int8)], "has dtype int8, not f32"),
        ([np.zeros(4, np.float32)], "has 1 dimensions, not 2"),
        ([np.zeros((4, 3), np.float32)], r"has shape \(4, 3\), not \(4, 2\)"),
        ([np.zeros((3, 2), np.float32)], "n = 3 is not a multiple of 2"),
        ([np.zeros((6, 2), np.float32)], "do not satisfy -n \\+ 4 >= 0"),
        ([], "0 arrays for 1 inputs"),
    ],
)
def test_arrays_that_do_not_fit(arrays, message):
    n = lang.param("n", multiple_of=2)
    A = lang.placeholder((n, 2), name="A")
    program = lang.program([A], lang.compute((n,), lambda i: A[i, 0]), assumes=[n <= 4])
    with pytest.raises(InputError, match=message):
        lang.evaluate(program, arrays)
