"""What rewrites of programs, layouts and vector loops refuse, beside the tables of the other files."""

from dataclasses import replace

import pytest

from tilewright import lang
from tilewright.ir import CONST, F32, Binary, Const, Load, Stage, store, var
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from unit.schedule.written_loops import copy, written

FILL = copy("T", "T", "X[i]", "i")
COPY = copy("C", "C", "T[i]", "j")
GUARDED = """for j in range(4):
    if j >= 0:
        with block("C"):
            i = par(0, 4, j)
            C[i] = T[i]
"""
BARRIER = '    barrier("global")\n'
OTHERWISE = """for i in range(4):
    if i - 2 >= 0:
        with block("T"):
            i = par(0, 4, i)
            T[i] = X[i]
    else:
        for k in range(4):
            with block("S"):
                i = par(0, 4, i)
                k = red(0, 4, k)
                with init:
                    T[i] = f32(0.0)
                T[i] = T[i] + X[k]
"""


def _matmul():
    A, B = lang.placeholder((4, 5), name="A"), lang.placeholder((5, 6), name="B")
    k = lang.reduce_axis(5, "k")
    C = lang.compute((4, 6), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="C")
    return Schedule(lang.program([A, B], [C]))


def _sums(start=0, copies=""):
    """Running sums of rows, of those from ``start``; or copies of elements, in order or not."""
    X = lang.placeholder((4, 6), name="X")
    S = lang.scan(X.shape, lambda t, i, j: lang.select(j == 0, 0, t[i, j - 1]) + X[i, j], axis=1, name="S")
    program = lang.program([X], [S])
    (stage,) = program.stages
    rows, axis = stage.iters
    iters = (replace(rows, lo=rows.lo + start), axis)
    if copies:
        where = (var("j"), var("j")) if copies == "turned" else (var("i"), var("j"))
        body = store("S", where, Load("X", (var("i"), var("j")), F32))
        axis = replace(axis, kind="par" if copies == "par" else "ord")
        stage, iters = replace(stage, body=body), (iters[0], axis)
    return Schedule(replace(program, stages=(replace(stage, iters=iters),)))


def _constant_matmul():
    A, B = lang.placeholder((4, 6), name="A"), lang.placeholder((6, 8), name="B")
    program = lang.program([A, B], [lang.ops.matmul(A, B, name="C")])
    a, b = program.inputs
    return Schedule(replace(program, inputs=(a, b.with_(scope=CONST))))


def _two_products():
    """One called as a stage of the other's rewrite would be."""
    A, B = lang.placeholder((4, 6), name="A"), lang.placeholder((6, 8), name="B")
    D = lang.placeholder((8, 8), name="D")
    first = lang.ops.matmul(A, B, name="C")
    program = lang.program([A, B, D], [lang.ops.matmul(first, D, name="C_product3")])
    inputs = tuple(b if b.name == "A" else b.with_(scope=CONST) for b in program.inputs)
    return Schedule(replace(program, inputs=inputs))


def _product_called_like_pieces():
    A, B = lang.placeholder((4, 6), name="A"), lang.placeholder((6, 8), name="B")
    first = lang.ops.matmul(A, B, name="C")
    return Schedule(lang.program([A, B], [lang.ops.add(first, first, name="C_pieces")]))


def _triangle():
    """A reduction whose range depends on another axis."""
    X, W = lang.placeholder((6,), name="X"), lang.placeholder((6,), name="W")
    k = lang.reduce_axis(6, "k")
    body = lang.compute((6,), lambda i: lang.sum(X[k] * W[i], axis=k, where=k <= i), name="C")
    program = lang.program([X, W], [body])
    stage = program.stages[0]
    i, k = stage.iters
    return Schedule(program.with_stages((replace(stage, iters=(i, replace(k, hi=var(i.name) + 1))),)))


def _differences():
    """``C[i] = C[i] - A[i, k] B[k, j]``."""
    stage = _matmul().program.stages[0]
    (write,) = stage.body.writes
    body = store(write.buffer, write.indices, replace(write.value, op="sub"))
    return Schedule(_matmul().program.with_stages((replace(stage, body=body),)))


