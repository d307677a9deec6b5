"""What a value is, in both modes: writes of one statement apart, copies and computations, whole sums."""

from dataclasses import replace

import pytest

from tilewright.ir import (
    F32,
    I32,
    Access,
    Alloc,
    Block,
    Compare,
    Const,
    Load,
    OfIndex,
    Opaque,
    Program,
    Select,
    Stage,
    Store,
    buffer,
    ge0,
    imax,
    imin,
    index,
    seq,
    store,
    var,
)
from unit.poly.builders import add, block, i, it, j, judged, k, ld, mul, nest, x, zero

x2 = var("x2")
POINTS = (it("i", 2),)
SUMS = (it("i", 2), it("k", 3, "red"))
A = buffer("A", (2, 3), F32)
ROW = buffer("A", (2,), F32)


def c(value):
    return Const(value, F32)


def stores(*writes):
    return Store(tuple(Access(name, tuple(index(n) for n in at), value) for name, at, value in writes))


def row(name, extent=2):
    return buffer(name, (extent,), F32)


def program(inputs, outputs, stages, temps=()):
    return Program("p", (), tuple(inputs), tuple(map(row, outputs)), tuple(map(row, temps)), tuple(stages))


def pair(first, second):
    """A sum and a product of the rows of A by one statement, and what they start from."""
    a = ld("A", i, k)
    body = stores(("S", (i,), add(ld("S", i), a)), ("T", (i,), mul(ld("T", i), a)))
    return body, stores(("S", (i,), first), ("T", (i,), second))


def started(first, second):
    body, init = pair(first, second)
    return nest([("i", 0, 2), ("k", 0, 3)], Block("S", "S", SUMS, (i, k), body, init))


def started_before(first, second):
    body, init = pair(first, second)
    update = nest([("k", 0, 3)], Block("S", "S", SUMS, (i, k), body))
    return nest([("i", 0, 2)], seq(Block("S_init", "S", POINTS, (i,), init), update))


@pytest.mark.parametrize("scheduled", [started, started_before])
def test_two_writes_start_from_what_they_did(scheduled):
    p = program([A], "ST", [Stage("S", SUMS, *pair(c(0.0), c(1.0)))])
    assert judged(p, scheduled(c(0.0), c(1.0))) == []
    assert judged(p, scheduled(c(1.0), c(0.0))) == ["flow"]
    assert judged(p, scheduled(c(0.0), c(0.0))) == ["flow"]


def test_a_constant_beside_what_is_read():
    """An init with two writes of which only one is constant."""
    p = program([A, row("b")], "ST", [Stage("S", SUMS, *pair(ld("b", i), c(0.0)))])
    assert judged(p, started(ld("b", i), c(0.0))) == []
    assert judged(p, started(c(0.0), ld("b", i))) == ["flow"]
    assert judged(p, started(ld("b", i), c(1.0))) == ["flow"]


def test_a_constant_result_beside_another():
    def two(first, second):
        return stores(("S", (i,), first), ("T", (i,), second))

    p = program([ROW], "ST", [Stage("S", POINTS, two(ld("A", i), c(0.0)))])

    def judge(first, second):
        return judged(p, nest([("i", 0, 2)], Block("S", "S", POINTS, (i,), two(first, second))))

    assert judge(ld("A", i), c(0.0)) == []
    assert judge(c(0.0), ld("A", i)) == ["final"]
    assert judge(ld("A", i), c(1.0)) == ["final"]


#: The sum and the product of two elements, by one statement.
TWO = Stage("S", POINTS, stores(("S", (i,), add(ld("A", i, 0), ld("A", i, 1))),
                                ("T", (i,), mul(ld("A", i, 0), ld("A", i, 1)))))  # fmt: skip


def used(s, t):
    """D = s + t * t"""
    return store("D", (i,), add(ld(s, i), mul(ld(t, i), ld(t, i))))


