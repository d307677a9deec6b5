"""The loads of a store, with the instances that execute them."""

import pytest

from tilewright.ir import (
    F32,
    I32,
    I64,
    U8,
    U64,
    Compare,
    Const,
    Iter,
    OfIndex,
    Program,
    Select,
    Stage,
    buffer,
    index,
    store,
    to_function,
)
from tilewright.poly import check_legal, list_function
from tilewright.poly.loads import executed_loads
from unit.poly.builders import add, it, ld, mul, x


def test_shared_parts_are_visited_once():
    """Forty doublings: as a tree the expression would have 2**40 leaves."""
    value = ld("A", x)
    for _ in range(40):
        value = add(value, value)
    st = Stage("D", (it("x", 3),), store("D", (x,), value))
    p = Program("shared", (), (buffer("A", (3,), F32),), (buffer("D", (3,), F32),), (), (st,))
    f = to_function(p)
    (s,) = list_function(f).flow.instances.statements
    assert len(s.reads) == 1
    other = ld("A", x)
    for _ in range(40):
        other = add(other, other)
    again = Program("shared", (), p.inputs, p.outputs, (), (Stage("D", st.iters, store("D", (x,), other)),))
    assert check_legal(f, to_function(again)) == []


def test_the_sides_of_a_select_run_apart():
    small = Compare("lt", OfIndex(x, I32), Const(2, I32))
    st = Stage("D", (it("x", 5),), store("D", (x,), Select(small, ld("A", x), mul(ld("A", x), ld("B", x)))))
    p = Program("sides", (), (buffer("A", (5,), F32), buffer("B", (5,), F32)), (buffer("D", (5,), F32),),
                (), (st,))  # fmt: skip
    (s,) = list_function(to_function(p)).flow.instances.statements
    assert [(r.buffer, [int(v) for v in r.rows]) for r in s.reads] == [
        ("A", [0, 1]),
        ("A", [2, 3, 4]),
        ("B", [2, 3, 4]),
    ]


def test_data_dependent_conditions_make_loads_unsure():
    positive = Compare("gt", ld("A", x), Const(0.0, F32))
    value = Select(positive, ld("B", x), ld("A", x))
    found = executed_loads(store("D", (x,), value), "all", lambda cond, region: None)
    assert [(load.buffer, sure) for load, _, sure in found] == [("A", True), ("B", False), ("A", False)]


@pytest.mark.parametrize("mode", ["list", "isl"])
@pytest.mark.parametrize(("dtype", "legal"), [(I64, True), (I32, True), (U8, False), (U64, False)])
def test_comparisons_that_wrap_are_none_of_indices(mode, dtype, legal):
    """``u8[x - 3] >= 4`` holds of 0: elements below 7 must be there, too."""

    def function(least):
        made = Stage("T", (Iter("x", index(least), index(12), "par"),), store("T", (x,), ld("X", x)))
        far = Compare("ge", OfIndex(x - 3, dtype), Const(4, dtype))
        read = Stage("Y", (it("x", 12),), store("Y", (x,), Select(far, ld("T", x), Const(0.0, F32))))
        given, out, temp = (buffer(name, (12,), F32) for name in "XYT")
        return to_function(Program("p", (), (given,), (out,), (temp,), (made, read)))

    assert (check_legal(function(0), function(7), mode=mode) == []) == legal
