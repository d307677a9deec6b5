"""Hand-made programs and schedules for the tests of poly/."""

from dataclasses import replace

from tilewright.ir import (
    F32,
    SERIAL,
    Binary,
    Block,
    Const,
    For,
    Iter,
    Load,
    Program,
    Stage,
    buffer,
    index,
    store,
    to_function,
    var,
)
from tilewright.poly import check_legal


def ld(name, *idx):
    return Load(name, tuple(index(i) for i in idx), F32)


def add(a, b):
    return Binary("add", a, b)


def mul(a, b):
    return Binary("mul", a, b)


def zero():
    return Const(0.0, F32)


def it(name, hi, kind="par", lo=0):
    return Iter(name, index(lo), index(hi), kind)


V = {n: var(n) for n in "ijkxyrst"}
i, j, k, x, y, r, s, t = (V[n] for n in "ijkxyrst")


def matmul(M=4, N=5, K=3):
    body = store("C", (i, j), add(ld("C", i, j), mul(ld("A", i, k), ld("B", k, j))))
    stage = Stage("C", (it("i", M), it("j", N), it("k", K, "red")), body, store("C", (i, j), zero()))
    return Program(
        "matmul",
        (),
        (buffer("A", (M, K), F32), buffer("B", (K, N), F32)),
        (buffer("C", (M, N), F32),),
        (),
        (stage,),
    )


def block(program, name, bind, **changes):
    """The block of a stage with its iterators bound to the given indices."""
    st = program.stage(name)
    b = Block(name, name, st.iters, tuple(index(v) for v in bind), st.body, st.init)
    return replace(b, **changes)


def nest(loops, body):
    """Loops given as (name, lo, hi) or (name, lo, hi, kind), outermost first."""
    for name, lo, hi, *kind in reversed(loops):
        body = For(name, index(lo), index(hi), body, kind[0] if kind else SERIAL)
    return body


def with_body(program, body):
    return to_function(program).with_body(body)


def chain(H=6, radius=1):
    """B[x] = A[x]*A[x] on H + 2*radius points; C[x] = sum of B[x+d] for d in 0..2*radius, written out."""
    n = H + 2 * radius
    total = ld("B", x)
    for d in range(1, 2 * radius + 1):
        total = add(total, ld("B", x + d))
    b = Stage("B", (it("x", n),), store("B", (x,), mul(ld("A", x), ld("A", x))))
    c = Stage("C", (it("x", H),), store("C", (x,), total))
    return Program(
        "chain", (), (buffer("A", (n,), F32),), (buffer("C", (H,), F32),), (buffer("B", (n,), F32),), (b, c)
    )


def kinds(before, after, params=None):
    """What the list mode finds; the isl mode must come to the same judgement."""
    found = sorted({v.kind for v in check_legal(before, after, params)})
    symbolic = sorted({v.kind for v in check_legal(before, after, params, mode="isl")})
    assert bool(symbolic) == bool(found), (found, symbolic)
    return found


def judged(program, body):
    return kinds(to_function(program), with_body(program, body))
