"""Lanes far apart whose neighbours are read too: rows are loaded and transposed in registers."""

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.schedule import Schedule


def transpose(rows, columns, dtype="f32", distance=None):
    """Y[i, j] = X[j, i], i expanded and j in vectors: each vector of Y takes lanes a row of X apart."""
    X = lang.placeholder((columns, distance or rows), dtype, name="X")
    Y = lang.compute((rows, columns), lambda i, j: X[j, i], name="Y")
    s = Schedule(lang.program([X], [Y]))
    i, j = s.loops("Y")
    return s.unroll(i).vectorize(j)


def filled(func):
    shape = [e.as_int() for e in func.buffers[0].shape]
    return (np.arange(np.prod(shape)) % 120).reshape(shape).astype(func.buffers[0].dtype.numpy)


@pytest.mark.few(40)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bf16"])
@pytest.mark.parametrize("columns", [8, 11, 16, 32, 37])
@pytest.mark.parametrize("rows", [5, 8, 13, 16, 20, 33])
def test_squares_of_all_sizes(rows, columns, dtype):
    run = Native(transpose(rows, columns, dtype).func)
    x = filled(run.func)
    np.testing.assert_array_equal(run({"X": x})["Y"], x.T)
    assert "masked.gather" not in run.text.text


def test_rows_are_loaded_once():
    text = Native(transpose(16, 16).func, 512).text.text
    assert text.count("load <16 x float>") == 16
    assert "insertelement" not in text


def test_copies_of_two_loops_read_one_row():
    """Both loops together: 14 neighbours, though the inner one has 7."""
    X = lang.placeholder((16, 14), name="X")
    Y = lang.compute((2, 7, 16), lambda h, w, c: X[c, 7 * h + w], name="Y")
    s = Schedule(lang.program([X], [Y]))
    h, w, c = s.loops("Y")
    run = Native(s.unroll(h).unroll(w).vectorize(c).func)
    x = filled(run.func)
    np.testing.assert_array_equal(run({"X": x})["Y"], x.T.reshape(2, 7, 16))
    assert run.text.text.count("masked.load") == 16 + 1  # each row once; the declaration


def test_turns_of_a_loop_that_are_expanded_count_as_copies():
    X = lang.placeholder((16, 64), name="X")
    Y = lang.compute((64, 16), lambda i, j: X[j, i], name="Y")
    s = Schedule(lang.program([X], [Y]))
    i, j = s.loops("Y")
    run = Native(s.annotate(i, "unroll", "16").vectorize(j).func, 512)
    x = filled(run.func)
    np.testing.assert_array_equal(run({"X": x})["Y"], x.T)
    assert run.text.text.count("load <16 x float>") == 16


def test_what_a_copy_changes_is_loaded_again():
    """Y is written between the reads of its rows: nothing loaded before may be used after."""
    Y = lang.placeholder((16, 16), name="Y")
    Z = lang.compute((16, 16), lambda i, j: Y[j, i] + 1.0, name="Z")
    W = lang.compute((16, 16), lambda i, j: Z[j, i] * 2.0, name="W")
    s = Schedule(lang.program([Y], [W]))
    for stage in ("Z", "W"):
        i, j = s.loops(stage)
        s = s.unroll(i).vectorize(j)
    run = Native(s.func)
    x = filled(run.func)
    np.testing.assert_array_equal(run({"Y": x})["W"], (x + 1) * 2)


@pytest.mark.parametrize("condition", ["literal", "at run time"])
def test_nothing_is_read_where_lanes_are_off(condition):
    """Padding before the rows: the first lanes read nothing, and no vector begins before the buffer."""
    X = lang.placeholder((16, 16), name="X")
    P = lang.boundary(X, -1.0)
    n = lang.placeholder((1,), "f32", name="n")
    shift = 3
    if condition == "literal":
        Y = lang.compute((16, 16), lambda i, j: P[j - shift, i], name="Y")
        inputs = [X]
    else:
        Y = lang.compute((16, 16), lambda i, j: lang.select(n[0] > 0.0, X[j, i], -1.0), name="Y")
        inputs = [X, n]
    s = Schedule(lang.program(inputs, [Y]))
    i, j = s.loops("Y")
    run = Native(s.unroll(i).vectorize(j).func)
    x = filled(run.func)
    given = {"X": x} if condition == "literal" else {"X": x, "n": np.ones(1, np.float32)}
    wanted = x.T.copy()
    if condition == "literal":
        wanted = np.full((16, 16), -1, np.float32)
        wanted[:, shift:] = x.T[:, :-shift]
    np.testing.assert_array_equal(run(given)["Y"], wanted)


R, N, B = (lang.param(name, hi=4096) for name in "RNB")


@pytest.mark.parametrize("batch", [(), (B,)], ids=["matrix", "batch"])
@pytest.mark.parametrize("length", [R, 20], ids=["symbolic", "known"])
def test_rows_of_symbolic_length_or_number(batch, length):
    X = lang.placeholder((*batch, N, length), name="X")
    Y = lang.compute((*batch, length, N), lambda *at: X[(*at[:-2], at[-1], at[-2])], name="Y")
    s = Schedule(lang.program([X], [Y]))
    *_, i, j = s.loops("Y")
    s = s.split(i, 8, names=("i_o", "i_i")).split(j, 8, names=("j_o", "j_i"))
    s = s.reorder("i_o", "j_o", "i_i", "j_i").unroll("i_i").vectorize("j_i")
    s = s.partition("i_o", "tail").partition("j_o", "tail")
    run = Native(s.func)
    assert run.text.text.count("load <8 x float>") >= 8
    for rows, columns in ((1, 1), (8, 8), (5, 16), (19, 7), (24, 33)):
        sizes = {"N": rows, "R": columns, "B": 3}
        shape = (*(3 for _ in batch), rows, columns if length is R else 20)
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        given = {p.name: sizes[p.name] for p in s.func.params}
        np.testing.assert_array_equal(run({"X": x}, given)["Y"], np.swapaxes(x, -1, -2))
