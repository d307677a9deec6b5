"""Outputs that take the memory of inputs: only where each element is read before it is written."""

import numpy as np
import pytest
from onnx import helper

import onnx_models as tiny
import tilewright
from tilewright import lang
from tilewright.cost import Machine
from tilewright.schedule import Schedule, overwritable
from tilewright.strategies import default_schedule
from tilewright.target import detect

X = lang.placeholder((6, 6), name="x")
Y = lang.placeholder((6, 6), name="y")


def _schedule(make):
    out = lang.compute((6, 6), make, name="out", axes=("i", "j"))
    return Schedule(lang.program([X, Y], [out]))


def test_element_wise_functions_may_overwrite_what_they_read():
    s = _schedule(lambda i, j: X[i, j] * Y[i, j] + X[i, j])
    assert overwritable(s) == ("x", "y")
    assert overwritable(s.split("i", 4, tail="guard").vectorize("j")) == ("x", "y")
    assert overwritable(s.split("i", 4, tail="peel").parallel("j")) == ("x", "y")


def test_an_intermediate_that_is_kept_where_the_output_goes_may_come_before_inputs_are_read():
    twice = lang.compute((6, 6), lambda i, j: Y[i, j] * 2.0, name="twice")
    out = lang.compute((6, 6), lambda i, j: X[i, j] + twice[i, j], name="out", axes=("i", "j"))
    s = Schedule(lang.program([X, Y], [out])).compute_at("twice", "out_i")
    assert overwritable(s) == ("x",)
    assert overwritable(s.annotate("out_j", "in_place", "twice")) == ()


def test_a_shifted_tile_computes_elements_twice():
    s = _schedule(lambda i, j: X[i, j] + 1.0)
    assert overwritable(s) == ("x", "y")  # y is not read at all
    assert overwritable(s.split("i", 4, tail="shift")) == ("y",)


@pytest.mark.parametrize(
    "make",
    [
        lambda i, j: X[i, j] + X[j, i] + Y[0, 0],
        lambda i, j: X[i, 0] * Y[0, j],
        lambda i, j: X[5 - i, j] + Y[i, 5 - j],
    ],
    ids=["transposed", "broadcast", "reversed"],
)
def test_elements_read_elsewhere_may_not_be_overwritten(make):
    assert overwritable(_schedule(make)) == ()


def test_reductions_read_more_than_one_element():
    k = lang.reduce_axis(6, "k")
    soft = lang.compute((6, 6), lambda i, j: lang.exp(X[i, j]) / lang.sum(lang.exp(X[i, k]), axis=k))
    s = Schedule(lang.program([X], [soft]))
    assert overwritable(s) == ("x",)  # all rows are summed before the first element is written
    total = s.program.stages[0].name
    by_rows = s.compute_at(total, s.loops(s.program.outputs[0].name)[0])
    assert overwritable(by_rows) == ()
    product = lang.compute((6, 6), lambda i, j: lang.sum(X[i, k] * Y[k, j], axis=k))
    assert overwritable(Schedule(lang.program([X, Y], [product]))) == ()


def test_a_residual_is_overwritten_by_the_contraction_that_adds_it():
    a, b, r = (lang.placeholder((64, 64), name=name) for name in "abr")
    k = lang.reduce_axis(64, "k")
    product = lang.compute((64, 64), lambda i, j: lang.sum(a[i, k] * b[k, j], axis=k), name="product")
    out = lang.compute((64, 64), lambda i, j: lang.maximum(product[i, j] + r[i, j], 0.0), name="out")
    s = default_schedule(lang.program([a, b, r], [out]), Machine(detect(), 2))
    assert overwritable(s) == ("r",)


def test_two_outputs_are_left_alone():
    one = lang.compute((6, 6), lambda i, j: X[i, j] + 1.0, name="one")
    two = lang.compute((6, 6), lambda i, j: X[i, j] * 2.0, name="two")
    assert overwritable(Schedule(lang.program([X], [one, two]))) == ()


def test_a_value_added_to_its_transpose_keeps_its_memory():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Transpose", ["m"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["t", "w"], ["u"]),
        helper.make_node("Add", ["u", "m"], ["a"]),
        helper.make_node("Add", ["a", "t"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    weights = {"w": np.random.default_rng(1).standard_normal((48, 48)).astype(np.float32) / 7}
    shape = (48, 48)
    compiled = tilewright.compile(
        tiny.model(nodes, [tiny.tensor("x", shape)], [tiny.tensor("y", shape)], weights), threads=2
    )
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    w = weights["w"].astype(np.float64)
    m = x @ w
    expected = (m.T @ w + m + m.T) @ w
    np.testing.assert_allclose(compiled(x)[0], expected, rtol=1e-4, atol=1e-4)
