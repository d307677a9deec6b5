"""Small random programs for the schedule fuzzer: one to four stages of pointwise, stencil and reduction kind.

Some kinds are for primitives that need them: `dots` are products of narrow factors as instructions do them,
`factors` are sums of products of which some axes of the sum do not move one factor, `sums` those of a sum
and a factor, and of two products, `bytes` those of signed
bytes, `images` are 3x3 convolutions by constant weights, `quarters` products with constant matrices of even
sizes, `biased` products with a constant matrix and vector, `extremes` two results of one reduction that a
stage uses in different ways.

Every program computes exactly whatever the order of its sums: integers, or floats that hold small integers
(`exact`); or it adds and multiplies positive floats only, so that the magnitude of a result is the result.
"""

import numpy as np
from hypothesis import strategies as st

from tilewright.ir import (
    BF16,
    BOOL,
    CONST,
    F32,
    I8,
    I32,
    U8,
    Access,
    Binary,
    Buffer,
    Cast,
    Compare,
    Const,
    Index,
    Iter,
    Load,
    OfIndex,
    Opaque,
    Param,
    Program,
    Select,
    Stage,
    Store,
    buffer,
    floordiv,
    imax,
    imin,
    index,
    store,
    var,
)
from tilewright.schedule import Schedule, derived_constants

TILES = (2, 3, 4)
KINDS = (
    "pointwise", "clamped", "padded", "window", "rows", "transpose", "prefix", "update", "diamond",
    "rowsum", "matmul", "conv", "strided", "padconv", "triangle", "argmax", "unordered", "replaced", "box",
)  # fmt: skip


class Case:
    """A program with values of its parameters, and whether its results do not depend on the order of sums."""

    def __init__(self, program, params, exact, terms):
        self.program, self.params, self.exact, self.terms = program, params, exact, terms

    def __repr__(self):
        return f"{Schedule(self.program)} with {self.params}"

    def inputs(self, seed=0):
        """Random arguments by name."""
        rng = np.random.default_rng(seed)
        out = {}
        for b in self.program.inputs:
            shape = tuple(_value(n, self.params) for n in b.shape)
            if self.exact or not b.dtype.is_float:
                low = 0 if b.dtype == U8 else -3
                out[b.name] = rng.integers(low, 4, shape).astype(b.dtype.numpy)
            else:
                out[b.name] = (0.5 + rng.random(shape)).astype(b.dtype.numpy)
        return out

    def stored(self, arrays, schedule):
        """The arguments as a schedule wants them: in the types that it stores, with constants it makes."""
        made = {n: d.of(arrays) for n, d in derived_constants(schedule).items()}
        types = {b.name: b.dtype.numpy for b in schedule.func.buffers}
        return {n: a.astype(types[n]) for n, a in {**arrays, **made}.items() if n in types}


def _value(n: Index, params):
    return n.const + sum(c * params[a.name] for a, c in n.terms)


class _Builder:
    """Stages over a growing list of readable two-dimensional buffers of one type."""

    def __init__(self, draw, exact, dtype):
        self.draw = draw
        self.exact = exact
        self.dtype = dtype
        self.params = {}
        self.inputs = []
        self.temps = []
        self.stages = []
        self.terms = 4

    def size(self, tile, symbolic=False):
        n = self.draw(st.integers(1, 2 * tile + 1), label="size")
        if symbolic and len(self.params) < 2:
            p = Param(f"N{len(self.params)}", 1, 64)
            self.params[p] = n
            return index(p)
        return index(n)

    def given(self, shape, dtype=None, scope=None):
        b = buffer(f"A{len(self.inputs)}", shape, dtype or self.dtype)
        b = b if scope is None else b.with_(scope=scope)
        self.inputs.append(b)
        return b

    def made(self, shape, dtype=None):
        b = buffer(f"T{len(self.temps)}", shape, dtype or self.dtype)
        self.temps.append(b)
        return b

    def const(self, x):
        return Const(int(x) if self.dtype == I32 else float(x), self.dtype)

    def combine(self, a, b):
        ops = ["add", "max", "min"] + (["sub"] if self.exact else [])
        return Binary(self.draw(st.sampled_from(ops), label="op"), a, b)

    def stage(self, out, iters, body, init=None):
        name = f"S{len(self.stages)}"
        self.stages.append(Stage(name, tuple(iters), body, init))
        return out


