"""Programs built by the language: stages, names, order, simplified indices."""

import pytest

from tilewright import ir, lang
from tilewright.support import ProgramError


def _matmul():
    A, B = lang.placeholder((3, 4), name="A"), lang.placeholder((4, 5), name="B")
    k = lang.reduce_axis(4, "k")
    return A, B, lang.compute((3, 5), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="C")


def test_a_reduction_that_is_the_whole_body_is_one_stage():
    A, B, C = _matmul()
    p = lang.program([A, B], [C])
    (stage,) = p.stages
    assert [(it.name, it.kind) for it in stage.iters] == [("i", "par"), ("j", "par"), ("k", "red")]
    at = (ir.var("i"), ir.var("j"))
    assert stage.init == ir.store("C", at, ir.Const(0.0, ir.F32))
    product = ir.Binary(
        "mul",
        ir.Load("A", (ir.var("i"), ir.var("k")), ir.F32),
        ir.Load("B", (ir.var("k"), ir.var("j")), ir.F32),
    )
    assert stage.body == ir.store("C", at, ir.Binary("add", ir.Load("C", at, ir.F32), product))


def test_an_inner_reduction_becomes_a_stage_before():
    A = lang.placeholder((3, 4), name="A")
    k = lang.reduce_axis(4, "k")
    S = lang.compute((3, 4), lambda i, j: lang.exp(A[i, j] - lang.max(A[i, k], axis=k)), name="S")
    p = lang.program([A], [S])
    assert [s.name for s in p.stages] == ["S_max", "S"]
    assert [str(n) for n in p.buffer("S_max").shape] == ["3"]


def test_a_stage_knows_its_source_line():
    _, _, C = _matmul()
    (stage,) = lang.program(*_ends(C)).stages
    assert stage.source is not None
    assert stage.source.file == __file__
    assert "lang.sum(A[i, k] * B[k, j], axis=k)" in stage.source.text


def _ends(C):
    loads = [ld.buffer.tensor for ld in ir.stmt_loads(C.definition.body)]
    return [t for t in loads if t is not C], [C]


def test_unnamed_tensors_are_numbered_and_unreached_ones_left_out():
    A = lang.placeholder((4,), name="A")
    B = lang.compute((4,), lambda i: A[i] + 1)
    C = lang.compute((4,), lambda i: B[i] * 2)
    lang.compute((4,), lambda i: A[i] - 1)
    p = lang.program([A], [C])
    assert [b.name for b in p.temps] == ["t"]
    assert [b.name for b in p.outputs] == ["t_1"]
    assert [s.name for s in p.stages] == ["t", "t_1"]


def test_an_iterator_gives_way_to_a_symbolic_size_of_its_name():
    n = lang.param("n")
    A = lang.placeholder((n,), name="A")
    p = lang.program([A], lang.compute((n,), lambda n: A[n], name="B"))
    assert [it.name for it in p.stages[0].iters] == ["n_1"]
    assert p.params == (ir.Param("n"),)


def test_a_where_on_a_reduction_guards_the_body_and_not_the_init():
    A = lang.placeholder((4, 4), name="A")
    k = lang.reduce_axis(4, "k")
    T = lang.compute((4,), lambda i: lang.sum(A[i, k], axis=k, where=k <= i), name="T")
    (stage,) = lang.program([A], T).stages
    assert isinstance(stage.body, ir.If)
    assert stage.body.cond == (ir.ge0(ir.var("i") - ir.var("k")),)
    assert isinstance(stage.init, ir.Store)


def test_decided_conditions_and_divisions_are_removed():
    A = lang.placeholder((8,), name="A")
    P = lang.boundary(A)
    B = lang.compute((2, 4), lambda g, i: P[(4 * g + i) // 4 + (4 * g + i) % 4], name="B")
    (stage,) = lang.program([A], B).stages
    assert stage.body == ir.store(
        "B", (ir.var("g"), ir.var("i")), ir.Load("A", (ir.var("g") + ir.var("i"),), ir.F32)
    )


def test_a_long_chain_does_not_recurse():
    t = A = lang.placeholder((2,), name="A")
    for _ in range(3000):
        t = lang.compute((2,), lambda i, t=t: t[i] + 1)
    assert len(lang.program([A], t).stages) == 3000


def test_building_twice_gives_equal_programs():
    assert lang.program(*_ends(_matmul()[2])) == lang.program(*_ends(_matmul()[2]))


@pytest.mark.parametrize("again", [True, False])
def test_equal_names_are_refused(again):
    A = lang.placeholder((4,), name="A")
    B = lang.compute((4,), lambda i: A[i], name="B" if again else "A")
    C = lang.compute((4,), lambda i: B[i], name="B")
    with pytest.raises(ProgramError, match="also that of the tensor of line"):
        lang.program([A], [C])
