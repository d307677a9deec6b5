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
