"""store_as: arguments stored in another type."""

import ml_dtypes
import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import BF16, run_program, verify_program
from tilewright.schedule import Schedule
from tilewright.support import ProgramError, ScheduleError

BF = ml_dtypes.bfloat16


def rows(n=3, m=5):
    """`Y = 2 X + mean of the row`, `Z = sums of rows`."""
    X = lang.placeholder((n, m), name="X")
    k = lang.reduce_axis(m, "k")
    Z = lang.compute((n,), lambda i: lang.sum(X[i, k], k), name="Z")
    Y = lang.compute((n, m), lambda i, j: X[i, j] * 2 + Z[i], name="Y")
    return lang.program([X], [Y, Z])


def test_inputs_and_outputs():
    program = lang.algorithms.store_as(rows(), {"X": BF16, "Y": BF16, "Z": BF16})
    verify_program(program)
    assert [b.dtype for b in (*program.inputs, *program.outputs)] == [BF16] * 3
    assert [s.name for s in program.stages] == ["Z", "Y", "Z_stored"]
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(BF)
    made = run_program(program, {"X": x})
    wide = run_program(rows(), {"X": x.astype("f4")})
    np.testing.assert_array_equal(made["Y"], wide["Y"].astype(BF))
    np.testing.assert_array_equal(made["Z"], wide["Z"].astype(BF))


def test_nothing_to_do_gives_the_program_itself():
    program = rows()
    assert lang.algorithms.store_as(program, {}) is program


def test_unknown_arguments():
    with pytest.raises(ProgramError, match="'Q' is no argument of"):
        lang.algorithms.store_as(rows(), {"Q": BF16})


def test_the_primitive_and_its_refusals():
    s = Schedule(rows(), verify=True).store_as("X", "bf16")
    assert s.func.buffer("X").dtype == BF16
    with pytest.raises(ScheduleError, match="there is no element type 'bf15'"):
        s.store_as("X", "bf15")
    with pytest.raises(ScheduleError, match="'Q' is no argument"):
        s.store_as("Q", "bf16")


def test_finite_values_stay_finite_where_asked():
    x = lang.placeholder((4,), name="X")
    program = lang.program([x], [lang.compute((4,), lambda i: x[i] * 2.0, name="Y")])
    values = np.array([1e38, -1.7e38, np.inf, 1.0], np.float32)
    (plain,) = run_program(lang.store_as(program, {"Y": BF16}), {"X": values}).values()
    (limited,) = run_program(lang.store_as(program, {"Y": BF16}, {"Y"}), {"X": values}).values()
    np.testing.assert_array_equal(np.isinf(plain), [False, True, True, False])
    most = lang.largest(BF16)
    np.testing.assert_array_equal(limited[1:].astype(np.float64), [-most, np.inf, 2.0])
    assert limited[0] == plain[0]


def test_where_large_values_go():
    """Through what is done element by element and through maxima, not through sums and functions."""
    x, m = lang.placeholder((4, 8), name="X"), lang.placeholder((8,), name="M")
    k = lang.reduce_axis(8, "k")
    results = {
        "moved": lang.compute((4, 8), lambda i, j: lang.select(x[i, j] > 0, m[j], x[i, j]), name="moved"),
        "exp": lang.compute((4, 8), lambda i, j: lang.exp(x[i, j] + m[j]), name="exp"),
        "top": lang.compute((4,), lambda i: lang.max(x[i, k] + m[k], k), name="top"),
        "sum": lang.compute((4,), lambda i: lang.sum(x[i, k] * m[k], k), name="total"),
        "number": lang.compute((4, 8), lambda i, j: lang.minimum(x[i, j], -3.39e38), name="number"),
        "small": lang.compute((4, 8), lambda i, j: x[i, j] + 3.3e38, name="small"),
    }
    program = lang.program([x, m], list(results.values()))
    assert lang.large_outputs(program, {"M"}, lang.largest(BF16)) == {"moved", "top", "number"}
    assert lang.large_outputs(program, (), lang.largest(BF16)) == {"number"}
