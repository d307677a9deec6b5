"""The verifier: every invariant has a function that breaks it, written as text."""

import re
from dataclasses import replace

import pytest

from tilewright.ir import (
    DECOMPOSED,
    LOWERED,
    SCHEDULED,
    ZERO,
    Level,
    Param,
    parse_function,
    parse_program,
    read_program,
    to_function,
    verify,
    verify_program,
)
from tilewright.support import ParseError, VerificationError

GOOD = """
function("f", outputs=[C])
n = param(1, 100)
A = f32[n, 16]
C = f32[n]
for io in parallel((n + 3)//4):
    acc = alloc(f32[4], scope="register", layout=index_map([d], [d - 4*io], [4]))
    for ii in unroll(4):
        for k in range(16):
            with block("sum", stage="C"):
                i = par(0, n, 4*io + ii)
                k = red(0, 16, k)
                where(n - 4*io - ii - 1 >= 0)
                with init:
                    acc[i] = f32(0.0)
                acc[i] = acc[i] + A[i, k]
    for iv in vector(4):
        with block("write", stage="C"):
            i = par(0, n, 4*io + iv)
            where(n - 4*io - iv - 1 >= 0)
            C[i] = acc[i]
"""


def changed(old, new):
    assert old in GOOD, old
    return parse_function(GOOD.replace(old, new, 1))


