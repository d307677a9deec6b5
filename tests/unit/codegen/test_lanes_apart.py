"""Loads whose lanes lie a few elements apart: whole vectors, lanes picked, nothing read past either end."""

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.codegen.accesses import MOST_APART
from tilewright.schedule import Schedule


def every(stride, count, offset, dtype):
    """Y[i, x] = X[i, stride * x + offset], x in vectors; X ends with the last element that is read."""
    X = lang.placeholder((3, stride * (count - 1) + 1 + offset), dtype, name="X")
    Y = lang.compute((3, count), lambda i, x: X[i, stride * x + offset], name="Y")
    s = Schedule(lang.program([X], [Y]))
    return s.vectorize(s.loops("Y")[-1])


@pytest.mark.few(40)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bf16"])
@pytest.mark.parametrize("stride", range(2, MOST_APART + 2))
@pytest.mark.parametrize("count", [2, 3, 7, 16, 17, 31, 40])
def test_lanes_a_few_elements_apart(stride, count, dtype):
    run = Native(every(stride, count, 1 if count % 2 else 0, dtype).func)
    x = (np.arange(3 * run.func.buffers[0].shape[1].as_int()) % 120).reshape(3, -1)
    given = x.astype(run.func.buffers[0].dtype.numpy)
    np.testing.assert_array_equal(run({"X": given})["Y"], given[:, count % 2 :: stride])
    assert "masked.gather" not in run.text.text or stride > MOST_APART


def test_masks_that_are_not_literal_are_gathered():
    X = lang.placeholder((40,), name="X")
    Y = lang.compute((20,), lambda x: lang.select(X[2 * x] > 0.0, X[2 * x + 1], 1.0), name="Y")
    s = Schedule(lang.program([X], [Y]))
    run = Native(s.vectorize(s.loops("Y")[-1]).func)
    x = np.random.default_rng(0).standard_normal(40).astype(np.float32)
    np.testing.assert_array_equal(run({"X": x})["Y"], np.where(x[::2] > 0, x[1::2], np.float32(1)))


def test_tails_of_symbolic_length():
    W = lang.param("W")
    X = lang.placeholder((2 * W,), name="X")
    Y = lang.compute((W,), lambda x: X[2 * x] + X[2 * x + 1], name="Y")
    s = Schedule(lang.program([X], [Y]))
    s = s.split("x", 16, tail="mask")
    run = Native(s.vectorize("x_i").func)
    for width in (1, 15, 16, 33):
        x = np.arange(2 * width, dtype=np.float32)
        np.testing.assert_array_equal(run({"X": x}, {"W": width})["Y"], x[::2] + x[1::2])


@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("count", [5, 16, 20])
def test_lanes_off_at_both_ends(stride, count):
    """Padding around a strided row: the first lanes and the last ones read nothing."""
    size = stride * (count - 4) + 1
    X = lang.placeholder((size,), name="X")
    P = lang.boundary(X, -1.0)
    Y = lang.compute((count,), lambda x: P[stride * x - 2 * stride], name="Y")
    s = Schedule(lang.program([X], [Y]))
    run = Native(s.vectorize(s.loops("Y")[-1]).func)
    x = np.arange(size, dtype=np.float32)
    wanted = np.full(count, -1, np.float32)
    wanted[2 : 2 + len(x[::stride])] = x[::stride]
    np.testing.assert_array_equal(run({"X": x})["Y"], wanted)


@pytest.mark.few(14)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bf16"])
@pytest.mark.parametrize("columns", [2, 3, 4])
@pytest.mark.parametrize("rows", [7, 16, 37])
def test_columns_of_narrow_rows(rows, columns, dtype):
    """Y[i, j] = X[j, i], i expanded and j in vectors: all columns come from the same loads."""
    X = lang.placeholder((rows, columns), dtype, name="X")
    Y = lang.compute((columns, rows), lambda i, j: X[j, i], name="Y")
    s = Schedule(lang.program([X], [Y]))
    i, j = s.loops("Y")
    run = Native(s.unroll(i).vectorize(j).func, 512)
    x = (np.arange(rows * columns) % 120).reshape(rows, columns).astype(run.func.buffers[0].dtype.numpy)
    np.testing.assert_array_equal(run({"X": x})["Y"], x.T)
    if dtype == "f32" and rows == 16:
        assert run.text.text.count("load <16 x float>") == columns


def test_vectors_shared_by_columns_end_where_the_buffer_does():
    """The window's last column is the buffer's last element: nothing is read behind it for the others."""
    X = lang.placeholder((2 * 16 + 1,), name="X")
    Y = lang.compute((3, 16), lambda i, x: X[2 * x + i], name="Y")
    s = Schedule(lang.program([X], [Y]))
    i, x = s.loops("Y")
    run = Native(s.unroll(i).vectorize(x).func)
    given = np.arange(33, dtype=np.float32)
    wanted = np.stack([given[n : n + 31 : 2] for n in range(3)])
    np.testing.assert_array_equal(run({"X": given})["Y"], wanted)


@pytest.mark.few(14)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bf16", "bool"])
@pytest.mark.parametrize("count", [2, 3, 7, 16, 17, 31, 40])
def test_lanes_one_before_another(count, dtype):
    """Y[i, x] = X[i, count - 1 - x]: whole vectors turned, nothing read before the first element."""
    X = lang.placeholder((3, count), dtype, name="X")
    Y = lang.compute((3, count), lambda i, x: X[i, count - 1 - x], name="Y")
    s = Schedule(lang.program([X], [Y]))
    run = Native(s.vectorize(s.loops("Y")[-1]).func)
    given = (np.arange(3 * count) * 7 % 120).reshape(3, -1)
    given = (given % 3 == 0) if dtype == "bool" else given.astype(run.func.buffers[0].dtype.numpy)
    np.testing.assert_array_equal(run({"X": given})["Y"], given[:, ::-1])
    assert "masked.gather" not in run.text.text


def test_lanes_one_before_another_under_masks_and_in_tails():
    W = lang.param("W")
    X = lang.placeholder((W,), name="X")
    Y = lang.compute((W,), lambda x: lang.select(X[x] > 0.0, X[W - 1 - x], 1.0), name="Y")
    s = Schedule(lang.program([X], [Y])).split("x", 16, tail="mask")
    run = Native(s.vectorize("x_i").func)
    for width in (1, 15, 16, 33):
        x = np.random.default_rng(width).standard_normal(width).astype(np.float32)
        np.testing.assert_array_equal(
            run({"X": x}, {"W": width})["Y"], np.where(x > 0, x[::-1], np.float32(1))
        )
