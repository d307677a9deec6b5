"""Loads whose lanes alone say where they read: whole vectors, lanes picked, nothing read past either end."""

import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright import lang
from tilewright.codegen.llvm.access import runs_of
from tilewright.schedule import Schedule


def run_of(size, count, place, dtype="f32", bits=HOST.preferred_vector_bits):
    """Y[i, x] = X[i, place(x)], x in vectors; X ends with the last element that is read."""
    X = lang.placeholder((3, size), dtype, name="X")
    Y = lang.compute((3, count), lambda i, x: X[i, place(x)], name="Y")
    s = Schedule(lang.program([X], [Y]))
    return Native(s.vectorize(s.loops("Y")[-1]).func, bits)


PLACES = {
    "phases in turns": lambda x: (x + 1) % 2 * 25 + (x + 1) // 2,
    "three phases": lambda x: x % 3 * 20 + x // 3,
    "nearest of two": lambda x: x // 2,
    "pairs swapped": lambda x: x // 2 * 2 + (x + 1) % 2,
    "backwards in fours": lambda x: x // 4 * 4 + 3 - x % 4,
}


@pytest.mark.few(40)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bool"])
@pytest.mark.parametrize("count", [2, 3, 8, 16, 31, 40])
@pytest.mark.parametrize("case", PLACES)
def test_lanes_at_known_places(case, count, dtype):
    at = np.array([PLACES[case](x) for x in range(count)])
    run = run_of(at.max() + 1, count, PLACES[case], dtype)
    x = np.arange(3 * (at.max() + 1)) % 120 % (2 if dtype == "bool" else 120)
    given = x.astype(run.func.buffers[0].dtype.numpy).reshape(3, -1)
    np.testing.assert_array_equal(run({"X": given})["Y"], given[:, at])
    if count % 12 == 0 or case != "three phases":
        assert "masked.gather" not in run.text.text


def test_many_runs_are_gathered():
    at = np.arange(32) % 8 * 64 + np.arange(32) // 8
    run = run_of(at.max() + 1, 32, lambda x: x % 8 * 64 + x // 8, bits=512)
    x = np.arange(3 * (at.max() + 1), dtype=np.float32).reshape(3, -1)
    np.testing.assert_array_equal(run({"X": x})["Y"], x[:, at])
    assert "masked.gather" in run.text.text


@pytest.mark.parametrize("count", [5, 16, 20, 37])
def test_lanes_that_are_off_read_nothing(count):
    """Padding at both ends of a row that is read in turns."""
    X = lang.placeholder((count - 4,), name="X")
    P = lang.boundary(X, -1.0)
    Y = lang.compute((count,), lambda x: P[x // 2 * 2 + (x + 1) % 2 - 2], name="Y")
    s = Schedule(lang.program([X], [Y]))
    run = Native(s.vectorize(s.loops("Y")[-1]).func)
    x = np.arange(1, count - 3, dtype=np.float32)
    padded = np.full(count + 4, -1.0, np.float32)
    padded[2 : count - 2] = x
    at = np.arange(count)
    np.testing.assert_array_equal(run({"X": x})["Y"], padded[at // 2 * 2 + (at + 1) % 2])


def test_runs_hold_all_places():
    assert runs_of([0, 8, 1, 9]) == [(0, 1), (8, 9)]
    assert runs_of([None, 5, 4, None]) == [(4, 5)]
    assert runs_of([0, 3, 4, 1]) == [(0, 3), (4, 4)]