def _padded():
    X = lang.placeholder((8,), name="X")
    inside = lang.compute((10,), lambda i: lang.select((i >= 1) & (i < 9), X[i - 1], 0.0), name="P")
    return Schedule(lang.program([X], [inside]))


def _conv(constant=True):
    X, W = lang.placeholder((1, 4, 6, 6), name="X"), lang.placeholder((8, 4, 3, 3), name="W")
    program = lang.program([X, W], [lang.ops.conv(X, W, name="C")])
    x, w = program.inputs
    return Schedule(replace(program, inputs=(x, w.with_(scope=CONST))) if constant else program)


def _laid_out():
    laid = _matmul().set_layout("B", ("d1//2", "d0", "d1%2")).func.buffers[1]
    program = _matmul().program
    return Schedule(replace(program, inputs=(program.inputs[0], laid)))


def _two_outputs():
    X = lang.placeholder((4, 7), name="X")
    k = lang.reduce_axis(7, "k")
    return Schedule(lang.program([X], lang.compute((4,), lambda i: lang.argmax(X[i, k], axis=k), name="Y")))


def _loops(before, after=COPY):
    """Loops around a temporary `T` of four elements, then those around the output `C`."""
    return written(before + after, 4)


def _scan():
    X = lang.placeholder((4, 6), name="X")
    W = lang.compute((4, 6), lambda i, j: X[i, j] + 1, name="W")
    Y = lang.scan((4, 6), lambda y, b, t: lang.select(t == 0, 0.0, y[b, t - 1]) + W[b, t], axis=1, name="Y")
    return Schedule(lang.program([X], [Y]))


def _guarded(where=None, shape=10, **changed):
    """A padded sum of which the terms in the padding are left out."""
    X, W = lang.placeholder((8,), name="X"), lang.placeholder((3,), name="W")
    k = lang.reduce_axis(3, "k")
    if where is None:
        P = lang.compute((10,), lambda i: lang.select((i >= 1) & (i < 9), X[i - 1], 0.0), name="P")
        C = lang.compute((8,), lambda i: lang.sum(P[i + k] * W[k], axis=k), name="C")
        return Schedule(lang.program([X, W], [C])).inline_stage("P").skip_padding("C")
    C = lang.compute((6,), lambda i: lang.sum(X[i + k] * W[k], axis=k, where=where(i, k)), name="C")
    return Schedule(lang.program([X, W], [C]))


def _convolved():
    X, W = lang.placeholder((10,), name="X"), lang.placeholder((3,), name="W")
    k = lang.reduce_axis(3, "k")
    return Schedule(
        lang.program([X, W], [lang.compute((8,), lambda i: lang.sum(X[i + k] * W[k], axis=k), name="C")])
    )


def _largest():
    A = lang.placeholder((4, 5), name="A")
    k = lang.reduce_axis(5, "k")
    return Schedule(lang.program([A], [lang.compute((4,), lambda i: lang.max(A[i, k], axis=k), name="C")]))


def _symbolic():
    n = lang.param("n")
    A, B = lang.placeholder((4, n), name="A"), lang.placeholder((n, 6), name="B")
    k = lang.reduce_axis(n, "k")
    C = lang.compute((4, 6), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="C")
    return Schedule(lang.program([A, B], [C]))


def _lines(strides=(1, 1), own=True, window=True):
    """A sum over windows of a copy, `P`, along lines and from line to line."""
    X, W = lang.placeholder((9, 9, 3), name="X"), lang.placeholder((2, 3, 4), name="W")
    r, k = lang.reduce_axis(2, "r"), lang.reduce_axis(3, "k")
    P = lang.compute((9, 9, 3), lambda y, x, c: X[y, x, c], name="P") if own else X
    down, across = strides

    def term(y, x, n):
        at = across * x + r if window else x
        return P[down * y, at, k] * W[r, k, n]

    C = lang.compute((4, 4, 4), lambda y, x, n: lang.sum(term(y, x, n), (r, k)), name="C")
    return Schedule(lang.program([X, W], [C]))


def _updated():
    """The sum is changed in place by another stage."""
    s = _lines()
    name = s.program.outputs[0].name
    dims = tuple(map(var, "yxn"))
    more = store(name, dims, Binary("add", Load(name, dims, F32), Const(1.0, F32)))
    iters = tuple(it for it in s.program.stages[-1].iters if it.kind == "par")
    return Schedule(s.program.with_stages((*s.program.stages, Stage("U", iters, more))))


