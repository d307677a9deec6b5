"""Expressions that share parts: nothing that handles them may treat them as trees."""

import numpy as np

from tilewright.ir import (
    F64,
    I32,
    ZERO,
    Binary,
    Block,
    Compare,
    Const,
    For,
    Iter,
    Load,
    LoopFunction,
    OfIndex,
    Select,
    buffer,
    index,
    parse_function,
    print_function,
    run_function,
    store,
    structural_hash,
    structurally_equal,
    var,
    verify,
)
from tilewright.ir.sharing import shared_nodes

i = var("i")


def doubled(times):
    """(x + x) + (x + x) ..., a tree of 2**times leaves in as many nodes."""
    e = Binary("mul", Load("x", (i,), F64), Const(0.5, F64))
    for _ in range(times):
        e = Binary("add", e, e)
    return e


def function_of(value):
    block = Block("b", "b", (Iter("i", ZERO, index(4), "par"),), (i,), store("y", (i,), value))
    body = For("i", ZERO, index(4), block)
    return LoopFunction("f", (), (buffer("x", (4,), F64), buffer("y", (4,), F64)), ("y",), body)


X = np.arange(4, dtype=np.float64)


def test_sixty_doublings():
    f = function_of(doubled(60))
    verify(f)
    text = print_function(f)
    assert len(text.splitlines()) < 80
    again = parse_function(text)
    assert print_function(again) == text
    assert structural_hash(again) == structural_hash(f)
    assert structurally_equal(again, f)
    np.testing.assert_array_equal(run_function(f, {"x": X})["y"], X * 2.0**59)
    np.testing.assert_array_equal(run_function(again, {"x": X})["y"], X * 2.0**59)


def test_the_text_of_small_expressions_has_no_parts():
    assert "_0" not in print_function(function_of(doubled(3)))


def test_parts_are_found_by_value():
    # the same values built apart print alike
    apart = Binary("add", doubled(8), doubled(8))
    shared = doubled(9)
    assert apart == shared
    text = print_function(function_of(shared))
    assert print_function(function_of(apart)) == text
    assert text.count("= x[i]") == 1
    assert parse_function(text) == function_of(shared)


def test_a_part_behind_a_lazy_branch_is_evaluated_where_it_is_needed():
    part = Binary("mul", Load("x", (i - 1,), F64), Const(2.0, F64))
    inside = Compare("gt", OfIndex(i, I32), Const(0, I32))
    value = Select(inside, Binary("add", part, part), Const(0.0, F64))
    found = run_function(function_of(value), {"x": X})["y"]
    np.testing.assert_array_equal(found, [0, 0, 4, 8])


def test_shared_nodes():
    a = Binary("add", Load("x", (i,), F64), Const(1.0, F64))
    assert shared_nodes([a]) == frozenset()
    assert shared_nodes([Binary("mul", a, a)]) == {id(a)}
    assert shared_nodes([a, a]) == {id(a)}
