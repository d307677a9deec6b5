"""Kernels of single functions: in-out arguments."""

import numpy as np
import pytest

from tilewright.driver import build
from tilewright.ir import parse_function, print_function, run_function, structural_hash
from tilewright.runtime import aligned_copy
from tilewright.support import InputError

TEXT = """
function("f", outputs=[A, S], inouts=[A])
x = f64[8]
A = f64[8]
S = f64[1]
with seq:
    with block("S"):
        S[0] = A[3]
    for i in range(1, 5):
        with block("A"):
            i = par(1, 5, i)
            A[i] = A[i] + x[i]
"""


def arrays():
    return {"x": np.arange(8.0), "A": np.arange(8.0) * 10}


def expected(A, x):
    out = A.copy()
    out[1:5] += x[1:5]
    return out, A[3:4]


def test_the_text_keeps_in_out_arguments():
    func = parse_function(TEXT)
    assert func.inouts == ("A",) and [b.name for b in func.inputs] == ["x", "A"]
    assert parse_function(print_function(func)) == func
    other = parse_function(TEXT.replace(", inouts=[A]", ""))
    assert structural_hash(func) != structural_hash(other)


def test_in_out_arguments_are_given_and_come_back():
    func, given = parse_function(TEXT), arrays()
    kernel = build(func)
    A, S = kernel(**given)
    want = expected(**given)
    assert np.array_equal(A, want[0]) and np.array_equal(S, want[1])
    assert np.array_equal(given["A"], np.arange(8.0) * 10)
    with pytest.raises(InputError, match="input 'A' is missing"):
        kernel(given["x"])
    table = [aligned_copy(a) for a in (given["x"], given["A"], np.zeros(1))]
    kernel.run(table)
    assert np.array_equal(table[1], want[0])


def test_the_interpreter_reads_in_out_arguments_and_keeps_their_elements():
    func, given = parse_function(TEXT), arrays()
    want = expected(**given)
    out = run_function(func, {k: v.copy() for k, v in given.items()})
    assert np.array_equal(out["A"], want[0]) and np.array_equal(out["S"], want[1])
    with pytest.raises(InputError, match="no array is given for the argument A"):
        run_function(func, {"x": given["x"]})