@pytest.mark.parametrize("made", [TWO, Stage("S", SUMS, *pair(c(0.0), c(1.0)))], ids=["points", "sums"])
def test_readers_get_the_result_that_they_got(made):
    p = program([A], "D", [made, Stage("D", POINTS, used("S", "T"))], "ST")
    loops = [("i", 0, 2), ("k", 0, 3)][: len(made.iters)]

    def judge(s, t):
        reader = nest([("x2", 0, 2)], Block("D", "D", POINTS, (x2,), used(s, t)))
        first = nest(loops, block(p, "S", (i, k)[: len(loops)]))
        return judged(p, Alloc(p.temps[0], Alloc(p.temps[1], seq(first, reader))))

    assert judge("S", "T") == []
    assert judge("T", "S") == ["flow"]


def test_copies_by_one_statement():
    """Results written back, and inputs staged, two at a time."""
    p = program([A], "ST", [TWO])
    q = program([ROW, row("B")], "D", [Stage("D", POINTS, used("A", "B"))])

    def both(first, second):
        return Alloc(row("P"), Alloc(row("Q"), seq(nest([("i", 0, 2)], first), nest([("x2", 0, 2)], second))))

    def back(s, t):
        values = [w.value for w in TWO.body.writes]
        first = Block("S", "S", POINTS, (i,), stores(("P", (i,), values[0]), ("Q", (i,), values[1])))
        copy = stores(("S", (i,), ld(s, i)), ("T", (i,), ld(t, i)))
        return both(first, Block("back", "back", POINTS, (x2,), copy))

    def staged(a, b):
        copy = Block("copy", "copy", POINTS, (i,), stores(("P", (i,), ld(a, i)), ("Q", (i,), ld(b, i))))
        return both(copy, Block("D", "D", POINTS, (x2,), used("P", "Q")))

    assert judged(p, back("P", "Q")) == []
    assert judged(p, back("Q", "P")) == ["final"]
    assert judged(q, staged("A", "B")) == []
    assert judged(q, staged("B", "A")) == ["flow"]


def test_two_writes_of_one_buffer():
    def halves(first, second):
        return stores(("S", (i,), ld("A", i, first)), ("S", (i + 2,), ld("A", i, second)))

    p = replace(program([A], (), [Stage("S", POINTS, halves(0, 1))]), outputs=(row("S", 4),))
    turned = stores(("S", (i + 2,), ld("A", i, 0)), ("S", (i,), ld("A", i, 1)))
    assert judged(p, nest([("i", 0, 2)], block(p, "S", (i,)))) == []
    assert judged(p, nest([("i", 0, 2)], Block("S", "S", POINTS, (i,), turned))) == ["final"]


SQUARE = Stage("D", POINTS, store("D", (i,), mul(ld("A", i), ld("A", i))))
SQUARES = program([ROW], "D", [SQUARE])


def test_only_copies_are_looked_through_where_the_expression_is_the_same():
    def between(value):
        made = Block("P", "P", POINTS, (i,), store("P", (i,), value))
        reader = Block("D", "D", POINTS, (x2,), store("D", (i,), mul(ld("P", i), ld("P", i))))
        return Alloc(row("P"), seq(nest([("i", 0, 2)], made), nest([("x2", 0, 2)], reader)))

    assert judged(SQUARES, between(ld("A", i))) == []
    assert judged(SQUARES, between(add(ld("A", i), ld("A", i)))) == ["flow"]


def test_an_output_is_computed_by_the_stage_that_did():
    other = Block("E", "E", POINTS, (i,), store("D", (i,), add(ld("A", i), ld("A", i))))
    assert judged(SQUARES, nest([("i", 0, 2)], other)) == ["final"]


def test_a_gather_of_one_side_stands_for_all_that_it_reads():
    indices = buffer("idx", (2,), I32)
    at = imax(index(0), imin(index(1), index(Opaque(Load("idx", (i,), I32)))))
    picked = Load("A", (at,), F32)
    p = program([ROW, indices], "D", [Stage("D", POINTS, store("D", (i,), mul(picked, ld("A", i))))])

    def staged(value):
        copy = Block("P", "P", POINTS, (i,), store("P", (i,), value))
        reader = Block("D", "D", POINTS, (x2,), store("D", (i,), mul(ld("P", i), ld("A", i))))
        return Alloc(row("P"), seq(nest([("i", 0, 2)], copy), nest([("x2", 0, 2)], reader)))

    assert judged(p, staged(picked)) == []
    assert judged(p, staged(ld("A", i))) == ["flow"]


