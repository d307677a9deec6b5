"""Three-operand form and access matrices."""

import pytest

from tilewright import lang
from tilewright.ir import F32, I32, Access, Cast, Const, Iter, Load, Seq, Stage, Store, index, store, var
from tilewright.mapping import three_operand_form
from tilewright.support import ProgramError


def stage(inputs, output):
    return lang.program(inputs, [output]).stages[-1]


def test_strides_and_offsets():
    a = lang.placeholder((20, 4), name="A")
    c = lang.compute((5, 4), lambda i, j: a[3 * i + 2, j], name="C")
    form = three_operand_form(stage([a], c))
    assert form.operand("A").rows == ((3, 0), (0, 1))
    assert [str(o) for o in form.operand("A").offsets] == ["2", "0"]
    assert form.operand("A").column(0) == (3, 0)
    assert str(form) == "C[i, j] := A[3*i + 2, j]"


def test_nested_expressions_need_several_temporaries():
    a, b = lang.placeholder((4,), name="A"), lang.placeholder((4,), name="B")
    c = lang.compute((4,), lambda i: (a[i] + 1.0) * lang.exp(b[i] - a[i]), name="C")
    assert str(three_operand_form(stage([a, b], c))).splitlines() == [
        "t0[i] := A[i]",
        "t0[i] += 1.0",
        "t1[i] := B[i]",
        "t1[i] -= A[i]",
        "t2[i] exp:= t1[i]",
        "t0[i] *= t2[i]",
        "C[i] := t0[i]",
    ]


def test_a_maximum_is_accumulated():
    a, k = lang.placeholder((4, 3), name="A"), lang.reduce_axis(3, "k")
    c = lang.compute((4,), lambda i: lang.max(a[i, k], axis=k), name="C")
    form = three_operand_form(stage([a], c))
    assert [o.op for o in form.operations] == [":=", "max="]
    assert form.kinds == ("par", "red")


