"""Three-operand form and access matrices."""

import pytest

from tilewright import lang
from tilewright.ir import F32, Access, Const, Iter, Seq, Stage, Store, index, var
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


def test_a_division_has_no_access_matrix():
    a = lang.placeholder((4,), name="A")
    c = lang.compute((8,), lambda i: a[i // 2], name="C")
    with pytest.raises(ProgramError, match=r"A\[i//2\] of stage C is not affine"):
        three_operand_form(stage([a], c))


def test_conditions_have_no_form():
    a = lang.placeholder((4,), name="A")
    c = lang.compute((4,), lambda i: lang.select(a[i] > 0.0, a[i], 0.0), name="C")
    with pytest.raises(ProgramError, match="no three-operand form"):
        three_operand_form(stage([a], c))


def test_only_single_assignments_have_the_form():
    x, y = (Access(n, (var("i"),), Const(0.0, F32)) for n in "xy")
    iters = (Iter("i", index(0), index(4), "par"),)
    with pytest.raises(ProgramError, match="stage S writes several values at once"):
        three_operand_form(Stage("S", iters, Store((x, y))))
    with pytest.raises(ProgramError, match="stage S is not a single assignment"):
        three_operand_form(Stage("S", iters, Seq((Store((x,)), Store((y,))))))