def test_elements_that_data_chooses_are_told_apart_by_what_they_held():
    """A scatter into a copy of its output, which is written back straight or the other way round."""
    indices = buffer("idx", (3,), I32)
    at = imax(index(0), imin(index(3), index(Opaque(Load("idx", (x,), I32)))))
    scatter = Stage("D", (it("x", 3, "ord"),), store("D", (at,), ld("A", x)))
    p = replace(program([row("A", 3), indices], (), [scatter]), outputs=(row("D", 4),))

    def written_back(element):
        first = Block("P", "P", (it("x", 4),), (var("x1"),), store("P", (x,), ld("D", x)))
        values = replace(block(p, "D", (x2,)), body=store("P", (at,), ld("A", x)))
        last = Block("back", "back", (it("x", 4),), (var("x3"),), store("D", (x,), ld("P", element)))
        nests = nest([("x1", 0, 4)], first), nest([("x2", 0, 3)], values), nest([("x3", 0, 4)], last)
        return Alloc(row("P", 4), seq(*nests))

    assert judged(p, written_back(x)) == []
    assert judged(p, written_back(index(3) - x)) == ["final"]


def test_accumulators_under_conditions():
    """A read that not all instances execute is no accumulator; of two loads one is as good as the other."""
    first = Compare("le", OfIndex(k, I32), Const(0, I32))
    total = add(ld("S", i), ld("A", i, k))

    def judge(value, init, at=k):
        stage = Stage("S", SUMS, store("S", (i,), value), store("S", (i,), zero()))
        p = program([A], "S", [stage])
        b = Block("S", "S", SUMS, (i, at), stage.body, stage.init if init else None)
        return judged(p, nest([("k", 0, 3), ("i", 0, 2)], b))

    started_by_itself = Select(first, ld("A", i, k), total)
    assert judge(started_by_itself, True) == []
    assert judge(started_by_itself, False) == []
    assert judge(started_by_itself, True, index(2) - k) == ["final", "flow"]
    of_two_loads = Select(first, total, ld("S", i))
    assert judge(of_two_loads, True) == []
    assert judge(of_two_loads, False) == ["flow"]


def test_a_write_that_accumulates_beside_one_that_does_not():
    body = stores(("S", (i,), add(ld("S", i), ld("A", i, k))), ("T", (i, k), ld("S", i)))
    p = program([A], "S", [Stage("S", SUMS, body, store("S", (i,), zero()))])
    p = replace(p, outputs=(*p.outputs, buffer("T", (2, 3), F32)))
    b = block(p, "S", (i, k))
    assert judged(p, nest([("k", 0, 3), ("i", 0, 2)], b)) == []
    assert judged(p, nest([("i", 0, 2), ("k", 0, 2)], b)) == ["final", "missing"]


def test_sums_that_nothing_reads_may_stay_unfinished():
    total = Stage("S", (it("i", 3), it("k", 2, "red")), store("S", (i,), add(ld("S", i), ld("A", i, k))),
                  store("S", (i,), zero()))  # fmt: skip
    p = program([buffer("A", (3, 2), F32)], "D", [total, Stage("D", POINTS, store("D", (i,), ld("S", i)))])
    p = replace(p, temps=(row("S", 3),))

    def summed(last):
        b = replace(block(p, "S", (i, k)), where=(ge0(index(last) - i - k),))
        reader = nest([("x", 0, 2)], block(p, "D", (x,)))
        return Alloc(p.temps[0], seq(nest([("i", 0, 3), ("k", 0, 2)], b), reader))

    assert judged(p, summed(2)) == []
    assert judged(p, summed(1)) == ["flow"]


def test_a_stage_that_never_runs_is_looked_through():
    """A block of it is left over without instances, where its computation went into its reader."""
    square = Stage("B", POINTS, store("B", (i,), mul(ld("A", i), ld("A", i))))
    p = program([ROW], "D", [square, Stage("D", POINTS, store("D", (i,), add(ld("B", i), ld("B", i))))], "B")
    value = mul(ld("A", i), ld("A", i))
    inlined = Block("D", "D", POINTS, (x2,), store("D", (i,), add(value, value)))
    left = nest([("j", 0, 0)], block(p, "B", (j,)))
    assert judged(p, Alloc(p.temps[0], seq(left, nest([("x2", 0, 2)], inlined)))) == []
