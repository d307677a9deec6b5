"""Forced equality: which loops conflicting accesses leave free of dependences."""

import pytest

from tilewright import lang
from tilewright.ir import (
    F32,
    Block,
    Const,
    For,
    IndexMap,
    Iter,
    Load,
    buffer,
    floordiv,
    index,
    mod,
    parse_function,
    store,
    var,
)
from tilewright.schedule import Schedule
from tilewright.schedule.carried import conflicts, folded

LOOPS = (("o", 5), ("i", 8), ("k", 3))


def _nest(*blocks, loops=LOOPS):
    """A nest of serial loops around blocks in sequence."""
    from_inside = blocks[0]
    for name, n in reversed(loops):
        from_inside = For(name, index(0), index(n), from_inside)
    return from_inside


def _block(name, write, read=None, kinds=("ord", "ord", "ord")):
    """A block over the loops themselves, with every iterator ordered: nothing is said by kinds."""
    iters = tuple(Iter(v, index(0), index(n), kind) for (v, n), kind in zip(LOOPS, kinds, strict=True))
    value = Const(0.0, F32) if read is None else Load("A", read, F32)
    return Block(name, name, iters, tuple(var(v) for v, _ in LOOPS), store("A", write, value))


def _carrying(block, a=None, **options):
    """The loops that carry a conflict."""
    a = a or buffer("A", (64, 64), F32)
    found = conflicts(_nest(block), {}, {"A": a}, frozenset(v for v, _ in LOOPS), **options)
    return frozenset().union(*(c.loops for c in found))


o, i, k = var("o"), var("i"), var("k")
ZERO = index(0)


@pytest.mark.parametrize(
    "indices, carrying",
    [
        ((8 * o + i, k), ""),
        ((o, i), "k"),
        ((8 * o + i, ZERO), "k"),
        ((7 * o + i, k), "oi"),  # tiles overlap by one
        ((9 * o + i, k), ""),
        ((o + i, i), "k"),  # one equation after the other
        ((o + i, k), "oi"),
        ((24 * o + 3 * i + k, ZERO), ""),
        ((floordiv(8 * o + i, 5), mod(8 * o + i, 5)), "k"),
        ((floordiv(8 * o + i, 5), mod(8 * o + i, 5) + 5 * k), ""),
        ((floordiv(8 * o + i, 5), k), "oi"),
        ((floordiv(8 * o + i, 6), 3 * floordiv(mod(8 * o + i, 6), 3) + mod(8 * o + i, 3)), "k"),
        # places of a ring less than its length apart: equal quotients, though their block may be another one
        ((5 * o + mod(3 * i + k, 5), mod(4 * o + floordiv(3 * i + k, 5), 16)), ""),
        ((5 * o + mod(3 * i + k, 5), mod(4 * o + floordiv(3 * i + k, 5), 4)), "ik"),
        ((ZERO, ZERO), "oik"),
    ],
)
def test_writes_of_one_block(indices, carrying):
    assert _carrying(_block("S", indices)) == frozenset(carrying)


def test_a_read_elsewhere():
    assert _carrying(_block("S", (8 * o + i, k), (8 * o + i, k))) == frozenset()
    assert _carrying(_block("S", (8 * o + i, k), (8 * o + i - 1, k))) == {"o", "i"}
    assert _carrying(_block("S", (o, 3 * i + k), (o, 3 * i + k + 1))) == {"i", "k"}


def test_parallel_iterators_are_equal_where_one_stage_writes():
    block = _block("S", (floordiv(8 * o + i, 7), ZERO), kinds=("par", "par", "red"))
    assert _carrying(block) == {"k"}


def test_kinds_say_what_may_be_reordered():
    block = _block("S", (o, ZERO), (o, ZERO), kinds=("par", "red", "red"))
    assert _carrying(block) == {"i", "k"}
    assert _carrying(block, reorderable=True) == frozenset()