def test_a_good_function_passes():
    verify(parse_function(GOOD))
    verify(parse_function(GOOD), SCHEDULED)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("outputs=[C]", "outputs=[D]", "output 'D' is no argument"),
        ("outputs=[C]", "outputs=[C], inouts=[A]", "the in-out argument 'A' is not among the outputs"),
        ("outputs=[C]", "outputs=[C], inouts=[C, C]", "an in-out argument is listed twice"),
        ("outputs=[C]", "outputs=[C, C]", "an output is listed twice"),
        ("outputs=[C]", "outputs=[]", "block 'write': 'C' is written, but is an argument"),
        ("param(1, 100)", "param(5, 4)", "parameter 'n' has no value: [5, 4]"),
        ("A = f32[n, 16]", "A = f32[n, 16]\nA = f32[2]", "two buffers are called 'A'"),
        ("A = f32[n, 16]", "A = f32[n, i]", "buffer 'A': extent i mentions the variable 'i'"),
        ("A = f32[n, 16]", "A = buffer(f32[n, 16], align=48)", "alignment 48 is no power of two"),
        ("A = f32[n, 16]", "A = buffer(f32[n, 16], halo=[(1, 1)])", "one pair for each of 2 dimensions"),
        ("A = f32[n, 16]", "A = buffer(f32[n, 16], halo=[(1, 1), (-1, 0)])", "is negative"),
        ("A = f32[n, 16]", "A = f32[n, -16]", "extent -16 is negative"),
        ("index_map([d], [d - 4*io], [4])", "index_map([d, e], [d], [4])", "one dimension for each of 1"),
        ("index_map([d], [d - 4*io], [4])", "index_map([d], [d], [4, 1])", "has 1 indices and 2 extents"),
        (
            "[d - 4*io]",
            "[d - 4*ii]",
            "layout index d - 4*ii mentions the variable 'ii', which is not in scope",
        ),
        ("acc = alloc", "A = alloc(f32[2])\n    acc = alloc", "two buffers are called 'A'"),
        (
            "parallel((n + 3)//4)",
            "parallel((q + 3)//4)",
            "loop 'io': upper bound q + 3 mentions the variable 'q'",
        ),
        ("unroll(4)", 'thread("", 4)', "only a thread loop has an axis, and it must have one"),
        ("unroll(4)", "unroll(4, step=0)", "loop 'ii': step 0 is not positive"),
        (
            "range(16)",
            'range(16, hints={"nontemporal": "acc,A"})',
            "loop 'k': 'A' is to be stored to past the caches, but is read only",
        ),
        ("range(16)", 'range(16, hints={"unroll": "B"})', "loop 'k': the hint 'unroll' takes a number"),
        ("for iv in vector(4)", "for ii in vector(4)", "the name 'ii' of a loop is taken"),
        ("4*io + iv)\n", "4*ii + iv)\n", "block 'write': binding 4*ii + iv mentions the variable 'ii'"),
        ('block("write"', 'block("sum"', "the name 'sum' of a block is taken"),
        ("k = red(0, 16, k)", "i = red(0, 16, k)", "two iterators are called 'i'"),
        ("k = red(0, 16, k)", "k = red(0, m, k)", "upper bound of iterator k: m mentions the variable 'm'"),
        ("C[i] = acc[i]", "C[iv] = acc[i]", "mentions the variable 'iv', which is not in scope"),
        ("C[i] = acc[i]", "C[i, 0] = acc[i]", "store to 'C' with 2 indices; it has 1 dimensions"),
        ("C[i] = acc[i]", "C[i] = load(f64, acc, i)", "of type f64 from a buffer of type f32"),
        ("C[i] = acc[i]", "C[i] = i32(1)", "a value of type i32 is stored to 'C' of type f32"),
        ("C[i] = acc[i]", "C[i] = load(f32, B, i)", "buffer 'B' is not in scope"),
        (
            "C[i] = acc[i]",
            "A[i, 0] = acc[i]",
            "'A' is written, but is an argument that is not among the outputs",
        ),
        ("acc[i] + A[i, k]", "acc[i] + f64(1.0)", "operands of add have types f32 and f64"),
        ("acc[i] + A[i, k]", "acc[i] & A[i, k]", "binary operation and on f32"),
        ("acc[i] + A[i, k]", "~acc[i]", "unary operation not on f32"),
        ("acc[i] + A[i, k]", "select(acc[i], A[i, k], A[i, k])", "select on a condition of type f32"),
        ("acc[i] + A[i, k]", "select(bool(True), A[i, k], f16(1.0))", "select between f32 and f16"),
        ("acc[i] + A[i, k]", 'cast(f64(1.0), f32, "bits")', "the bits of a f64 do not fit a f32"),
        ("acc[i] + A[i, k]", "cast(exp(i32(1)), f32)", "exp of i32; it takes floats"),
        ("acc[i] + A[i, k]", "pow(acc[i], f64(2.0))", "pow of f32, f64; it takes floats of one type"),
        ("acc[i] + A[i, k]", "cast(A[i, k] < f64(1.0), f32)", "comparison of f32 with f64"),
        ("acc[i] + A[i, k]", "cast(bool(1), f32)", "the bool literal bool(1) is no Python bool"),
        ("acc[i] + A[i, k]", "cast(i8(200), f32)", "the literal i8(200) is out of range"),
        ("acc[i] + A[i, k]", "cast(i8(1.5), f32)", "holds a float"),
        ("A[i, k]\n", "A[i, int(A[i, 0])]\n", "depends on data of type f32, which is no integer"),
        ("where(n - 4*io - iv - 1 >= 0)", "where(holds(f32(1.0)))", "has the type f32, not bool"),
        (
            "for iv in vector(4):",
            'for iv in vector(4):\n        barrier("x")',
            "a barrier inside of the vector loop 'iv'",
        ),
        (
            "where(n - 4*io - ii - 1 >= 0)",
            "where(ii >= 0)",
            "iterator 'i' is bound to ii + 4*io = 3 outside of its domain [0, 1) where n=1, io=0, ii=3",
        ),
        (
            "for k in range(16)",
            "for k in range(17)",
            "iterator 'k' is bound to k = 16 outside of its domain [0, 16)",
        ),
        ("for k in range(16)", "for k in range(-1, 16)", "iterator 'k' is bound to k = -1 outside"),
    ],
)
def test_broken_invariants(old, new, message):
    with pytest.raises(VerificationError, match=re.escape(message)):
        verify(changed(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("par(0, n, 4*io + iv)", "par(0, n, 4*io)", None),
        ("vector(4)", "vector(1, 4)", "no instance reaches the start of iterator 'i' over [0, n)"),
        (
            "i = par(0, n, 4*io + iv)",
            "i = par(0, 4*n + 9, 4*io + iv)",
            "no instance reaches the end of iterator 'i'",
        ),
    ],
)
def test_coverage_of_outputs(old, new, message):
    f = parse_function(GOOD.replace("C[i] = acc[i]", "C[i] = f32(0.0)").replace(old, new))
    if message is None:
        verify(f)
        return
    with pytest.raises(VerificationError, match=re.escape(f"stage 'C': {message}")):
        verify(f)
    # what is not written keeps what it was
    verify(replace(f, inouts=("C",)))


def test_a_foreign_parameter_is_found():
    f = parse_function(GOOD)
    with pytest.raises(VerificationError, match="mentions the parameter 'n', which is not declared so"):
        verify(replace(f, params=(Param("n", 1, 99),)))