def test_groups_divide_an_axis():
    """Channels of a grouped convolution: one axis is two, and the access is affine in them."""
    x, w = lang.placeholder((6, 5), name="X"), lang.placeholder((8, 2), name="W")
    ic = lang.reduce_axis(2, "ic")
    c = lang.compute((8, 5), lambda oc, i: lang.sum(x[ic + 2 * (oc // 4), i] * w[oc, ic], ic), name="C")
    form = three_operand_form(stage([x, w], c))
    assert (form.axes, form.origins) == (
        ("oc_0", "oc_1", "i", "ic"),
        (("oc", 4), ("oc", 1), ("i", 1), ("ic", 1)),
    )
    assert [e.as_int() for e in form.extents] == [2, 4, 5, 2]
    assert form.operand("X").rows == ((2, 0, 0, 1), (0, 0, 1, 0))
    assert form.operand("C").rows[0] == (4, 1, 0, 0)


def test_blocked_axes_are_taken_apart():
    a = lang.placeholder((3, 2, 4), name="A")
    c = lang.compute((24,), lambda i: a[i // 8, (i // 4) % 2, i % 4], name="C")
    form = three_operand_form(stage([a], c))
    assert form.operand("A").rows == ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    assert form.operand("C").rows == ((8, 4, 1),)


@pytest.mark.parametrize("extent", [9, lang.param("N")], ids=str)
def test_a_division_that_does_not_divide_stays(extent):
    a = lang.boundary(lang.placeholder((4,), name="A"), mode="clamp")
    c = lang.compute((extent,), lambda i: a[i // 2], name="C")
    form = three_operand_form(stage([a.tensor], c))
    assert form.operand("A").rows == ((None,),) and "i//2" in str(form.operand("A").offsets[0])
    assert "i//2" in str(form)


def test_symbolic_extents_and_offsets():
    n = lang.param("N")
    a = lang.placeholder((n, 4), name="A")
    c = lang.compute((n, 4), lambda i, j: a[n - 1 - i, j], name="C")
    form = three_operand_form(stage([a], c))
    assert str(form.extents[0]) == "N" and form.operand("A").rows == ((-1, 0), (0, 1))
    assert str(form.operand("A").offsets[0]) == "N - 1"


def test_padding_is_a_guard_of_its_access():
    x, w = lang.placeholder((8,), name="X"), lang.placeholder((3,), name="W")
    d = lang.reduce_axis(3, "d")

    padded = lang.boundary(x, 0.0)
    c = lang.compute((8,), lambda i: lang.sum(padded[i + d - 1] * w[d], d), name="C")
    form = three_operand_form(stage([x, w], c))
    padded = form.operand("X")
    assert padded.guard.axes == ("i", "d") and padded.guard.otherwise.value == 0
    assert [o.op for o in form.operations] == [":=", ":=", "*=", "+="]


def test_a_mask_is_an_operation_of_some_points():
    """Causal attention: scores of later positions are replaced."""
    s = lang.placeholder((4, 4), name="S")
    c = lang.compute((4, 4), lambda q, k: lang.select(k <= q, s[q, k] * 2.0, -1e9), name="P")
    form = three_operand_form(stage([s], c))
    assert str(form).splitlines()[-2:] == [
        "t0[q, k] := t1[q, k] if le(i64[k], i64[q])",
        "P[q, k] := t0[q, k]",
    ]
    assert form.operations[-2].guard.axes == ("q", "k")


def test_elements_that_are_widened_are_operands_of_their_own_type():
    a, b = lang.placeholder((4, 8), "u8", name="A"), lang.placeholder((8, 4), "i8", name="B")
    k = lang.reduce_axis(8, "k")
    c = lang.compute(
        (4, 4), lambda i, j: lang.sum(lang.cast(a[i, k], "i32") * lang.cast(b[k, j], "i32"), k), name="C"
    )
    form = three_operand_form(stage([a, b], c))
    assert [o.op for o in form.operations] == [":=", ":=", "*=", "+="]
    assert [form.operand(n).dtype.name for n in ("A", "B", "C", "t0")] == ["u8", "i8", "i32", "i32"]


def test_conversions_that_lose_are_operations():
    a = lang.placeholder((4,), name="A")
    c = lang.compute((4,), lambda i: lang.cast(a[i], "i8"), name="C")
    assert [o.op for o in three_operand_form(stage([a], c)).operations] == ["i8:=", ":="]


def test_products_of_several_factors_are_one_chain():
    a, b, d = (lang.placeholder((4, 4), name=n) for n in "ABD")
    k = lang.reduce_axis(4, "k")
    c = lang.compute((4, 4), lambda i, j: lang.sum(a[i, k] * (b[k, j] * d[i, j]), k), name="C")
    assert [o.op for o in three_operand_form(stage([a, b, d], c)).operations] == [
        ":=",
        ":=",
        "*=",
        "*=",
        "+=",
    ]


def test_several_writes_are_computed_before_they_are_stored():
    a, k = lang.placeholder((4, 3), name="A"), lang.reduce_axis(3, "k")
    c = lang.compute((4,), lambda i: lang.argmax(a[i, k], axis=k), name="C")
    stages = lang.program([a], [c]).stages
    form = three_operand_form(next(s for s in stages if len(s.writes) > 1))
    stores = [o for o in form.operations[form.initialised :] if not o.dst.temporary]
    assert [o.op for o in stores] == [":=", ":="] and form.operations[-2:] == tuple(stores)


def test_only_assignments_have_the_form():
    x, y = (Access(n, (var("i"),), Const(0.0, F32)) for n in "xy")
    iters = (Iter("i", index(0), index(4), "par"),)
    with pytest.raises(ProgramError, match="stage S is not a single assignment"):
        three_operand_form(Stage("S", iters, Seq((Store((x,)), Store((y,))))))
    bits = Cast(Load("x", (var("i"),), F32), I32, "bits")
    shown = three_operand_form(Stage("S", iters, store("y", (var("i"),), bits)))
    assert shown.operations[0].op == "i32 bits:="