def test_a_rolled_buffer_is_compared_by_places():
    rolled = buffer("A", (40, 3), F32).with_(
        layout=IndexMap(("r", "c"), (mod(var("r"), 2), var("c")), (index(2), index(3)))
    )
    assert folded(rolled)
    block = _block("S", (8 * o + i, k), kinds=("par", "par", "par"))
    assert _carrying(block, rolled, reorderable=True) == {"o", "i"}


def test_a_blocked_layout_is_one_to_one():
    r = var("r")
    blocked = buffer("A", (40, 3), F32).with_(
        layout=IndexMap(("r", "c"), (floordiv(r, 16), var("c"), mod(r, 16)), (index(3), index(3), index(16)))
    )
    assert not folded(blocked)
    assert _carrying(_block("S", (8 * o + i, k)), blocked) == frozenset()


def test_ignored_scopes_and_unknown_buffers_do_not_conflict():
    shared = buffer("A", (64, 64), F32, "shared")
    block = _block("S", (ZERO, ZERO))
    assert _carrying(block, shared) == {"o", "i", "k"}
    assert _carrying(block, shared, ignore_scopes=frozenset({"shared"})) == frozenset()


@pytest.mark.parametrize(
    "shape",
    [(2, 32, 28, 28), (1, 2, 4, 5, 4), (7, 8, 14, 28), (3, 96, 56, 56), (5, 4, 20, 197), (144, 16, 49)],
    ids=str,
)
@pytest.mark.parametrize("threads", [64, 128, 512])
def test_all_loops_of_a_result_are_shared_among_threads(shape, threads):
    x = lang.placeholder(shape, name="X")
    y = lang.compute(shape, lambda *at: x[at] * 2.0, name="Y")
    s = Schedule(lang.program([x], [y]))
    first, *rest = s.loops("Y")
    for n, loop in enumerate(rest):
        s = s.fuse(first, loop, names=[f"fused{n}"])
        first = f"fused{n}"
    s = s.split(first, threads, names=["b", "t"]).bind("b", "block.x").bind("t", "thread.x")
    assert s.loops("Y") == ("b", "t")


def test_remainders_of_quotients_that_were_reduced():
    """Of ``x = 64 b + t`` the digit ``x//4 % 5`` is kept as ``(b + t//4) % 5``, as 16 is 1 modulo 5."""
    x = 64 * var("b") + var("t")
    digits = (floordiv(x, 20), mod(floordiv(x, 4), 5), mod(x, 4))
    assert "b + t//4" in str(digits[1])

    def carrying(write):
        iters = (Iter("b", index(0), index(5), "ord"), Iter("t", index(0), index(64), "ord"))
        block = Block("s", "s", iters, (var("b"), var("t")), store("A", write, Const(0.0, F32)))
        nest = For("b", index(0), index(5), For("t", index(0), index(64), block))
        found = conflicts(nest, {}, {"A": buffer("A", (64, 8, 8), F32)}, frozenset(("b", "t")))
        return frozenset().union(*(c.loops for c in found))

    assert not carrying(digits)
    assert carrying((floordiv(x, 20), mod(floordiv(x, 4), 4), mod(x, 4))) == {"b", "t"}


@pytest.mark.parametrize(("limit", "carried"), [("3", False), ("int(D[0])", True)])
def test_what_data_say_is_no_fact(limit, carried):
    """Rows overlap but for one element of each, which is in one place or moves as the data change."""
    func = parse_function(f"""
function("f", outputs=[A])
X = f32[16]
D = i64[1]
A = f32[24]
for o in range(2):
    for i in range(16):
        with block("A"):
            o = ord(0, 2, o)
            i = ord(0, 16, i)
            where(i - {limit} >= 0, {limit} - i >= 0)
            A[8*o + i] = X[i]
""")
    found = conflicts(func.body, {}, {b.name: b for b in func.buffers}, frozenset({"o"}))
    assert any("o" in c.loops for c in found) == carried
