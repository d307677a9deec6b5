"""What a reduction stage does is recognised, or not."""

import pytest

from tilewright import ir, lang


def _stage(fn):
    A = lang.placeholder((4, 6), name="A")
    k = lang.reduce_axis(6, "k")
    made = lang.compute((4,), lambda i: fn(A[i, k], k), name=None)
    return lang.program([A], made).stages[0]


@pytest.mark.parametrize(
    ("fold", "op"), [(lang.sum, "add"), (lang.prod, "mul"), (lang.max, "max"), (lang.min, "min")]
)
def test_folds(fold, op):
    (found,) = lang.patterns_of(_stage(lambda x, k: fold(x * 2, axis=k, where=k > 1)))
    assert isinstance(found, lang.Fold)
    assert found.op == op
    assert found.value == ir.Binary(
        "mul", ir.Load("A", (ir.var("i"), ir.var("k")), ir.F32), ir.Const(2.0, ir.F32)
    )
    assert found.where == (ir.ge0(ir.var("k") - 2),)


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_extrema(kind):
    stage = _stage(lambda x, k: getattr(lang, kind)(x, axis=k))
    (found,) = lang.patterns_of(stage)
    assert isinstance(found, lang.Extremum)
    assert found.kind == kind
    assert [t.buffer for t in found.targets] == list(stage.writes)
    assert found.value == ir.Load("A", (ir.var("i"), ir.var("k")), ir.F32)
    assert found.position == ir.OfIndex(ir.var("k"), ir.I64)


def test_several_reductions_of_one_stage():
    stage = _stage(lambda x, k: (lang.sum(x, axis=k), lang.max(x, axis=k)))
    assert [p.op for p in lang.patterns_of(stage)] == ["add", "max"]


def test_other_bodies_are_not_recognised():
    stage = _stage(lambda x, k: lang.sum(x, axis=k))
    (write,) = stage.body.writes
    swapped = ir.Binary("add", write.value.b, write.value.a)
    other = ir.Binary("add", write.value.a, ir.Load("t", (ir.ZERO,), ir.F32))
    for value in (swapped, other):
        body = ir.store(write.buffer, write.indices, value)
        assert lang.patterns_of(ir.Stage("t", stage.iters, body, stage.init)) is None
