"""Sums that a transposing stage reads: the same program in the reader's order, and one nest in registers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import onnx_models as tiny
import tilewright
from tilewright import lang
from tilewright.graph.orders import in_order_of_readers


def _program(read):
    x, f = lang.placeholder((2, 5, 9), name="X"), lang.placeholder((5, 3), name="F")
    r = lang.reduce_axis(3, "r")
    t = lang.compute((2, 5, 7), lambda n, c, h: lang.sum(x[n, c, h + r] * f[c, r], axis=r), name="T")
    return lang.program([x, f], [read(t)])


def _evaluated(program):
    rng = np.random.default_rng(0)
    arrays = {b.name: rng.standard_normal([e.as_int() for e in b.shape]).astype("f4") for b in program.inputs}
    return lang.evaluate(program, arrays)["Y"]


def test_sums_are_made_in_the_order_of_their_reader():
    program = _program(lambda t: lang.compute((2, 7, 5), lambda n, h, c: t[n, c, h] * 2.0, name="Y"))
    changed = in_order_of_readers(program)
    assert [e.as_int() for e in changed.temps[0].shape] == [2, 7, 5]
    assert [it.name for it in changed.stage("T").iters] == ["n", "h", "c", "r"]
    np.testing.assert_array_equal(_evaluated(changed), _evaluated(program))


@pytest.mark.parametrize(
    "read",
    [
        lambda t: lang.compute((2, 5, 7), lambda n, c, h: t[n, c, h] * 2.0, name="Y"),
        lambda t: lang.compute((2, 7, 5), lambda n, h, c: t[n, c, h] + t[n, c, 0], name="Y"),
        lambda t: lang.compute((2, 7, 3), lambda n, h, c: t[n, c + 1, h], name="Y"),
    ],
    ids=["in place", "twice", "a part"],
)
def test_other_readers_leave_the_program_as_it_is(read):
    program = _program(read)
    assert in_order_of_readers(program) is program


@pytest.mark.parametrize("groups", [1, 32])
def test_a_convolution_to_channels_last_is_one_nest(groups):
    rng = np.random.default_rng(1)
    weights = {
        "a": rng.standard_normal((32, 16, 1, 1)).astype("f4"),
        "w": rng.standard_normal((32, 32 // groups, 3, 3)).astype("f4"),
        "b": rng.standard_normal(32).astype("f4"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["first"]),
        helper.make_node("Conv", ["first", "w", "b"], ["c"], group=groups, pads=[1, 1, 1, 1]),
        helper.make_node("Transpose", ["c"], ["y"], perm=[0, 2, 3, 1]),
    ]
    inputs, outputs = [tiny.tensor("x", (1, 16, 9, 10))], [tiny.tensor("y", (1, 9, 10, 32))]
    model = tiny.model(nodes, inputs, outputs, weights)
    compiled = tilewright.compile(model, threads=2, accuracy="exact")
    text = str(compiled.groups()[-1].kernel.schedule)
    assert "conv: f32" in text and " register" in text and " global" not in text
    x = rng.standard_normal((1, 16, 9, 10)).astype("f4")
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(compiled.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-4)
