"""Elements side by side at places that data tell: one gather brings both, and nothing else is read.

Memory around what the function may read is forbidden (`native_kernel.py`).
"""

import numpy as np
import pytest

from native_kernel import Native
from tilewright.ir import parse_function, run_function

RNG = np.random.default_rng(11)
#: Words that hold two elements of a type.
WORDS = {"u8": "i16", "i16": "i32", "f16": "i32", "f32": "i64", "i32": "i64"}
SIZE = 40


def run(body, dtype="f32", n=16, last=SIZE - 2):
    """``body`` over ``n`` lanes, ``at`` up to ``last``: native code beside the interpreter; LLVM's text."""
    buffers = f"x = {dtype}[{SIZE}]\nat = i64[{n}]\ny = {dtype}[{n}]\nz = {dtype}[{n}]\n"
    text = f'function("f", outputs=[y, z])\n{buffers}for j in vector({n}):\n{body}'
    native = Native(parse_function(text))
    given = {
        "x": RNG.integers(0, 2 if dtype == "bool" else 60, SIZE).astype(native.func.buffers[0].dtype.numpy),
        "at": RNG.permuted(np.append(RNG.integers(0, last + 1, n - 2), [0, last])),
    }
    got = native(given)
    want = run_function(parse_function(text.replace("vector(", "range(")), given, {})
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
    return native.text.text


def gathers(text):
    """The types that gathers of a text bring, one for each that is called."""
    lines = [line for line in text.splitlines() if " call " in line and "masked.gather" in line]
    return [line.split("x ")[1].split(">")[0] for line in lines]


@pytest.mark.parametrize("n", [16, 9, 5, 33])
@pytest.mark.parametrize("dtype", WORDS)
def test_two_neighbours_are_one_gather(dtype, n):
    brought = gathers(
        run(f"    y[j] = max(x[int(at[j])], x[int(at[j]) + 1])\n    z[j] = {dtype}(1)", dtype, n)
    )
    assert brought and set(brought) == {WORDS[dtype]}


@pytest.mark.parametrize("dtype", ["f64", "i64", "bool"])
def test_elements_that_fill_a_gather_come_one_by_one(dtype):
    op = "|" if dtype == "bool" else "+"
    brought = gathers(run(f"    y[j] = x[int(at[j])] {op} x[int(at[j]) + 1]\n    z[j] = x[0]", dtype))
    assert brought.count(brought[0]) == len(brought) and len(brought) % 2 == 0


def test_of_three_in_a_row_two_come_together():
    brought = gathers(
        run(
            "    y[j] = x[int(at[j])] + x[int(at[j]) + 2] * x[int(at[j]) + 1]\n    z[j] = x[0]", last=SIZE - 3
        )
    )
    assert brought.count("i64") == brought.count("float") == len(brought) / 2


def test_elements_two_apart_come_one_by_one():
    text = run("    y[j] = x[int(at[j])] + x[int(at[j]) + 2]\n    z[j] = x[0]", last=SIZE - 3)
    assert set(gathers(text)) == {"float"}


def test_what_a_choice_reads_does_not_come_along():
    """The last element has no neighbour: where it is looked up, only the other side may be read."""
    body = "    y[j] = x[int(at[j])] + select(at[j] < i64(39), x[int(at[j]) + 1], f32(7.0))\n    z[j] = x[0]"
    assert set(gathers(run(body, last=SIZE - 1))) == {"float"}


@pytest.mark.parametrize("n", [16, 13])
def test_lanes_that_are_off_read_nothing(n):
    """Under a condition that holds for some lanes, neighbours still come together, for these lanes only."""
    body = (
        "    with seq:\n        y[j] = f32(1.0)\n        z[j] = f32(2.0)\n"
        "        if holds(at[j] < i64(39)):\n            y[j] = x[int(at[j])] + x[int(at[j]) + 1]"
    )
    assert set(gathers(run(body, n=n, last=SIZE - 1))) == {"i64"}


def test_what_was_written_meanwhile_is_read_anew():
    """The same pair is read by two statements, and one of its elements changes between them."""
    places = "max(0, min(14, int(at[j])))"
    text = f"""function("f", outputs=[y, z])
at = i64[16]
y = f32[16]
z = f32[16]
with seq:
    for j in range(16):
        z[j] = f32[7 * j] * f32[j]
    for i in range(2):
        with seq:
            for j in vector(16):
                y[j] = z[{places}] - z[{places} + 1] * f32(2.0)
            for j in range(16):
                z[j] = z[j] + f32(3.0)
    for j in vector(16):
        z[j] = y[j] + z[j]
"""
    given = {"at": RNG.permuted(np.arange(16))}
    native = Native(parse_function(text))
    want = run_function(parse_function(text.replace("vector(", "range(")), given, {})
    got = native(given)
    np.testing.assert_array_equal(got["y"], want["y"])
    np.testing.assert_array_equal(got["z"], want["z"])
    assert set(gathers(native.text.text)) == {"i64"}
