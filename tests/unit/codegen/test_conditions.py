"""Conjuncts in order: what one of them reads may exist only where those before it hold."""

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.ir import parse_function
from tilewright.schedule import Schedule


def run(body, x, n=64):
    text = f'function("f", outputs=[y])\nx = f32[{len(x)}]\nt = i32[{n}]\ny = f32[{n}]\n{body}'
    index = np.where(np.arange(n) < 7, np.arange(n) % len(x), len(x)).astype(np.int32)
    return Native(parse_function(text))({"x": x, "t": index})["y"]


@pytest.mark.parametrize("loop", ["range", "vector"])
@pytest.mark.parametrize(
    ("count", "at", "size"), [(1, "i", 1), (9, "i", 9), (1, "4*i", 1), (2, "1 - i", 2), (7, "int(t[i])", 8)]
)
def test_reads_under_conditions_on_indices(loop, count, at, size):
    body = f"""
for i in {loop}(64):
    y[i] = f32(0.0)
    if i < {count} and holds(x[{at}] > f32(1.0)):
        y[i] = f32(1.0)"""
    got = run(body, np.full(size, 2, np.float32))
    np.testing.assert_array_equal(got, np.arange(64) < count)


@pytest.mark.parametrize("loop", ["range", "vector"])
def test_the_other_side_of_conditions(loop):
    body = f"""
for i in {loop}(64):
    if i < 7 and holds(x[int(t[i])] > f32(3.0)):
        y[i] = f32(1.0)
    else:
        y[i] = f32(2.0)"""
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(run(body, x), np.where((np.arange(64) < 7) & (np.arange(64) > 3), 1, 2))


def test_reads_under_conditions_on_data():
    body = """
for i in vector(64):
    y[i] = f32(0.0)
    if holds(t[i] < i32(8)) and holds(x[int(t[i])] > f32(3.0)):
        y[i] = f32(1.0)"""
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(run(body, x), (np.arange(64) < 7) & (np.arange(64) > 3))


@pytest.mark.parametrize("loop", ["range", "vector"])
def test_folded_terms_under_conditions(loop):
    body = f"""
for i in range(64):
    y[i] = f32(0.0)
for i in {loop}(64):
    if i < 7 and holds(x[int(t[i])] > f32(3.0)):
        y[0] = y[0] + x[int(t[i])]"""
    x = np.arange(8, dtype=np.float32)
    assert run(body, x)[0] == 4 + 5 + 6


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("part", ["outer", "inner"])
def test_reductions_in_two_steps_under_conditions_on_data(vector, part):
    """The guard of an axis that its parts do not divide stands before the reduction's own condition."""
    X = lang.placeholder((3, 5), name="X")
    k = lang.reduce_axis(5, "k")
    Y = lang.compute((3,), lambda i: lang.sum(X[i, k], k, where=X[i, k] > 0.0), name="Y")
    s = Schedule(lang.program([X], [Y])).rfactor("Y", "k", 4, part=part)
    if vector:
        s = s.decompose_init("Y_rf", s.loops("Y_rf")[0])
        s = s.vectorize(s.loops("Y_rf")[-1])
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_allclose(Native(s.func)({"X": x})["Y"], np.where(x > 0, x, 0).sum(1), rtol=1e-5)
