"""Vectors of results, each the sum of the lanes of a register of its own."""

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.ir import parse_function
from tilewright.schedule import Schedule


def sums(rows, terms, dtype="f32", fold=lang.sum, lanes=16):
    """Y[i] folds X[i, 0:terms]: lanes of partial results a row in registers, rows in vectors at the end."""
    X = lang.placeholder((rows, terms), dtype, name="X")
    k = lang.reduce_axis(terms, "k")
    Y = lang.compute((rows,), lambda i: fold(X[i, k], axis=k), name="Y")
    s = Schedule(lang.program([X], [Y])).rfactor("Y", "k", lanes, part="inner", name="P")
    (tile,) = s.loops("Y")[:1]
    s = s.split(tile, min(rows, 16), names=["tile", "row"])
    s = s.compute_at("P", "tile").set_scope("P", "register")
    *_, i, lane, outer = s.loops("P")
    s = s.reorder(outer, i, lane).decompose_init("P", outer).unroll(i).unroll(f"{i}_init")
    s = s.vectorize(lane).vectorize(f"{lane}_init")
    k = s.loops("Y")[-1]
    return s.decompose_init("Y", k).unroll(k).vectorize("row")


def shuffles(text):
    return text.count("shufflevector")


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 16), ("f32", 8), ("f32", 64), ("f64", 8), ("i32", 16)])
@pytest.mark.parametrize("rows", [4, 8, 16])
def test_results_of_all_sizes(rows, lanes, dtype):
    run = Native(sums(rows, 128, dtype, lanes=lanes).func)
    x = np.random.default_rng(rows).integers(-8, 8, (rows, 128)).astype(run.func.buffers[0].dtype.numpy)
    np.testing.assert_array_equal(run({"X": x})["Y"], x.sum(1))
    if rows <= min(lanes, 16 if dtype != "f64" else 8):
        assert "vector.reduce" not in run.text.text and "extractelement" not in run.text.text


def test_sixteen_results_take_fifteen_additions():
    text = Native(sums(16, 16).func, 512).text.text
    assert shuffles(text) == 30


@pytest.mark.parametrize("fold", [lang.max, lang.min, lang.prod])
def test_other_folds(fold):
    run = Native(sums(16, 64, fold=fold).func)
    x = np.random.default_rng(0).integers(1, 3, (16, 64)).astype(np.float32)
    x[np.arange(16), np.arange(16) * 3] = np.arange(16) + 3
    expected = {lang.max: x.max(1), lang.min: x.min(1), lang.prod: x.prod(1)}[fold]
    np.testing.assert_array_equal(run({"X": x})["Y"], expected)


@pytest.mark.parametrize("rows", [17, 21, 31])
def test_the_last_results_are_fewer(rows):
    """Rows past the end have no sums: their lanes are not stored."""
    s = sums(rows, 32).partition("tile", -1)
    run = Native(s.func)
    x = np.random.default_rng(0).integers(-8, 8, (rows, 32)).astype(np.float32)
    np.testing.assert_array_equal(run({"X": x})["Y"], x.sum(1))


def test_results_of_two_axes_lie_in_one_vector():
    """Rows and columns fused: 4 x 4 results are 16 neighbours in memory."""
    A, B = lang.placeholder((8, 32), name="A"), lang.placeholder((4, 32), name="B")
    k = lang.reduce_axis(32, "k")
    C = lang.compute((8, 4), lambda i, j: lang.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = Schedule(lang.program([A, B], [C])).rfactor("C", "k", 16, part="inner", name="P")
    i, j, _ = s.loops("C")
    s = s.split(i, 4, names=["tile", "row"]).compute_at("P", "tile").set_scope("P", "register")
    *_, pi, pj, lane, outer = s.loops("P")
    s = s.reorder(outer, pi, pj, lane).decompose_init("P", outer)
    for loop in (pi, pj):
        s = s.unroll(loop).unroll(f"{loop}_init")
    s = s.vectorize(lane).vectorize(f"{lane}_init").fuse("row", j, names=["both"])
    last = s.loops("C")[-1]
    run = Native(s.decompose_init("C", last).unroll(last).vectorize("both").func)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, shape).astype(np.float32) for shape in ((8, 32), (4, 32)))
    np.testing.assert_array_equal(run({"A": a, "B": b})["C"], a @ b.T)
    assert "scatter" not in run.text.text and "vector.reduce" not in run.text.text


def test_registers_of_rows_that_are_written_out():
    """What is joined at the end must be known to the check of code generation, too: all rows of registers."""
    func = parse_function("""
function("f", outputs=[Y])
X = f32[4, 16]
Y = f32[4]
P = alloc(f32[2, 2, 16], scope="register")
for i in unroll(4):
    for lane in vector(16):
        with block("P"):
            i = par(0, 4, i)
            lane = par(0, 16, lane)
            P[i//2, i%2, lane] = X[i, lane]
for z in vector(4):
    with block("Z"):
        i = par(0, 4, z)
        Y[i] = f32(0.0)
for row in vector(4):
    for k in unroll(16):
        with block("Y"):
            i = par(0, 4, row)
            k = red(0, 16, k)
            Y[i] = Y[i] + P[i//2, i%2, k]
""")
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    np.testing.assert_array_equal(Native(func)({"X": x})["Y"], x.sum(1))
