"""Printer and parser: exact round trips, golden texts, marks, and errors with their place."""

import re
from pathlib import Path

import pytest
from hypothesis import given

from random_ir import PARAMS, functions, indices, programs
from tilewright.ir import (
    F16,
    F32,
    I32,
    PARALLEL,
    SHARED,
    UNROLL,
    VECTOR,
    ZERO,
    Access,
    Alloc,
    Barrier,
    Binary,
    Block,
    Buffer,
    Cast,
    Compare,
    Const,
    Exec,
    For,
    If,
    IndexMap,
    Iter,
    Load,
    LoopFunction,
    OfIndex,
    Param,
    Program,
    Select,
    Seq,
    Stage,
    Store,
    Unary,
    Window,
    buffer,
    eq0,
    floordiv,
    function_lines,
    ge0,
    index,
    mod,
    parse_function,
    parse_program,
    print_expr,
    print_function,
    print_index,
    print_program,
    print_stmt,
    seq,
    store,
    thread,
    var,
)
from tilewright.ir.parser import MAX_TEXT
from tilewright.ir.parser_expr import ExprParser
from tilewright.support import ParseError

GOLDEN = Path(__file__).parent / "golden"
i, j, k, io, ii = (var(n) for n in ("i", "j", "k", "io", "ii"))


def par(name, lo, hi):
    return Iter(name, index(lo), index(hi), "par")


def tiled_matmul():
    """A tiled, packed and guarded matmul over a symbolic number of rows."""
    n = Param("n", 1, 1024, 2)
    acc = buffer("acc", (4, 16), F32, "register")
    panel = Buffer(
        "B packed",
        (index(64), index(32)),
        F32,
        "local",
        IndexMap(
            ("d0", "d1"),
            (floordiv(var("d1"), 16), var("d0"), mod(var("d1"), 16)),
            (index(2), index(64), index(16)),
        ),
        align=32,
        alias="pool",
        halo=((0, 0), (1, 1), (0, 0)),
    )
    c = Load("acc", (mod(i, 4), mod(j, 16)), F32)
    product = Binary("mul", Load("A", (i, k), F32), Load("B packed", (k, j), F32))
    update = Block(
        "C",
        "C",
        (par("i", 0, n), par("j", 0, 32), Iter("k", ZERO, index(64), "red")),
        (4 * io + ii, var("jj"), k),
        store("acc", c.indices, Binary("add", c, product)),
        store("acc", c.indices, Const(0.0, F32)),
        (ge0(index(n) - 4 * io - ii - 1),),
    )
    pack = Block(
        "pack",
        "B packed",
        (par("k", 0, 64), par("j", 0, 32)),
        (var("pk"), var("pj")),
        store("B packed", (k, j), Load("B", (k, j), F32)),
    )
    tile = For("jj", ZERO, index(32), update, VECTOR)
    for name, hi, kind in (("ii", 4, UNROLL), ("k", 64, None)):
        tile = For(
            name,
            ZERO,
            index(hi),
            tile,
            *([kind] if kind else []),
            hints=(("outline", ""),) if name == "k" else (),
        )
    nest = For("io", ZERO, floordiv(index(n) + 3, 4), Alloc(acc, tile), PARALLEL)
    packing = For("pk", ZERO, index(64), For("pj", ZERO, index(32), pack, VECTOR, 2))
    buffers = (buffer("A", (n, 64), F32), buffer("B", (64, 32), F32), buffer("C", (n, 32), F32))
    return LoopFunction(
        "matmul", (n,), buffers, ("C",), Alloc(panel, seq(packing, nest)), (ge0(index(n) - 4),)
    )


def threaded():
    """Thread loops, a barrier, an instruction, a branch and a store of two elements."""
    s = buffer("s", (8,), F32, SHARED)
    t, u = var("t"), var("u")
    fill = Block("fill", "s", (par("i", 0, 8),), (t,), store("s", (i,), Load("x", (i,), F32)))
    call = Exec("swap", (Window("s", (4 * u,), (4,), "rw"),), (Const(float("inf"), F32),))
    pair = Store(
        (Access("y", (ZERO,), Load("s", (ZERO,), F32)), Access("y", (index(1),), Load("s", (index(1),), F32)))
    )
    body = seq(
        For("t", ZERO, index(8), fill, thread("thread.x")),
        Barrier("shared"),
        For("u", ZERO, index(2), If((ge0(u), eq0(u - 1)), call, Seq(())), thread("thread.x")),
        pair,
    )
    f = For("b", index(2), index(3), Alloc(s, body), thread("block.x"))
    return LoopFunction("threaded", (), (buffer("x", (8,), F32), buffer("y", (8,), F32)), ("y",), f)