def _ld(b: Buffer, *at):
    return Load(b.name, tuple(index(i) for i in at), b.dtype)


def _iters(shape, names=("i", "j"), kinds=("par", "par")):
    return [Iter(v, index(0), n, k) for v, n, k in zip(names, shape, kinds, strict=False)]


def _add_stage(b: _Builder, kind, src: Buffer, tile):
    n, m = src.shape
    i, j, k = var("i"), var("j"), var("k")
    if kind == "pointwise":
        out = b.made((n, m))
        other = b.draw(st.sampled_from(["const", "row", "same", "index"]), label="operand")
        if other == "const":
            rhs = b.const(2)
        elif other == "row":
            rhs = _ld(b.given((m,)), j)
        elif other == "same":
            rhs = _ld(b.given((n, m)), i, j)
        else:
            rhs = OfIndex(i + j * 2, b.dtype)
        value = b.combine(_ld(src, i, j), rhs)
        return b.stage(out, _iters((n, m)), store(out.name, (i, j), value))
    if kind == "clamped":
        out = b.made((n, m))
        value = b.combine(
            _ld(src, imax(i - 1, 0), imin(j, m - 1)), _ld(src, imin(i + 1, n - 1), imin(j, m - 1))
        )
        return b.stage(out, _iters((n, m)), store(out.name, (i, j), value))
    if kind == "padded":
        out = b.made((n, m))
        cond = Compare("ge", OfIndex(j - 1, I32), Const(0, I32))
        value = b.combine(Select(cond, _ld(src, i, j - 1), b.const(1)), _ld(src, i, j))
        return b.stage(out, _iters((n, m)), store(out.name, (i, j), value))
    if kind == "diamond":
        first = _add_stage(b, "pointwise", src, tile)
        out = b.made((n, m))
        value = b.combine(_ld(src, i, j), _ld(first, i, j))
        return b.stage(out, _iters((n, m)), store(out.name, (i, j), value))
    if kind == "window":
        if not (m.is_const and m.const >= 2):
            return _add_stage(b, "pointwise", src, tile)
        out = b.made((n, m - 1))
        value = b.combine(_ld(src, i, j), _ld(src, i, j + 1))
        return b.stage(out, _iters((n, m - 1)), store(out.name, (i, j), value))
    if kind == "rows":
        if not (n.is_const and n.const >= 2):
            return _add_stage(b, "pointwise", src, tile)
        out = b.made((n - 1, m))
        value = b.combine(_ld(src, i, j), _ld(src, i + 1, j))
        return b.stage(out, _iters((n - 1, m)), store(out.name, (i, j), value))
    if kind == "transpose":
        out = b.made((m, n))
        return b.stage(out, _iters((m, n)), store(out.name, (i, j), b.combine(_ld(src, j, i), b.const(1))))
    if kind == "prefix":  # an ordered stage: a running sum along j
        out = b.made((n, m))
        first = Compare("le", OfIndex(j, I32), Const(0, I32))
        before = Select(first, b.const(0), _ld(out, i, j - 1))
        b.terms += 9
        iters = _iters((n, m), kinds=("par", "ord"))
        return b.stage(out, iters, store(out.name, (i, j), Binary("add", before, _ld(src, i, j))))
    if kind == "update":  # changes the last temporary in place
        if not b.temps or src not in b.temps:
            return _add_stage(b, "pointwise", src, tile)
        return b.stage(
            src, _iters((n, m)), store(src.name, (i, j), Binary("add", _ld(src, i, j), b.const(1)))
        )
    if kind == "unordered":  # an update in no order, at places that data say
        if b.dtype != I32 or not b.exact or not n.is_const:
            return _add_stage(b, "pointwise", src, tile)
        out = b.made((n, m))
        b.stage(out, _iters((n, m)), store(out.name, (i, j), b.const(1)))
        at = imin(imax(index(Opaque(_ld(src, i, j))), 0), n - 1)
        op = b.draw(st.sampled_from(["add", "max", "min"]), label="op")
        body = store(out.name, (at, j), Binary(op, _ld(out, at, j), _ld(src, i, j)))
        return b.stage(out, _iters((n, m), kinds=("red", b.draw(st.sampled_from(["par", "red"])))), body)
    if kind == "replaced":  # writes in order, of which later ones replace earlier ones
        out = b.made((n, m))
        b.stage(out, _iters((n, m)), store(out.name, (i, j), b.const(1)))
        body = store(out.name, (floordiv(i, 2), j), b.combine(_ld(src, i, j), b.const(2)))
        return b.stage(out, _iters((n, m), kinds=("ord", b.draw(st.sampled_from(["par", "ord"])))), body)
    if kind == "argmax":
        best, at = b.made((n, index(1))), b.made((n, index(1)), I32)
        x = _ld(src, i, k)
        old, where = _ld(best, i, 0), _ld(at, i, 0)
        here = OfIndex(k, I32)
        # ties go to the smaller index, so that any order gives the same answer
        tie = Binary("and", Compare("eq", x, old), Compare("lt", here, where))
        better = Binary("or", Compare("gt", x, old), tie)
        assert better.dtype == BOOL
        body = Store(
            (
                Access(best.name, (i, index(0)), Select(better, x, old)),
                Access(at.name, (i, index(0)), Select(better, here, where)),
            )
        )
        low = Const(-1000 if b.dtype == I32 else -1000.0, b.dtype)
        init = Store((Access(best.name, (i, index(0)), low), Access(at.name, (i, index(0)), Const(0, I32))))
        iters = [*_iters((n,)), Iter("k", index(0), m, "red")]
        b.stage(best, iters, body, init)
        return best
    if kind == "extremes":
        return _add_extremes(b, src)
    if kind == "dots":
        return _add_dots(b, n, tile)
    if kind == "factors":
        return _add_factors(b, n, tile)
    if kind == "sums":
        return _add_sums(b, n, tile)
    if kind == "bytes":
        return _add_bytes(b, n, tile)
    if kind == "images":
        return _add_images(b)
    if kind == "quarters":
        return _add_quarters(b)
    if kind == "biased":
        return _add_biased(b, src)
    return _add_reduction(b, kind, src, tile)