def test_a_binding_for_each_iterator():
    loop = parse_function('function("f", outputs=[y])\ny = f32[1]\nwith block("b"):\n    y[0] = f32(0.0)')
    with pytest.raises(VerificationError, match="0 iterators are bound to 1 indices"):
        verify(loop.with_body(replace(loop.body, bind=(ZERO,))))


def test_levels():
    f = parse_function(GOOD)
    with pytest.raises(VerificationError, match="block 'sum': an init at the level 'decomposed'"):
        verify(f, DECOMPOSED)
    with pytest.raises(VerificationError, match="block 'sum': a block at the level 'lowered'"):
        verify(f, LOWERED)
    bare = parse_function('function("f", outputs=[y])\ny = f32[4]\nfor i in range(4):\n    y[i] = f32(0.0)')
    verify(bare, LOWERED)
    with pytest.raises(VerificationError, match="stands outside of blocks at the level 'scheduled'"):
        verify(bare, SCHEDULED)
    no_vectors = Level("scalar", kinds=frozenset(("serial",)))
    verify(bare, no_vectors)
    with pytest.raises(
        VerificationError, match="loop 'io': the kind parallel does not occur at the level 'scalar'"
    ):
        verify(f, no_vectors)


PROGRAM = """
program("p")
n = param(1, 100)
x = input(f32[n])
y = output(f32[])
t = temp(f32[n])
with stage("square"):
    i = par(0, n)
    t[i] = x[i] * x[i]
with stage("sum"):
    k = red(0, n)
    with init:
        y[()] = f32(0.0)
    y[()] = y[()] + t[k]
""".replace("f32[]", "f32[()]")


def test_a_good_program_passes():
    verify_program(parse_program(PROGRAM))
    verify(to_function(parse_program(PROGRAM)), SCHEDULED)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('stage("sum")', 'stage("square")', "stage 'square': two stages have this name"),
        (
            "k = red(0, n)",
            "k = red(0, i)",
            "stage 'sum': upper bound of iterator k: i mentions the variable 'i'",
        ),
        ("    t[i] = x[i] * x[i]", "    t[i] = t[0]", None),
        ("    t[i] = x[i] * x[i]", "    pass", "stage 'square': the stage writes nothing"),
        (
            "    t[i] = x[i] * x[i]",
            "    t[i] = y[()]",
            "stage 'square': reads 'y', which no stage before it defines",
        ),
        ("    t[i] = x[i] * x[i]", "    x[i] = t[i]", "'x' is written, but is an argument"),
        ("y = output(f32[()])", "y = output(f32[()])\nz = output(f32[n])", "no stage defines the output 'z'"),
        ("t = temp(f32[n])", "t = temp(f64[n])", "a value of type f32 is stored to 't' of type f64"),
    ],
)
def test_broken_programs(old, new, message):
    assert old in PROGRAM
    p = parse_program(PROGRAM.replace(old, new, 1))
    if message is None:
        verify_program(p)
        return
    with pytest.raises(VerificationError, match=re.escape(message)):
        verify_program(p)
    with pytest.raises(ParseError, match=re.escape(message)):
        read_program(PROGRAM.replace(old, new, 1))


WINDOW = """
function("f", outputs=[C])
A = f32[8, 4]
C = f32[8, 4]
with block("copy"):
    execute("copy", window("w", C[0, 0], 2, 4, axes=((1, 4, 1), (0, 2, 1))), \
window("r", A[0, 0], 3, 4, axes=((0, 2, 2), (1, 4, 1))))
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(0, 2, 1))", "(1, 2, 1))", r"the axes of a window of 'C' span \(1, 5\), not its extents"),
        ("(0, 2, 1))", "(2, 2, 1))", "the axes of a window of 'C' span None, not its extents"),
        ("(0, 2, 2)", "(0, 2, 3)", r"the axes of a window of 'A' span \(4, 4\), not its extents"),
        ("(0, 2, 2)", "(0, 2, 0)", "the axes of a window of 'A' span None, not its extents"),
        ("2, 4, axes", "0, 4, axes", r"window of 'C' has the extents \(0, 4\)"),
    ],
)
def test_windows(old, new, message):
    verify(parse_function(WINDOW))
    with pytest.raises(VerificationError, match=message):
        verify(parse_function(WINDOW.replace(old, new, 1)))