def two_stages():
    """A program of a padded copy and a row maximum."""
    n = Param("n")
    inside = Binary("and", *(Compare(op, OfIndex(j, I32), Const(c, I32)) for op, c in (("ge", 1), ("lt", 9))))
    padded = Select(inside, Load("x", (i, j - 1), F32), Const(0.0, F32))
    pad = Stage("pad", (par("i", 0, n), par("j", 0, 10)), store("t", (i, j), padded))
    best = Binary("max", Load("y", (i,), F32), Unary("neg", Cast(Load("t", (i, j), F16), F32)))
    top = Stage(
        "top",
        (par("i", 0, n), Iter("j", ZERO, index(10), "red")),
        store("y", (i,), best),
        store("y", (i,), Const(float("-inf"), F32)),
    )
    return Program(
        "two",
        (n,),
        (buffer("x", (n, 8), F32),),
        (buffer("y", (n,), F32),),
        (buffer("t", (n, 10), F32),),
        (pad, top),
    )


GOLDENS = {
    "matmul": (tiled_matmul, print_function, parse_function),
    "threaded": (threaded, print_function, parse_function),
    "two_stages": (two_stages, print_program, parse_program),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_texts(name, update_golden):
    build, show, read = GOLDENS[name]
    path = GOLDEN / f"{name}.txt"
    text = show(build())
    if update_golden:
        path.write_text(text)
    assert text == path.read_text()
    assert read(text) == build()


@given(functions())
def test_functions_round_trip(f):
    text = print_function(f)
    again = parse_function(text)
    assert again == f
    assert print_function(again) == text


@given(programs())
def test_programs_round_trip(p):
    text = print_program(p)
    assert parse_program(text) == p
    assert print_program(parse_program(text)) == text


@given(indices())
def test_printing_and_parsing_keep_the_canonical_form(x):
    f = LoopFunction("f", PARAMS, (buffer("y", (4,), F32),), ("y",), store("y", (x,), Const(0.0, F32)))
    assert parse_function(print_function(f)).body.writes[0].indices[0] == x


def test_a_hundred_allocations_do_not_nest_the_text():
    body = Seq(())
    for n in range(150):
        body = Alloc(buffer(f"t{n}", (4,), F32), body)
    f = LoopFunction("f", (), (), (), body)
    assert parse_function(print_function(f)) == f
    assert "    " not in print_function(f)


def test_marks_point_at_loops_and_blocks():
    text = print_function(tiled_matmul(), mark=("io", "C"))
    marked = [line.strip() for line in text.splitlines() if line.endswith("# <-- here")]
    assert marked == ["for io in parallel((n + 3)//4):  # <-- here", 'with block("C"):  # <-- here']
    assert parse_function(text) == tiled_matmul()
    plain, lines = function_lines(tiled_matmul())
    assert plain.splitlines()[lines["jj"]].strip() == "for jj in vector(32):"


def test_parts_print_on_their_own():
    e = Binary("mul", Binary("add", Load("A", (i,), F32), Const(1.0, F32)), Load("B", (), F32))
    assert print_expr(e, [buffer("A", (4,), F32), buffer("B", (), F32)]) == "(A[i] + f32(1.0)) * B[()]"
    assert print_expr(e) == "(load(f32, A, i) + f32(1.0)) * load(f32, B)"
    assert print_stmt(For("i", ZERO, index(4), Seq(()))) == "for i in range(4):\n    pass\n"
    assert print_index(-floordiv(i, 2) * 3 - index(PARAMS[0]), PARAMS) == "-n - 3*(i//2)"


HEAD = 'function("f", outputs=[y])\ny = f32[8]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'line 1, column 1: the text must begin with function("name")'),
        ("x = = 3", "line 1, column 5: not a program's text: invalid syntax"),
        ("x = 1", 'line 1, column 1: the text must begin with function("name")'),
        (HEAD + "import os", "line 3, column 1: expected a loop, if, with, assignment, barrier or execute"),
        (HEAD + "__import__('os')", "line 3, column 1: '__import__' is no statement"),
        (HEAD + "y[0] = x[1]", "line 3, column 8: no buffer 'x' is in scope"),
        (HEAD + "y[0] = y", "line 3, column 8: expected a scalar expression"),
        (HEAD + "y[0] = exp(y[0], y[1])", "line 3, column 8: exp takes 1 arguments, not 2"),
        (HEAD + "y[0] = expo(y[0])", "did you mean 'exp'?"),
        (HEAD + "y[0] = f33(1.0)", "unknown function 'f33'"),
        (HEAD + "y[0] = f32('1')", "line 3, column 12: expected a number"),
        (HEAD + 'y[0] = cast(y[0], f32, "sat")', "unknown cast mode 'sat'"),
        (HEAD + "y[i*j] = f32(0.0)", "line 3, column 3: a product in an index needs a constant factor"),
        (HEAD + "y[i//0] = f32(0.0)", "line 3, column 6: the divisor of an index must be positive"),
        (HEAD + "y[i/2] = f32(0.0)", "line 3, column 3: an index has only"),
        (HEAD + "y[0], y[1] = f32(0.0)", "line 3, column 1: 2 targets need as many values"),
        (HEAD + "y = f32(0.0)", "line 3, column 1: expected an element such as C[i, j] on the left of ="),
        (
            HEAD + "for i in rang(4):\n    pass",
            "line 3, column 10: expected a loop over one of range, parallel",
        ),
        (
            HEAD + "for i in range(4, stp=2):\n    pass",
            "range has no keyword stp\n  hint: did you mean 'step'?",
        ),
        (HEAD + "for i in range(4, step=i):\n    pass", "line 3, column 24: expected an integer"),
        (HEAD + "with block():\n    pass", "block takes 1 arguments, not 0"),
        (
            HEAD + "with blok('b'):\n    pass",
            "line 3, column 6: expected block(...), alloc(...) as name, teams(...), or seq",
        ),
        (
            HEAD + "with teams(ring('a', 4)):\n    pass",
            'line 3, column 12: expected a channel such as channel("ring", 4)',
        ),
        (HEAD + "with teams():\n    pass", 'expected with team("name", threads):'),
        (HEAD + "if i:\n    pass", "line 3, column 4: expected a condition"),
        (HEAD + "if i < j < 3:\n    pass", "line 3, column 4: expected a condition"),
        (HEAD + "z = alloc(f32)", "line 3, column 11: expected a type and shape such as f32[n, 4]"),
        (
            HEAD + "z = alloc(f32[2], layout=3)",
            "expected index_map([dims], [physical indices], [physical shape])",
        ),
        (HEAD + "z = alloc(f99[2])", "line 3, column 11: expected an element type"),
        (
            HEAD + 'execute("e", window("r", y[0], 1, axes=0))',
            "expected axes such as ((0, 16, 1), (2, 32, 1))",
        ),
        (HEAD + 'execute("e", window("x", y[0], 1))', 'the mode of a window is "r", "w" or "rw"'),
        (HEAD + "y[" + "(" * 300 + "0" + ")" * 300 + "] = f32(0.0)", "not a program's text"),
        (HEAD + "y[0] = " + "-" * 50000 + "y[0]", "nested too deeply|not a program's text"),
        (HEAD + "z = alloc(f32[2], align='x')", "line 3, column 25: expected an integer"),
        (HEAD + "z = alloc(f32[2], scope=3)", "line 3, column 25: expected a string"),
        (HEAD + "z = alloc(f32[2], halo=3)", "line 3, column 24: expected a list"),
        (HEAD + "z = alloc(f32[2], halo=[3])", "line 3, column 25: expected a pair (before, after)"),
        (
            HEAD + "for i in range(4, hints=3):\n    pass",
            'line 3, column 25: expected hints such as {"outline": ""}',
        ),
        (HEAD + "for 3 in range(4):\n    pass", "cannot assign to literal"),
        (HEAD + "for a.b in range(4):\n    pass", "line 3, column 5: expected a name"),
        (
            HEAD + 'execute("e", window("r", y, 1))',
            "expected the first element of the window such as A[i, 0]",
        ),
        (
            HEAD + "y[i.j] = f32(0.0)",
            "line 3, column 3: expected an index: a sum of integers times variables",
        ),
        (HEAD + "y[abs(i)] = f32(0.0)", "line 3, column 3: expected min, max or int in an index"),
        (HEAD + "y[0] = (y.exp)(y[0])", "line 3, column 8: unknown function"),
        (HEAD + "if i != 0:\n    pass", "line 3, column 4: a condition has only <, <=, ==, >= and >"),
        (HEAD + "y[0] = y[0] ** y[1]", "line 3, column 8: unknown operator"),
        (
            HEAD + "y[0] = y[0] < y[1] < y[2]",
            "line 3, column 8: expected one comparison; put parentheses around chained ones",
        ),
        ("\0", "not a program's text"),
        ('program("p")', "the text must begin with function"),
    ],
)
def test_errors_name_line_and_column(text, message):
    with pytest.raises(ParseError, match="|".join(re.escape(m) for m in message.split("|"))):
        parse_function(text)


def test_a_text_nested_too_deeply_is_refused(monkeypatch):
    def overflow(*args):
        raise RecursionError

    monkeypatch.setattr(ExprParser, "index", overflow)
    with pytest.raises(ParseError, match="the program is nested too deeply"):
        parse_function(HEAD)


def test_a_program_has_stages():
    with pytest.raises(ParseError, match=re.escape('line 2, column 1: expected with stage("name"):')):
        parse_program('program("p")\nfor i in range(4):\n    pass')


def test_oversized_text_is_refused():
    with pytest.raises(ParseError, match="more than 67108864"):
        parse_function(" " * (MAX_TEXT + 1))


def test_conditions_may_be_any_comparison():
    f = parse_function(HEAD + "if i < 4 and i > 1 and i <= 5:\n    pass")
    assert f.body.cond == (ge0(3 - i), ge0(i - 2), ge0(5 - i))
