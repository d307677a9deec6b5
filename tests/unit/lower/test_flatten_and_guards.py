"""Blocks to plain statements, conditions out of loops, and the pipeline's list."""

import numpy as np
import pytest

from tilewright.ir import (
    Block,  # fmt: skip
    parse_function,
    print_function,
    run_function,
    stmt_children,
)
from tilewright.lower import PIPELINE, flatten_blocks, lower, trim_guards
from tilewright.support import InternalError


def function(body, buffers="x = f32[40]\ny = f32[40]", params=""):
    return parse_function(f'function("f", outputs=[y])\n{params}{buffers}\n{body}')


def text(func):
    lines = print_function(func).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("function", "x =", "y =", "n =")))


def same(before, after, n=40, sizes=None):
    x = np.arange(n, dtype=np.float32)
    a = run_function(before, {"x": x}, sizes, complete=False)["y"]
    b = run_function(after, {"x": x}, sizes, complete=False)["y"]
    np.testing.assert_array_equal(a, b)


def test_bindings_are_substituted_and_predicates_become_branches():
    func = function(
        """
for io in range(7):
    for ii in range(6):
        with block("y"):
            i = par(0, 40, 6*io + ii)
            where(39 - 6*io - ii >= 0)
            y[i] = x[i]
"""
    )
    flat = flatten_blocks(func)
    assert text(flat) == (
        "for io in range(7):\n    for ii in range(6):\n        if -ii - 6*io + 39 >= 0:\n"
        "            y[ii + 6*io] = x[ii + 6*io]"
    )
    same(func, flat)


def test_what_ranges_decide_is_decided():
    func = function(
        """
for io in range(5):
    for ii in range(8):
        with block("y"):
            i = par(0, 40, 8*io + ii)
            where(39 - 8*io - ii >= 0)
            y[i] = x[8*(i//8) + i%8]
"""
    )
    flat = flatten_blocks(func)
    assert "if" not in text(flat) and "//" not in text(flat)
    same(func, flat)


def test_loops_of_one_iteration_go_but_for_outlined_ones():
    func = function(
        """
for a in range(1):
    for b in range(1, hints={"outline": ""}):
        for i in range(40):
            y[i + a] = x[i + b]
"""
    )
    flat = flatten_blocks(func)
    assert "for a" not in text(flat) and "for b" in text(flat)


def test_a_block_with_its_init_is_an_internal_error():
    func = function(
        """
for k in range(40):
    with block("y"):
        i = par(0, 1, 0)
        k = red(0, 40, k)
        with init:
            y[i] = f32(0.0)
        y[i] = y[i] + x[k]
"""
    )
    with pytest.raises(InternalError, match="reaches code generation with its init"):
        flatten_blocks(func)


def test_serial_loops_are_trimmed_by_linear_conditions():
    func = function(
        """
for i in range(40):
    if 3*i - 10 >= 0 and 70 - 2*i >= 0:
        y[i] = x[i]
"""
    )
    trimmed = trim_guards(func)
    assert text(trimmed) == "for i in range(4, 36):\n    y[i] = x[i]"
    same(func, trimmed)


def test_invariant_conditions_leave_the_loop_and_lanes_keep_their_mask():
    func = function(
        """
for j in range(5):
    for i in vector(8):
        if 3 - j >= 0 and 6 - i >= 0:
            y[8*j + i] = x[8*j + i]
"""
    )
    trimmed = trim_guards(func)
    assert text(trimmed) == (
        "for j in range(4):\n    for i in vector(8):\n        if -i + 6 >= 0:\n"
        "            y[i + 8*j] = x[i + 8*j]"
    )
    same(func, trimmed)


@pytest.mark.parametrize("n", [1, 4, 5, 6, 11, 40])
def test_symbolic_bounds(n):
    func = function(
        """
for io in range((n + 4)//5):
    for ii in range(5):
        if n - 1 - 5*io - ii >= 0:
            y[5*io + ii] = x[5*io + ii]
""",
        "x = f32[n]\ny = f32[n]",
        "n = param(1, 64)\n",
    )
    trimmed = trim_guards(func)
    assert "if" not in text(trimmed)
    same(func, trimmed, n, {"n": n})


def test_neighbours_under_one_condition_are_joined():
    func = function(
        """
for j in range(5):
    with seq:
        if 2 - j >= 0:
            y[j] = x[j]
        if 2 - j >= 0:
            y[j + 5] = x[j]
"""
    )
    trimmed = trim_guards(func)
    assert text(trimmed).count("if") == 0 and "range(3)" in text(trimmed)
    same(func, trimmed)


def test_the_pipeline_leaves_no_blocks_and_calls_its_hooks():
    func = function(
        """
for k in range(40):
    with block("y"):
        i = par(0, 1, 0)
        k = red(0, 40, k)
        with init:
            y[i] = f32(0.0)
        y[i] = y[i] + x[k]
""",
        "x = f32[40]\ny = f32[1]",
    )
    seen = []
    low = lower(func, [lambda name, f, seconds: seen.append((name, seconds >= 0))])
    assert seen == [(p.name, True) for p in PIPELINE]

    def blocks(s):
        return isinstance(s, Block) or any(map(blocks, stmt_children(s)))

    assert not blocks(low.body)
    same(func, low)