def _both_move():
    A = lang.placeholder((4, 5, 6), name="A")
    P = lang.compute((4, 5, 6), lambda y, x, c: A[y, x, c], name="P")
    k = lang.reduce_axis(6, "k")
    C = lang.compute((4, 5), lambda y, x: lang.sum(P[y, x, k] * A[y, x, k], axis=k), name="C")
    return Schedule(lang.program([A], [C]))


def _diagonal():
    """A sum that two iterators move in one dimension."""
    X, W = lang.placeholder((12,), name="X"), lang.placeholder((3,), name="W")
    k = lang.reduce_axis(3, "k")
    P = lang.compute((12,), lambda i: X[i], name="P")
    C = lang.compute((4, 3), lambda y, x: lang.sum(P[y + 2 * x + k] * W[k], axis=k), name="C")
    return Schedule(lang.program([X, W], [C]))


def _repeated():
    """Sums that are the same along one of their iterators."""
    X, W = lang.placeholder((9,), name="X"), lang.placeholder((3,), name="W")
    k = lang.reduce_axis(3, "k")
    P = lang.compute((9,), lambda i: X[i], name="P")
    C = lang.compute((4, 2), lambda y, x: lang.sum(P[2 * y + k] * W[k], axis=k), name="C")
    return Schedule(lang.program([X, W], [C]))


