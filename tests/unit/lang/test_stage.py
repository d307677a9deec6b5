"""Stages without a shape: their definitions."""

import numpy as np

from tilewright import lang


def test_iterators_are_called_like_the_parameters():
    f = lang.stage(lambda y, x: lang.const(1, "f32"), name="f")
    prog = lang.program([], [f], region=[2, 3])
    assert [it.name for it in prog.stage("f").iters] == ["y", "x"]
    assert f.rank == 2
    assert f.inferred


def test_several_outputs_of_one_stage():
    X = lang.placeholder((9,), "i32", name="X")
    low, high = lang.stage(lambda i: (X[i] - 1, X[i] + 1), name=["low", "high"])
    out = lang.stage(lambda i: low[i - 1] * high[i + 2], name="out")
    prog = lang.program([X], [out], region=[(1, 7)])
    assert [s.name for s in prog.stages] == ["high", "out"]
    assert prog.buffer("low").shape == prog.buffer("high").shape
    x = np.arange(9, dtype=np.int32)
    np.testing.assert_array_equal(lang.evaluate(prog, [x])["out"], (x[0:6] - 1) * (x[3:9] + 1))


def test_reductions_inside_and_as_a_whole():
    X = lang.placeholder((12, 5), "i32", name="X")
    k = lang.reduce_axis((-1, 2), "k")
    box = lang.stage(lambda y, x: lang.sum(X[y + k, x], axis=k), name="box")
    r = lang.reduce_axis(2, "r")
    half = lang.stage(lambda y, x: lang.sum(box[y + r, x], axis=r) // 2 + box[y, x], name="half")
    prog = lang.program([X], [half], region=[(1, 10), 5])
    assert [s.name for s in prog.stages] == ["box", "half_sum", "half"]
    a = np.random.default_rng(0).integers(-9, 9, (12, 5)).astype(np.int32)
    want = a[:-2] + a[1:-1] + a[2:]
    np.testing.assert_array_equal(lang.evaluate(prog, [a])["half"], (want[:-1] + want[1:]) // 2 + want[:-1])


def test_further_dimensions_are_those_of_what_is_read():
    X = lang.placeholder((6, 7, 3), "i32", name="X")
    g = lang.placeholder((6, 7), "i32", name="g")
    dx = lang.stage(lambda y, x, *c: X[y, x + 1, *c] - X[y, x, *c] + g[y, x], name="dx")
    all_of = lang.stage(lambda *i: dx[i] * 2, name="all_of")
    assert dx.rank == 3
    assert all_of.rank == 3
    prog = lang.program([X, g], [all_of], region=[6, 6, 3])
    x, w = np.arange(126, dtype=np.int32).reshape(6, 7, 3) ** 2, np.ones((6, 7), np.int32)
    np.testing.assert_array_equal(
        lang.evaluate(prog, [x, w])["all_of"], 2 * (np.diff(x, axis=1) + w[:, :6, None])
    )


def test_names_of_stages_in_loops_bind_early():
    X = lang.placeholder((8,), "i32", name="X")
    f = lang.stage(lambda i: X[i], name="f0")
    for n in range(1, 4):
        f = lang.stage(lambda i, f=f: f[i] + f[i + 1], name=f"f{n}")
    prog = lang.program([X], [f], region=[5])
    x = np.arange(8, dtype=np.int32) ** 3
    want = x
    for _ in range(3):
        want = want[:-1] + want[1:]
    np.testing.assert_array_equal(lang.evaluate(prog, [x])["f3"], want)
