"""Updates and sums of products are recognised in either order, and nothing else is."""

import pytest

from tilewright.analysis import operands_of, reduction_of, starts_at_zero, two_factors, update_of
from tilewright.ir import (
    BF16,
    F32,
    I8,
    Access,
    Binary,
    Cast,
    Const,
    If,
    Iter,
    Load,
    Stage,
    Store,
    Unary,
    ge0,
    index,
    var,
)

ROW, K = var("i"), var("k")
OLD = Load("C", (ROW,), F32)
A, B = Load("A", (ROW, K), F32), Load("B", (K,), F32)
PRODUCT = Binary("mul", A, B)
ITERS = (Iter("i", index(0), index(4), "par"), Iter("k", index(0), index(6), "red"))


def _stage(value, start=0.0, guard=()):
    body = Store((Access("C", (ROW,), value),))
    init = Store((Access("C", (ROW,), Const(start, F32)),))
    return Stage("C", ITERS, If(guard, body) if guard else body, init)


@pytest.mark.parametrize("first", [True, False])
def test_either_order_is_an_update(first):
    value = Binary("add", OLD, PRODUCT) if first else Binary("add", PRODUCT, OLD)
    found = update_of(Access("C", (ROW,), value))
    assert (found.op, found.old, found.term, found.first) == ("add", OLD, PRODUCT, first)
    assert found.factors == found.loaded_factors == (A, B)
    assert found.by(A) == (Binary("add", OLD, A) if first else Binary("add", A, OLD))


@pytest.mark.parametrize(
    "value",
    [PRODUCT, Binary("add", Load("C", (ROW + 1,), F32), PRODUCT), Binary("add", Unary("neg", OLD), A), OLD],
)
def test_what_does_not_read_its_element_as_an_operand_is_none(value):
    assert update_of(Access("C", (ROW,), value)) is None


def test_only_sums_have_factors():
    assert update_of(Access("C", (ROW,), Binary("max", OLD, PRODUCT))).factors is None
    assert update_of(Access("C", (ROW,), Binary("add", OLD, A))).factors is None


def test_factors_are_elements_of_float_types_converted_once():
    def loaded(f):
        return update_of(Access("C", (ROW,), Binary("add", OLD, Binary("mul", f, B)))).loaded_factors

    narrow = Load("A", (ROW, K), BF16)
    assert loaded(Cast(narrow, F32)) == (narrow, B)
    assert loaded(Cast(Load("A", (ROW, K), I8), F32)) is None
    # an element that is rounded on its way is another value
    assert loaded(Cast(Cast(A, BF16), F32)) is None
    assert loaded(Binary("add", A, A)) is None


def test_reductions_have_one_result_and_keep_their_condition():
    value = Binary("add", OLD, PRODUCT)
    guard = (ge0(K - 1),)
    assert reduction_of(_stage(value, guard=guard)).guard == guard
    assert reduction_of(_stage(value)).guard == ()
    plain = Stage("C", (ITERS[0],), Store((Access("C", (ROW,), Binary("add", OLD, OLD)),)))
    assert reduction_of(plain) is None
    two = Store((Access("C", (ROW,), value), Access("D", (ROW,), A)))
    assert reduction_of(Stage("C", ITERS, two)) is None


def test_where_sums_start():
    assert starts_at_zero(_stage(PRODUCT))
    assert not starts_at_zero(_stage(PRODUCT, start=1.0))
    assert not starts_at_zero(Stage("C", ITERS, Store((Access("C", (ROW,), PRODUCT),))))


def test_chains_go_through_brackets():
    assert operands_of(Binary("mul", PRODUCT, Binary("mul", B, A)), "mul") == [A, B, B, A]
    assert operands_of(Binary("add", PRODUCT, B), "mul") == [Binary("add", PRODUCT, B)]
    assert two_factors(PRODUCT) == (A, B)
    assert two_factors(Binary("add", A, B)) is None
