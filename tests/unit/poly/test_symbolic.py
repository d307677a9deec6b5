"""The isl mode judges for all sizes at once; test_legality.py tests that it agrees with the list mode."""

from dataclasses import replace

import pytest

from tilewright import lang
from tilewright.ir import (
    F32,
    PARALLEL,
    Param,
    Program,
    Seq,
    Stage,
    buffer,
    find,
    ge0,
    index,
    replace_at,
    store,
    to_function,
    var,
)
from tilewright.poly import check_legal, list_function
from tilewright.poly.spaces import CONTEXT
from tilewright.poly.symbolic import check_symbolic
from tilewright.schedule import Schedule
from tilewright.support import ProgramError, ResourceError
from unit.poly.builders import add, block, i, it, j, k, ld, mul, nest, with_body, x, zero

n = Param("n", 1, 1 << 20)


def copy():
    st = Stage("D", (it("x", n),), store("D", (x,), ld("A", x)))
    return Program("copy", (n,), (buffer("A", (n,), F32),), (buffer("D", (n,), F32),), (), (st,))


def product():
    body = store("C", (i, j), add(ld("C", i, j), mul(ld("A", i, k), ld("B", k, j))))
    st = Stage("C", (it("i", n), it("j", n), it("k", n, "red")), body, store("C", (i, j), zero()))
    box = (n, n)
    given = buffer("A", box, F32), buffer("B", box, F32)
    return Program("matmul", (n,), given, (buffer("C", box, F32),), (), (st,))


def tiled(program, tiles, guard):
    at = var("xo") * 4 + var("xi")
    b = block(program, "D", (at,))
    if guard:
        b = replace(b, where=(ge0(index(n) - 1 - at),))
    return with_body(program, nest([("xo", 0, tiles), ("xi", 0, 4)], b))


def test_a_guarded_tail_is_right_for_every_size():
    p = copy()
    assert check_symbolic(to_function(p), tiled(p, (index(n) + 3) // 4, True)) == []


def test_a_lost_tail_names_a_size_that_shows_it():
    p = copy()
    found = check_symbolic(to_function(p), tiled(p, index(n) // 4, False))
    assert {v.kind for v in found} == {"missing", "final"}
    assert "for n=" in found[0].message
    # where the size is a multiple of four nothing is lost
    assert check_symbolic(to_function(p), tiled(p, index(n) // 4, False), {"n": 8}) == []


def test_a_tile_too_many_leaves_the_buffer():
    p = copy()
    found = check_symbolic(to_function(p), tiled(p, (index(n) + 3) // 4, False))
    assert {v.kind for v in found} == {"bounds", "extra"}


def test_a_tiled_reduction_of_any_size():
    p = product()
    at = var("ko") * 8 + var("ki")
    b = replace(block(p, "C", (i, j, at)), where=(ge0(index(n) - 1 - at),))
    loops = [("i", 0, n, PARALLEL), ("ko", 0, (index(n) + 7) // 8), ("j", 0, n), ("ki", 0, 8)]
    assert check_symbolic(to_function(p), with_body(p, nest(loops, b))) == []
    found = check_symbolic(to_function(p), with_body(p, nest([loops[0], ("ki", 0, 8), loops[2]],
                                                             block(p, "C", (i, j, var("ki"))))))  # fmt: skip
    assert {v.kind for v in found} == {"bounds", "missing", "extra", "final"}


def test_the_mode_is_reached_through_check_legal():
    p = copy()
    assert check_legal(to_function(p), tiled(p, (index(n) + 3) // 4, True), mode="isl") == []


def test_copies_without_end_are_given_up(monkeypatch):
    f = to_function(copy())
    monkeypatch.setattr("tilewright.poly.symbolic_flow.MAX_COPIES", 0)
    with pytest.raises(ProgramError, match="values are copied on and on") as caught:
        check_symbolic(f, f)
    assert "list mode" in caught.value.hint


def test_a_function_too_large_to_list_is_refused(monkeypatch):
    f = to_function(copy())
    monkeypatch.setattr("tilewright.poly.frames.MAX_ELEMENTS", 10)
    with pytest.raises(ResourceError, match="more than 10 values to list, at ") as caught:
        list_function(f, {"n": 64})
    assert "smaller sizes" in caught.value.hint


def test_memory_without_bounds_is_refused_before_tables_of_it_are_made(monkeypatch):
    f = to_function(copy())
    monkeypatch.setattr("tilewright.poly.frames.MAX_CELLS", 100)
    with pytest.raises(ResourceError, match="cells of memory to follow, at most 100 are") as caught:
        list_function(f, {"n": 64})
    assert "smaller sizes" in caught.value.hint


def test_isl_cannot_run_away():
    p = product()
    f = to_function(p)
    with pytest.raises(ResourceError, match="isl gave up"):
        check_symbolic(f, f, operations=10)
    assert CONTEXT.get_max_operations() == 0
    assert check_symbolic(f, f) == []


def counts():
    """How often each of four values is in rows of any length, added to ones; the program and its loops."""
    X = lang.placeholder((3, lang.param("N", 1, 1 << 20)), "i32", name="X")
    start = lang.compute((3, 4), lambda y, b: lang.const(1, "i32"), name="start")

    def count(t, y, x):
        b = lang.clamp(X[y, x], 0, 3)
        return lang.write((y, b), t[y, b] + 1)

    axes = [lang.axis(3, "y"), lang.reduce_axis(X.shape[1], "x")]
    s = Schedule(lang.program([X], [lang.update(start, axes, count, name="H")]))
    return s, *s.loops("H_update")


def test_updates_in_no_order_may_run_in_any():
    s, y, x = counts()
    for t in (
        s.reorder(x, y),
        s.split(x, 4).reorder(f"{x}_i", f"{x}_o"),
        s.split(x, 4, tail="peel"),
        s.parallel(y).split(x, 3),
        s.partition(x, 1),
    ):
        assert check_symbolic(s.func, t.func) == []


def damaged(func, loop, **changes):
    place = find(func.body, loop)
    return func.with_body(replace_at(func.body, place.path, replace(place.node, **changes)))


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda f, y, x: damaged(f, x, kind=PARALLEL), "race"),
        (lambda f, y, x: damaged(f, x, hi=index(f.params[0]) - 1), "missing"),
        (lambda f, y, x: damaged(f, y, hi=index(2)), "missing"),
        (lambda f, y, x: f.with_body(Seq(f.body.stmts[::-1])), "flow"),
        (lambda f, y, x: f.with_body(Seq((*f.body.stmts, f.body.stmts[1]))), "final"),
        (lambda f, y, x: f.with_body(f.body.stmts[1]), "flow"),
    ],
)
def test_updates_in_no_order_run_all_of_them_once_after_what_they_start_from(damage, kind):
    s, y, x = counts()
    func = damage(s.func, y, x)
    assert kind in {v.kind for v in check_symbolic(s.func, func)}
    # the other mode says so, too, where it lists a size
    assert kind in {v.kind for v in check_legal(s.func, func, {"N": 5})}