def _by_quotients():
    X, W = lang.placeholder((4, 3), name="X"), lang.placeholder((3,), name="W")
    k = lang.reduce_axis(3, "k")
    P = lang.compute((4, 3), lambda i, j: X[i, j], name="P")
    C = lang.compute((8,), lambda y: lang.sum(P[y // 2, k] * W[k], axis=k), name="C")
    return Schedule(lang.program([X, W], [C]))


def _turned():
    """A temporary whose elements are not made at the iterators in order."""
    A, W = lang.placeholder((5, 4, 6), name="A"), lang.placeholder((6,), name="W")
    P = lang.compute((4, 5, 6), lambda y, x, c: A[x, y, c], name="P")
    k = lang.reduce_axis(6, "k")
    C = lang.compute((4, 5), lambda y, x: lang.sum(P[y, x, k] * W[k], axis=k), name="C")
    s = Schedule(lang.program([A, W], [C]))
    maker = s.program.stages[0]
    turned = replace(maker, iters=tuple(reversed(maker.iters)))
    return Schedule(s.program.with_stages((turned, *s.program.stages[1:])))


def _scanned():
    """A temporary each of whose elements is made from the one before."""
    A, W = lang.placeholder((4, 5), name="A"), lang.placeholder((2,), name="W")
    k = lang.reduce_axis(2, "k")

    def step(P, y, x):
        return lang.select(x >= 1, P[y, x - 1], 0.0) + A[y, x]

    P = lang.scan((4, 5), step, axis=1, name="P")
    return Schedule(
        lang.program(
            [A, W], [lang.compute((4, 4), lambda y, x: lang.sum(P[y, x + k] * W[k], axis=k), name="C")]
        )
    )


def _many_lines():
    n = lang.param("n", hi=8)
    A, W = lang.placeholder((8, 9), name="A"), lang.placeholder((2,), name="W")
    P = lang.compute((8, 9), lambda y, x: A[y, x], name="P")
    k = lang.reduce_axis(2, "k")
    C = lang.compute((n, 8), lambda y, x: lang.sum(P[y, x + k] * W[k], axis=k), name="C")
    return Schedule(lang.program([A, W], [C]))


def _selected():
    """What is read depends on the line in another way, too: a choice by place."""
    X, W = lang.placeholder((4, 5), name="X"), lang.placeholder((2,), name="W")
    k = lang.reduce_axis(2, "k")
    P = lang.compute((4, 5), lambda y, x: X[y, x], name="P")

    def term(y, x):
        return lang.select(y + x >= 1, P[y, x + k], 0.0) * W[k]

    C = lang.compute((4, 4), lambda y, x: lang.sum(term(y, x), axis=k), name="C")
    return Schedule(lang.program([X, W], [C]))


def _hidden():
    """The condition lets an index go beyond its buffer: nothing says that it does not."""
    s = _guarded()
    stage = s.program.stages[-1]
    looser = tuple(replace(c, index=c.index + 1) for c in stage.body.cond)
    body = replace(stage.body, cond=looser)
    return Schedule(s.program.with_stages((*s.program.stages[:-1], replace(stage, body=body))))


REFUSALS = {
    "pad: no stage": (_matmul, ("pad_operand", "D", 0, "P"), "there is no stage 'D'"),
    "pad: taken name": (_matmul, ("pad_operand", "C", 0, "B"), "the name 'B' is taken or no identifier"),
    "pad: no identifier": (_matmul, ("pad_operand", "C", 0, "a b"), "the name 'a b' is taken or no"),
    "pad: no operand": (
        _matmul,
        ("pad_operand", "C", 2, "P"),
        "stage 'C' has 2 operands, there is no number 2",
    ),
    "pad: no sum": (
        _largest,
        ("pad_operand", "C", 0, "P"),
        r"stage 'C' is no sum of products with A\[i, k\]: zeros would not be neutral",
    ),
    "pad: order": (
        _guarded,
        ("pad_operand", "C", 0, "Q", (0, 1)),
        r"order=\(0, 1\) does not name each dimension of 'X' once",
    ),
    "pad: blocks": (
        _matmul,
        ("pad_operand", "C", 0, "P", (), 3),
        "dimension 1 of 'P', 5 long, has no blocks of 3",
    ),
    "pad: symbolic": (_symbolic, ("pad_operand", "C", 0, "P"), r"A\[i, k\]: the range of k is not constant"),
    "pad: other conditions": (
        lambda: _guarded(lambda i, k: k <= 2 * i),
        ("pad_operand", "C", 0, "Q"),
        r"a condition of stage 'C' bounds no index of X\[i \+ k\]",
    ),
    "pad: out of bounds": (
        _hidden,
        ("pad_operand", "C", 0, "Q"),
        r"X\[i \+ k - 1\] may lie outside of 'X' where a condition of stage 'C' hides it",
    ),
    "pad: the other operand out of bounds": (
        lambda: _convolved().rfactor("C", "k", 2),
        ("pad_operand", "C_rf", 1, "Q"),
        r"X\[i \+ k_i \+ 2\*k_o\] may lie outside of 'X' where a condition of stage 'C_rf' hides it",
    ),
    "phases: no stage": (_lines, ("split_phases", "D", ["y"]), "there is no stage 'D'"),
    "phases: no iterator": (_lines, ("split_phases", "C", []), "iterators must be named, each once"),
    "phases: an iterator twice": (
        _lines,
        ("split_phases", "C", ["y", "y"]),
        "iterators must be named, each once",
    ),
    "phases: no such iterator": (
        _lines,
        ("split_phases", "C", ["z"]),
        "stage 'C' is no sum without conditions along 'z'",
    ),
    "phases: two operands": (
        _both_move,
        ("split_phases", "C", ["y"]),
        "2 operands of 'C' move along 'y', not one",
    ),
    "phases: an argument": (
        lambda: _lines(own=False),
        ("split_phases", "C", ["y"]),
        "'X' is no tensor that is copied for 'C' alone",
    ),
    "phases: one dimension": (
        _diagonal,
        ("split_phases", "C", ["y", "x"]),
        r"P\[k \+ 2\*x \+ y\] does not move in steps along 'y'",
    ),
    "phases: no steps": (
        _by_quotients,
        ("split_phases", "C", ["y"]),
        r"P\[y//2, k\] does not move in steps along 'y'",
    ),
    "phases: an iterator that moves nothing": (
        _repeated,
        ("split_phases", "C", ["y", "x"]),
        r"P\[k \+ 2\*y\] does not move in steps along 'x'",
    ),
    "phases: blocks": (
        lambda: _lines((2, 2)).pad_operand("C", 0, "Q", (2, 0, 1), 2),
        ("split_phases", "C", ["x"]),
        "'Q' is stored in blocks along what is read in steps",
    ),
    "phases: again": (
        lambda: _lines((2, 2)).split_phases("C", ["y"]),
        ("split_phases", "C", ["y"]),
        "stage 'P' has an iterator called as a phase is, 'y_phase'",
    ),
    "flatten: no stage": (_lines, ("flatten_rows", "D", "y", "x", 8, "Q"), "there is no stage 'D'"),
    "flatten: taken name": (_lines, ("flatten_rows", "C", "y", "x", 8, "W"), "the name 'W' is taken or no"),
    "flatten: rows": (
        _lines,
        ("flatten_rows", "C", "y", "x", 0, "Q"),
        "rows come in multiples from 1, not 0",
    ),
    "flatten: conditions": (
        _guarded,
        ("flatten_rows", "C", "i", "i", 8, "Q"),
        "stage 'C' is no sum without conditions along 'i' and 'i'",
    ),
    "flatten: symbolic": (
        _many_lines,
        ("flatten_rows", "C", "y", "x", 8, "Q"),
        "stage 'C' is no sum without conditions along 'y' and 'x', of constant extents",
    ),
    "flatten: one axis": (
        _lines,
        ("flatten_rows", "C", "y", "y", 8, "Q"),
        "1 operands of 'C' move along 'y' or 'y', not one",
    ),
    "flatten: two operands": (
        _both_move,
        ("flatten_rows", "C", "y", "x", 8, "Q"),
        "2 operands of 'C' move along 'y' or 'x', not one",
    ),
    "flatten: steps": (
        lambda: _lines((2, 1)),
        ("flatten_rows", "C", "y", "x", 8, "Q"),
        r"P\[2\*y, r \+ x, k\] does not move by single elements along 'y'",
    ),
    "flatten: an argument": (
        lambda: _lines(own=False),
        ("flatten_rows", "C", "y", "x", 8, "Q"),
        "'X' is no tensor that is copied for 'C' alone",
    ),
    "flatten: a choice by place": (
        _selected,
        ("flatten_rows", "C", "y", "x", 8, "Q"),
        r"stage 'C' reads more than P\[y, k \+ x\] by 'y' and 'x'",
    ),
    "flatten: an update": (
        _updated,
        ("flatten_rows", "C", "y", "x", 8, "Q"),
        "stage 'C' does not alone write one tensor, 'C'",
    ),
    "flatten: not in order": (
        _turned,
        ("flatten_rows", "C", "y", "x", 8, "Q"),
        "'P' is not made element by element",
    ),
    "flatten: a scan": (
        _scanned,
        ("flatten_rows", "C", "y", "x", 8, "Q"),
        "'P' is not made element by element",
    ),
    "gather: no stage": (_matmul, ("gather_operand", "D", 0, ("i", "k"), "P"), "there is no stage 'D'"),
    "gather: no operand": (
        _matmul,
        ("gather_operand", "C", 2, ("i", "k"), "P"),
        "stage 'C' has 2 operands, there is no number 2",
    ),
    "gather: taken name": (_matmul, ("gather_operand", "C", 0, ("i", "k"), "B"), "the name 'B' is taken"),
    "gather: no identifier": (_matmul, ("gather_operand", "C", 0, ("i", "k"), "a b"), "the name 'a b' is"),
    "gather: other axes": (
        _matmul,
        ("gather_operand", "C", 0, ("i", "j"), "P"),
        r"A\[i, k\] depends on i, k, not on i, j",
    ),
    "gather: dependent range": (
        _triangle,
        ("gather_operand", "C", 0, ("k",), "P"),
        r"the range of an axis of X\[k\] depends on other axes",
    ),
    "gather: out of bounds": (
        _padded,
        ("gather_operand", "P", 0, ("i",), "Q"),
        r"X\[i - 1\] may lie outside of 'X' where a condition of stage 'P' hides it",
    ),
    "skip_padding: no stage": (_matmul, ("skip_padding", "D"), "there is no stage 'D'"),
    "skip_padding: no padding": (
        _matmul,
        ("skip_padding", "C"),
        "stage 'C' has no term that padding makes neutral",
    ),
    "winograd: no stage": (_conv, ("winograd", "D", 2, "U"), "there is no stage 'D'"),
    "winograd: weights not constant": (
        lambda: _conv(constant=False),
        ("winograd", "C", 2, "U"),
        "stage 'C' is no 3x3 convolution of stride 1 with constant f32 weights",
    ),
    "winograd: results left out": (
        lambda: _conv().layout_pad("C", 2, 1, 0),
        ("winograd", "C", 2, "U"),
        "stage 'C' is no 3x3 convolution of stride 1",
    ),
    "winograd: taken name": (_conv, ("winograd", "C", 2, "X"), "the name 'X' is taken or no identifier"),
    "winograd: size": (_conv, ("winograd", "C", 3, "U"), "no Winograd method for tiles of 3x3"),
    "strassen: no stage": (_matmul, ("strassen", "D", 16, "Q"), "there is no stage 'D'"),
    "strassen: no width": (_matmul, ("strassen", "C", 0, "Q"), "panels of 0 columns"),
    "strassen: not constant": (
        _matmul,
        ("strassen", "C", 1, "Q"),
        "stage 'C' is no product with a constant f32 matrix that divides into quarters",
    ),
    "strassen: height": (
        _constant_matmul,
        ("strassen", "C", 1, "Q", 3),
        "panels of 3 rows do not divide half of the rows",
    ),
    "strassen: negative height": (
        _constant_matmul,
        ("strassen", "C", 1, "Q", -1),
        "panels of -1 rows do not divide half of the rows",
    ),
    "strassen: taken stage": (
        _two_products,
        ("strassen", "C", 1, "Q"),
        "the name 'C_product3', which a new stage would have, is taken",
    ),
    "strassen: taken name": (
        _constant_matmul,
        ("strassen", "C", 1, "A"),
        "the name 'A' is taken or no identifier",
    ),
    "bf16x3: no stage": (_matmul, ("bf16x3", "D"), "there is no stage 'D'"),
    "bf16x3: no sum": (
        lambda: _matmul().bf16x3("C"),
        ("bf16x3", "C_pieces"),
        "stage 'C_pieces' is no sum of products of f32 elements of two tensors of constant shape",
    ),
    "bf16x3: again": (
        lambda: _matmul().bf16x3("C"),
        ("bf16x3", "C"),
        "stage 'C' is no sum of products of f32 elements",
    ),
    "bf16x3: taken stage": (
        _product_called_like_pieces,
        ("bf16x3", "C"),
        "the name 'C_pieces', which a new stage would have, is taken",
    ),
    "bf16x3: taken name": (_constant_matmul, ("bf16x3", "C", "A"), "the name 'A' is taken or no identifier"),
    "bf16x3: panels of a constant": (
        _constant_matmul,
        ("bf16x3", "C", "W", (2, 2)),
        r"'B' is no matrix whose pieces are computed, in panels of \[2, 2\]",
    ),
    "bf16x3: panels": (
        _matmul,
        ("bf16x3", "C", "", (3, 2)),
        r"panels of 3 columns in groups of 2 do not divide a matrix of \[\d+, \d+\]",
    ),
    "store_as: no type": (
        _matmul,
        ("store_as", "B", "f7"),
        "there is no element type 'f7'",
    ),
    "store_as: no argument": (_matmul, ("store_as", "D", "bf16"), "'D'"),
    "rfactor: dependent range": (
        _triangle,
        ("rfactor", "C", "k", 2),
        "the bounds of axis 'k' depend on other axes",
    ),
    "rfactor: differences": (
        _differences,
        ("rfactor", "C", "k", 2),
        "it is none of add, mul, max, min",
    ),
    "split_scan: no scan": (
        _matmul,
        ("split_scan", "C", 2, "P"),
        "stage 'C' is no scan that can",
    ),
    "split_scan: one part": (_sums, ("split_scan", "S", 6, "P"), "stage 'S' cannot be in parts of 6"),
    "split_scan: no elements": (_sums, ("split_scan", "S", 0, "P"), "stage 'S' cannot be in parts of 0"),
    "split_scan: taken name": (_sums, ("split_scan", "S", 2, "X"), "the name 'X' is taken"),
    "split_scan: not from 0": (
        lambda: _sums(1),
        ("split_scan", "S", 2, "P"),
        "the ranges of the axes of stage 'S' do not all start at 0",
    ),
    "last_writes: in no order": (_matmul, ("last_writes", "C", "L"), "it is not one write"),
    "last_writes: of what is there": (
        _sums,
        ("last_writes", "S", "L"),
        "its values depend on what it changes",
    ),
    "last_writes: element by element": (
        lambda: _sums(copies="par"),
        ("last_writes", "S", "L"),
        "its iterators have no order",
    ),
    "last_writes: not from 0": (
        lambda: _sums(1, copies="ord"),
        ("last_writes", "S", "L"),
        "its sizes are not constant",
    ),
    "last_writes: an axis apart": (
        lambda: _sums(copies="turned"),
        ("last_writes", "S", "L"),
        "its axis 'i' is no index of what it writes",
    ),
    "last_writes: taken name": (
        lambda: _sums(copies="ord"),
        ("last_writes", "S", "X"),
        "the name 'X' is taken",
    ),
    "layout_pad: several tensors": (
        _two_outputs,
        ("layout_pad", "Y", 0, 0, 2),
        "defines several tensors",
    ),
    "set_layout: no buffer": (
        _matmul,
        ("set_layout", "D", ("d0", "d1")),
        "there is no buffer 'D'",
    ),
    "set_layout: twice": (
        lambda: _matmul().set_layout("B", ("d1//2", "d0", "d1%2")),
        ("set_layout", "B", ("d0", "d1")),
        "buffer 'B' already has a layout",
    ),
    "set_layout: moduli": (
        _matmul,
        ("set_layout", "B", ("d1%6%4", "d0")),
        "4 does not divide 6",
    ),
    "set_layout: divisor of a modulus": (
        _matmul,
        ("set_layout", "B", ("d1%6//4", "d0")),
        "4 does not divide 6",
    ),
    "layout primitives: a layout of its own": (
        _laid_out,
        ("layout_split", "B", 1, (-1, 2)),
        "tensor 'B' has an index map of its own",
    ),
    "vectorize: twice": (
        lambda: _matmul().decompose_init("C", "k").vectorize("j"),
        ("vectorize", "j"),
        "'j' is already a vector loop",
    ),
    "vectorize: parallel": (
        lambda: _matmul().parallel("i"),
        ("vectorize", "i"),
        "'i' is already a parallel loop",
    ),
    "decompose_init: used before": (
        lambda: _loops(OTHERWISE),
        ("decompose_init", "S", "i"),
        "block 'T' uses 'T' inside of 'i' before 'S' may be initialised",
    ),
    "decompose_init: else branch": (
        lambda: _loops(OTHERWISE.replace("T[i] = X[i]", "C[i] = X[i]")),
        ("decompose_init", "S", "i"),
        "block 'S' is in the else branch of a condition",
    ),
    "blockize: barrier": (
        lambda: _loops(FILL + BARRIER),
        ("blockize", "i"),
        "there is a barrier inside of 'i'",
    ),
    "inline: no reader": (
        lambda: _loops(FILL, COPY.replace("T[i]", "X[i]")),
        ("inline", "T"),
        "nothing reads what 'T' computes",
    ),
    "cache: no reader": (lambda: _loops(FILL), ("cache", "X", "j"), "nothing inside loop 'j' reads 'X'"),
    "reverse_compute_at: along the order": (
        _scan,
        ("reverse_compute_at", "Y", "j"),
        "cannot tell which instances of 'Y' loop 'j' serves: 'Y' changes Y in order, along 't'",
    ),
    "reverse_compute_at: condition": (
        lambda: _loops(FILL, GUARDED),
        ("reverse_compute_at", "C", "i"),
        "'C' is computed under a condition",
    ),
    "split: roundup of an argument": (
        lambda: Schedule(lang.program([], [lang.compute((5,), lambda i: i * 2, name="Y")])),
        ("split", "i", 2, "roundup"),
        "the block writes the argument 'Y'",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_refusal(what, same_text):
    make, (name, *args), message = REFUSALS[what]
    s = make()
    kwargs = {"tail": args.pop()} if name == "split" else {}
    text = str(s)
    with pytest.raises(ScheduleError, match=message) as caught:
        s.apply(name, *args, **kwargs)
    assert str(s) == text
    same_text(caught.value)
