"""Loop functions of many kinds, by name, for tests that compare two views of the same thing."""

from dataclasses import replace

from tilewright.ir import (
    F32,
    I32,
    PARALLEL,
    SERIAL,
    Access,
    Alloc,
    Block,
    Buffer,
    Compare,
    Const,
    For,
    If,
    IndexMap,
    OfIndex,
    Program,
    Select,
    Stage,
    Store,
    buffer,
    eq0,
    ge0,
    imax,
    imin,
    index,
    mod,
    seq,
    store,
    to_function,
    var,
)
from unit.poly.builders import add, block, chain, i, it, j, k, ld, matmul, mul, nest, with_body, x, zero

MM, CHAIN = matmul(), chain()


def triangular():
    """x = L^-1 b by rows: s(i, j) accumulates over j < i, then the row is finished."""
    inner = Block("U", "U", (it("i", 6), it("j", 6, "ord")), (i, j),
                  store("X", (i,), add(ld("X", i), mul(ld("L", i, j), ld("X", j)))))  # fmt: skip
    first = Block("S", "S", (it("i", 6),), (i,), store("X", (i,), ld("b", i)))
    last = Block("D", "D", (it("i", 6),), (i,), store("X", (i,), mul(ld("X", i), ld("L", i, i))))
    body = For("i", index(0), index(6), seq(first, For("j", index(0), i, inner), last))
    p = Program(
        "solve", (), (buffer("L", (6, 6), F32), buffer("b", (6,), F32)), (buffer("X", (6,), F32),), (), ()
    )
    return with_body(p, body)


def rolled():
    b = Buffer("B", (index(8),), F32, "local", IndexMap(("d",), (mod(var("d"), 3),), (index(3),)))
    later = If((ge0(x - 2),), block(CHAIN, "C", (x - 2,)))
    return with_body(CHAIN, Alloc(b, nest([("x", 0, 8)], seq(block(CHAIN, "B", (x,)), later))))


def overlapped(kind=SERIAL):
    xo, xi, p = var("xo"), var("xi"), var("p")
    window = IndexMap(("d",), (var("d") - xo * 2,), (index(4),))
    body = seq(
        nest([("p", 0, 4)], block(CHAIN, "B", (xo * 2 + p,))),
        nest([("xi", 0, 2)], block(CHAIN, "C", (xo * 2 + xi,))),
    )
    local = Buffer("B", (index(8),), F32, "local", window)
    return with_body(CHAIN, nest([("xo", 0, 3, kind)], Alloc(local, body)))


def guarded():
    b = block(MM, "C", (var("io") * 3 + var("ii"), j, k))
    b = replace(b, where=(ge0(index(3) - var("io") * 3 - var("ii")),))
    return with_body(MM, nest([("k", 0, 3), ("io", 0, 2), ("ii", 0, 3), ("j", 0, 5)], b))


def fused_loop():
    """One loop over both dimensions: division and remainder in the binding."""
    f = var("f")
    return with_body(MM, nest([("f", 0, 20), ("k", 0, 3)], block(MM, "C", (f // 5, f % 5, k))))


def strided():
    """A step, a minimum and a maximum in loop bounds, and an else branch."""
    xo, xi = var("xo"), var("xi")
    st = Stage("D", (it("x", 9),), store("D", (x,), ld("A", x)))
    p = Program("strided", (), (buffer("A", (9,), F32),), (buffer("D", (9,), F32),), (), (st,))
    inner = For("xi", imax(xo, 0), imin(xo + 4, 9), If((eq0(xi % 2),), block(p, "D", (xi,)),
                replace(block(p, "D", (xi,)), name="D_odd")))  # fmt: skip
    return with_body(p, For("xo", index(0), index(9), inner, SERIAL, 4))


def padded():
    inside = Compare("lt", OfIndex(x, I32), Const(4, I32))
    copy = Block("P", "P", (it("x", 6),), (x,), store("P", (x,), Select(inside, ld("A", x), zero())))
    use = Block("C", "C", (it("x", 6),), (var("x2"),), store("C", (x,), mul(ld("P", x), ld("P", x))))
    p = Program("pad", (), (buffer("A", (4,), F32),), (buffer("C", (6,), F32),), (), ())
    return with_body(
        p, Alloc(buffer("P", (6,), F32), seq(nest([("x", 0, 6)], copy), nest([("x2", 0, 6)], use)))
    )


def scan():
    y = Stage("D", (it("x", 6, "ord"),), store("D", (x,), add(ld("D", imax(x - 1, 0)), ld("A", x))))
    p = Program("scan", (), (buffer("A", (6,), F32),), (buffer("D", (6,), F32),), (), (y,))
    return to_function(p)


def several_writes():
    """A statement that writes two buffers, the one at two places, and a reader of all of them."""
    made = Store((Access("S", (x,), ld("A", x)), Access("T", (x,), mul(ld("A", x), ld("A", x))),
                  Access("S", (x + 3,), ld("T", x))))  # fmt: skip
    stages = (
        Stage("T", (it("x", 3),), store("T", (x,), zero())),
        Stage("S", (it("x", 3),), made),
        Stage("D", (it("x", 5),), store("D", (x,), add(mul(ld("S", x), ld("S", x + 1)), ld("T", x // 2)))),
    )
    temps = buffer("S", (6,), F32), buffer("T", (3,), F32)
    return to_function(
        Program("several", (), (buffer("A", (3,), F32),), (buffer("D", (5,), F32),), temps, stages)
    )


def ring():
    """Places backwards around a ring, among some that were written before, and some that never are."""
    y, z = var("y"), var("z")
    around = Block("S", "S", (it("y", 4),), (y,), store("T", (mod(y * -2, 8),), zero()))
    use = Block("C", "C", (it("z", 10),), (z,), store("C", (z,), mul(ld("T", z), ld("A", z))))
    first = Block("P", "P", (it("x", 6),), (x,), store("A", (x + 1,), ld("A", x + 4)))
    back = Block("Q", "Q", (it("y", 4),), (y,), store("A", (mod(y * -2, 8),), zero()))
    loops = nest([("x", 0, 6)], first), nest([("y", 0, 4)], seq(around, back)), nest([("z", 0, 10)], use)
    p = Program(
        "ring", (), (buffer("A", (10,), F32), buffer("T", (10,), F32)), (buffer("C", (10,), F32),), (), ()
    )
    return with_body(p, seq(*loops))


CASES = {
    "matmul": lambda: to_function(MM),
    "chain": lambda: to_function(CHAIN),
    "parallel rows": lambda: with_body(
        MM, nest([("i", 0, 4, PARALLEL), ("k", 0, 3), ("j", 0, 5)], block(MM, "C", (i, j, k)))
    ),
    "triangular": triangular,
    "rolled": rolled,
    "overlapped": overlapped,
    "guarded": guarded,
    "fused loop": fused_loop,
    "strided": strided,
    "padded": padded,
    "scan": scan,
    "several writes": several_writes,
    "ring": ring,
}