def _add_biased(b: _Builder, src: Buffer):
    """The columns of a constant matrix times what was there, and another constant for each column."""
    n, m = src.shape
    rows = index(b.draw(st.integers(1, 4), label="rows"))
    columns = index(b.draw(st.integers(1, 4), label="columns"))
    if not m.is_const:
        return _add_reduction(b, "rowsum", src, 2)
    w, v = b.given((rows, columns), scope=CONST), b.given((columns,), scope=CONST)
    i, j, k = var("i"), var("j"), var("k")
    b.terms += 20
    total, out = b.made((n, columns)), b.made((n, columns))
    iters = [*_iters((n, columns)), Iter("k", index(0), rows, "red")]
    value = Binary("mul", _ld(src, i, index(0)), _ld(w, k, j))
    sums = store(total.name, (i, j), Binary("add", _ld(total, i, j), value))
    b.stage(total, iters, sums, store(total.name, (i, j), b.const(0)))
    return b.stage(
        out, _iters((n, columns)), store(out.name, (i, j), Binary("add", _ld(total, i, j), _ld(v, j)))
    )


def _add_reduction(b: _Builder, kind, src: Buffer, tile):
    n, m = src.shape
    i, j, k = var("i"), var("j"), var("k")
    b.terms += 20
    if kind == "rowsum":
        out = b.made((n, index(1)))
        at = (i, index(0))
        iters = [*_iters((n,)), Iter("k", index(0), m, "red")]
        value = _ld(src, i, k)
    elif kind == "triangle":
        out = b.made((n, m))
        at = (i, j)
        iters = [*_iters((n, m)), Iter("k", index(0), j + 1, "red")]
        value = _ld(src, i, k)
    elif kind in ("conv", "strided"):
        taps = b.draw(st.integers(1, 3), label="taps")
        if not (m.is_const and m.const >= taps):
            return _add_reduction(b, "rowsum", src, tile)
        step = b.draw(st.integers(2, 3), label="step") if kind == "strided" else 1
        columns = index((m.as_int() - taps) // step + 1)
        out = b.made((n, columns))
        at = (i, j)
        iters = [*_iters((n, columns)), Iter("k", index(0), index(taps), "red")]
        w = b.given((index(taps),))
        value = Binary("mul", _ld(src, i, j * step + k), _ld(w, k))
    elif kind == "box":
        taps = b.draw(st.integers(2, 5), label="taps")
        if not (m.is_const and m.const >= taps):
            return _add_reduction(b, "rowsum", src, tile)
        out = b.made((n, m - (taps - 1)))
        at = (i, j)
        iters = [*_iters((n, m - (taps - 1))), Iter("k", index(0), index(taps), "red")]
        value = _ld(src, i, j + k)
    elif kind == "padconv":
        out = b.made((n, m))
        at = (i, j)
        iters = [*_iters((n, m)), Iter("k", index(0), index(3), "red")]
        w = b.given((index(3),))
        inside = Binary(
            "and",
            Compare("ge", OfIndex(j + k - 1, I32), Const(0, I32)),
            Compare("ge", OfIndex(m - j - k, I32), Const(0, I32)),
        )
        value = Binary("mul", Select(inside, _ld(src, i, j + k - 1), b.const(0)), _ld(w, k))
    else:  # matmul
        cols = b.size(tile)
        w = b.given((m, cols))
        out = b.made((n, cols))
        at = (i, j)
        iters = [*_iters((n, cols)), Iter("k", index(0), m, "red")]
        value = Binary("mul", _ld(src, i, k), _ld(w, k, j))
    op = "add" if kind == "padconv" else b.draw(st.sampled_from(["add", "add", "max"]), label="reduction")
    lowest = out.dtype.min_value if kind == "box" else -1000
    zero = Const(lowest, out.dtype) if op == "max" else b.const(0)
    body = store(out.name, at, Binary(op, _ld(out, *at), value))
    return b.stage(out, iters, body, store(out.name, at, zero))


def _add_extremes(b: _Builder, src: Buffer):
    """The largest and the smallest element of each row, by one statement; the one plus twice the other."""
    n, m = src.shape
    high, low = b.made((n, index(1))), b.made((n, index(1)))
    i, j, k = var("i"), var("j"), var("k")
    at = (i, index(0))
    results = (high, "max", -1000), (low, "min", 1000)
    body = Store(tuple(Access(t.name, at, Binary(op, _ld(t, *at), _ld(src, i, k))) for t, op, _ in results))
    init = Store(tuple(Access(t.name, at, b.const(first)) for t, _, first in results))
    b.stage(high, [*_iters((n,)), Iter("k", index(0), m, "red")], body, init)
    out = b.made((n, index(1)))
    value = Binary("add", _ld(high, i, j), Binary("mul", b.const(2), _ld(low, i, j)))
    return b.stage(out, _iters((n, index(1))), store(out.name, (i, j), value))


def _add_dots(b: _Builder, rows, tile):
    """Sums of products of narrow factors, in whole groups as instructions take them."""
    left, right, depth = (U8, I8, 4) if b.dtype == I32 else (BF16, BF16, 2)
    groups, cols = b.draw(st.integers(1, 3), label="groups"), b.size(tile)
    i, j, k = var("i"), var("j"), var("k")
    inner = index(depth * groups)
    # rows of the first factor: one after the other, some apart, overlapping
    step = b.draw(st.integers(0, 2), label="step")
    if step and rows.is_const:
        x, at = b.given(((rows - 1) * step + 1, inner), left), (i * step, k)
    elif rows.is_const:
        x, at = b.given((rows + inner - 1,), left), (i + k,)
    else:
        x, at = b.given((rows, inner), left), (i, k)
    across = b.draw(st.booleans(), label="across")
    w = b.given((cols, inner) if across else (inner, cols), right)
    out = b.made((rows, cols))
    factors = [Cast(_ld(x, *at), b.dtype), Cast(_ld(w, *((j, k) if across else (k, j))), b.dtype)]
    if b.draw(st.booleans(), label="turned"):
        factors.reverse()
    b.terms += 4 * depth * groups
    iters = [*_iters((rows, cols)), Iter("k", index(0), index(depth * groups), "red")]
    body = store(out.name, (i, j), Binary("add", _ld(out, i, j), Binary("mul", *factors)))
    return b.stage(out, iters, body, store(out.name, (i, j), b.const(0)))


def _add_factors(b: _Builder, rows, tile):
    """A sum over two axes of products of three factors, the last of which one of the axes does not move."""
    cols, inner, deep = (b.size(tile), *(index(b.draw(st.integers(1, 3), label=x)) for x in "kr"))
    i, j, k, r = (var(x) for x in "ijkr")
    x, y, w = b.given((rows, inner), b.dtype), b.given((inner, deep), b.dtype), b.given((cols, deep), b.dtype)
    out = b.made((rows, cols))
    b.terms += 8 * 9
    iters = [*_iters((rows, cols)), Iter("k", index(0), inner, "red"), Iter("r", index(0), deep, "red")]
    product = Binary("mul", Binary("mul", _ld(x, i, k), _ld(y, k, r)), _ld(w, j, r))
    body = store(out.name, (i, j), Binary("add", _ld(out, i, j), product))
    return b.stage(out, iters, body, store(out.name, (i, j), b.const(0)))


def _add_sums(b: _Builder, rows, tile):
    """A sum of ``(x + y) * w``, or of ``x * w + y * w``."""
    cols, inner = b.size(tile), index(b.draw(st.integers(1, 5), label="inner"))
    i, j, k = (var(x) for x in "ijk")
    x, y, w = (
        b.given((rows, inner), b.dtype),
        b.given((rows, inner), b.dtype),
        b.given((inner, cols), b.dtype),
    )
    out, factor = b.made((rows, cols)), _ld(w, k, j)
    b.terms += 8 * 10
    term = Binary("mul", Binary("add", _ld(x, i, k), _ld(y, i, k)), factor)
    if b.draw(st.booleans(), label="expanded"):
        term = Binary("add", Binary("mul", _ld(x, i, k), factor), Binary("mul", _ld(y, i, k), factor))
    iters = [*_iters((rows, cols)), Iter("k", index(0), inner, "red")]
    body = store(out.name, (i, j), Binary("add", _ld(out, i, j), term))
    return b.stage(out, iters, body, store(out.name, (i, j), b.const(0)))


def _add_bytes(b: _Builder, rows, tile):
    """A product of signed bytes, summed up in words."""
    cols, inner = b.size(tile), index(b.draw(st.integers(1, 6), label="inner"))
    i, j, k = (var(x) for x in "ijk")
    x, w = b.given((rows, inner), I8), b.given((inner, cols), I8)
    out = b.made((rows, cols))
    b.terms += 8 * 6
    factors = [Cast(_ld(x, i, k), b.dtype), Cast(_ld(w, k, j), b.dtype)]
    if b.draw(st.booleans(), label="turned"):
        factors.reverse()
    iters = [*_iters((rows, cols)), Iter("k", index(0), inner, "red")]
    body = store(out.name, (i, j), Binary("add", _ld(out, i, j), Binary("mul", *factors)))
    return b.stage(out, iters, body, store(out.name, (i, j), b.const(0)))


def _add_quarters(b: _Builder):
    """A product with a constant matrix, all sizes even."""
    n, m, depth = (index(2 * b.draw(st.integers(1, 3), label=name)) for name in ("rows", "columns", "depth"))
    x, w = b.given((n, depth), F32), b.given((depth, m), F32, CONST)
    i, j, k = var("i"), var("j"), var("k")
    out = b.made((n, m), F32)
    # quarters are added and subtracted
    b.terms += 1000
    iters = [*_iters((n, m)), Iter("k", index(0), depth, "red")]
    term = Binary("mul", _ld(x, i, k), _ld(w, k, j))
    body = store(out.name, (i, j), Binary("add", _ld(out, i, j), term))
    return b.stage(out, iters, body, store(out.name, (i, j), b.const(0)))


def _add_images(b: _Builder):
    """A 3x3 convolution of stride 1 by constant weights, and the sum of its first and last channel."""
    ic, oc = (index(b.draw(st.integers(1, 3), label=name)) for name in ("ic", "oc"))
    height, width = (index(b.draw(st.integers(1, 5), label=name)) for name in ("height", "width"))
    x = b.given((index(1), ic, height + 2, width + 2), F32)
    w = b.given((oc, ic, index(3), index(3)), F32, CONST)
    made = b.made((index(1), oc, height, width), F32)
    n, o, h, v, c, p, q = map(var, ("n", "o", "h", "v", "c", "p", "q"))
    at = (n, o, h, v)
    iters = [
        *(Iter(str(name), index(0), e, "par") for name, e in zip("nohv", made.shape, strict=True)),
        *(Iter(name, index(0), e, "red") for name, e in (("c", ic), ("p", index(3)), ("q", index(3)))),
    ]
    term = Binary("mul", _ld(x, n, c, h + p, v + q), _ld(w, o, c, p, q))
    # transforms add and subtract what the sums do not
    b.terms += 1000
    b.stage(
        made,
        iters,
        store(made.name, at, Binary("add", _ld(made, *at), term)),
        store(made.name, at, b.const(0)),
    )
    out = b.made((height, width), F32)
    i, j = var("i"), var("j")
    value = Binary("add", _ld(made, 0, 0, i, j), _ld(made, 0, oc - 1, i, j))
    return b.stage(out, _iters((height, width)), store(out.name, (i, j), value))


@st.composite
def cases(draw, start=(), stages=(1, 4)):
    """A random :class:`Case`; ``start`` restricts the kinds of the first stages."""
    exact = draw(st.booleans(), label="exact")
    floats = bool(start) and not {"images", "quarters"}.isdisjoint(start[0])
    dtype = draw(st.sampled_from([F32, I32]), label="dtype") if exact and not floats else F32
    tile = draw(st.sampled_from(TILES), label="T")
    b = _Builder(draw, exact, dtype)
    symbolic = draw(st.integers(0, 3), label="symbolic") == 0
    src = b.given((b.size(tile, symbolic), b.size(tile, symbolic)))
    count = draw(st.integers(*stages), label="stages")
    for n in range(count):
        kind = draw(st.sampled_from(start[n] if n < len(start) else KINDS), label="kind")
        again = n >= max(1, len(start)) and draw(st.integers(0, 4), label="reuse") == 4
        source = b.inputs[0] if again else src
        if kind == "update" and source is not src:
            source = src
        src = _add_stage(b, kind, source, tile)
    written = {name for s in b.stages for name in s.writes}
    read = {ld for s in b.stages for ld in s.reads}
    outputs = [t for t in b.temps if t.name in written and (t is src or t.name not in read)]
    temps = [t for t in b.temps if t not in outputs]
    program = Program(
        "random", tuple(b.params), tuple(b.inputs), tuple(outputs), tuple(temps), tuple(b.stages)
    )
    return Case(program, {p.name: n for p, n in b.params.items()}, exact, b.terms)
