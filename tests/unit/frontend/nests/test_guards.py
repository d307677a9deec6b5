"""Conditions: their opposites, and what of them loops decide."""

import random

import numpy as np
import pytest

from tilewright.frontend.nests import (
    FALSE,
    TRUE,
    Place,
    both,
    compared,
    conjuncts,
    decided_by_loops,
    either,
    opposite,
    under,
)
from tilewright.ir import (
    F64,
    I32,
    Block,
    Buffer,
    Compare,
    Const,
    For,
    Iter,
    Load,
    LoopFunction,
    Select,
    index,
    run_function,
    store,
    var,
)

K, J = var("i"), var("j")
#: Of two elements, of which one is NaN: neither less nor not less.
DATA = Compare("lt", Load("x", (K,), F64), Const(1.0, F64))
ATOMS = (compared("lt", K, J), compared("eq", K, index(2)), compared("ne", J, index(1)), DATA)


def table(e):
    """A condition at all points, by the interpreter."""
    body = store("out", (K, J), Select(e, Const(1, I32), Const(0, I32)))
    iters = (Iter("i", index(0), index(4), "par"), Iter("j", index(0), index(4), "par"))
    block = Block("S", "S", iters, (K, J), body)
    nest = For("i", index(0), index(4), For("j", index(0), index(4), block))
    buffers = (Buffer("x", (index(4),), F64), Buffer("out", (index(4), index(4)), I32))
    x = np.array([0.0, 2.0, np.nan, 0.5])
    func = LoopFunction("f", (), buffers, ("out",), nest)
    return run_function(func, {"x": x, "out": np.zeros((4, 4), np.int32)}, {})["out"].astype(bool)


def drawn(rng, depth):
    if depth == 0:
        return rng.choice(ATOMS)
    a, b = drawn(rng, depth - 1), drawn(rng, depth - 1)
    return rng.choice((both, either))(a, b) if rng.random() < 0.7 else opposite(a)


@pytest.mark.parametrize("seed", range(30))
def test_opposites(seed):
    e = drawn(random.Random(seed), 3)
    if e not in (TRUE, FALSE):
        assert np.array_equal(table(opposite(e)), ~table(e))
        assert np.array_equal(table(opposite(opposite(e))), table(e))
        whole = np.logical_and.reduce([table(part) for part in conjuncts(e)])
        assert np.array_equal(whole, table(e))


def test_what_loops_decide_cuts_them():
    less, two, other, data = ATOMS
    assert all(map(decided_by_loops, (less, either(two, other), TRUE))) and not decided_by_loops(data)
    place = under(Place(), both(both(less, either(two, other)), data))
    assert [c.op for c in place.where] == ["ge", "opaque"] and place.conds == (data,)
    assert compared("lt", index(1), index(2)) == TRUE and both(FALSE, data) == FALSE
    assert either(TRUE, data) == TRUE and both(TRUE, data) == data and either(FALSE, data) == data
