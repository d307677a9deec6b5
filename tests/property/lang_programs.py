"""Small random programs written in the language: one to four stages of every kind it has.

Integer programs compute exactly; float programs are compared under the bound of ``support.numerics``. The
cases look like those of ``ir_programs``, so the schedule fuzzer can draw either.
"""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tilewright import ir, lang
from tilewright.lang import ops
from tilewright.support import assert_close

KINDS = (
    "pointwise", "broadcast", "select", "stencil", "pad", "transpose", "reshape", "strided", "concat",
    "gather", "rowsum", "where", "triangle", "extremum", "argmax", "matmul", "conv", "softmax", "pair",
    "scan", "scatter", "update", "unordered",
)  # fmt: skip
PURE = tuple(k for k in KINDS if k not in ("scan", "scatter", "update", "unordered"))


@dataclass(frozen=True)
class LangCase:
    """A program with values of its parameters; ``exact`` where no operation rounds."""

    program: ir.Program
    params: dict
    exact: bool

    @property
    def terms(self):
        """Roundings behind one element."""
        return max(lang.roundings(self.program, self.params).values())

    def __repr__(self):
        return f"{self.program} with {self.params}"

    def inputs(self, seed=0):
        """Random arguments by name."""
        rng = np.random.default_rng(seed)
        out = {}
        for b in self.program.inputs:
            shape = tuple(ir.evaluate_index(n, self.params) for n in b.shape)
            if b.dtype.is_integer:
                lo = 0 if b.dtype.kind == "uint" else -4
                out[b.name] = rng.integers(lo, 5, shape).astype(b.dtype.numpy)
            else:
                out[b.name] = np.asarray(rng.uniform(-2, 2, shape)).astype(b.dtype.numpy)
        return out

    def check(self, actual, arrays):
        """Compare the outputs of some execution with the evaluator's."""
        if self.exact:
            for name, want in lang.evaluate(self.program, arrays, self.params).items():
                np.testing.assert_array_equal(actual[name], want, err_msg=name)
            return
        exact = lang.evaluate(self.program, arrays, self.params, dtype_override="f64")
        sizes = lang.evaluate(self.program, arrays, self.params, absolute=True)
        terms = lang.roundings(self.program, self.params)
        for name, want in exact.items():
            if want.dtype.kind == "f":
                assert_close(actual[name], want, magnitude=sizes[name], terms=terms[name], what=name)


class _Builder:
    """Tensors of two dimensions, one stage (or one operator) after another."""

    def __init__(self, draw, dtype, largest):
        self.draw = draw
        self.dtype = ir.dtype_of(dtype)
        self.largest = largest
        self.params = {}
        self.inputs = []

    def pick(self, options, label="option"):
        return self.draw(st.sampled_from(list(options)), label=label)

    def number(self, lo, hi, label="number"):
        return self.draw(st.integers(lo, hi), label=label)

    def extent(self, symbolic=False):
        n = self.number(1, self.largest, "extent")
        if symbolic and len(self.params) < 2:
            name = f"N{len(self.params)}"
            self.params[name] = n
            return lang.param(name, 1, 64)
        return n

    def value(self, extent):
        index = ir.index(extent.index if isinstance(extent, lang.IndexExpr) else extent)
        return ir.evaluate_index(index, self.params)

    def given(self, shape, dtype=None):
        t = lang.placeholder(shape, dtype or self.dtype, name=f"A{len(self.inputs)}")
        self.inputs.append(t)
        return t

    def fixed(self, t):
        """Whether all extents are constants."""
        return all(s.index.is_const for s in t.shape)

    # each kind: a tensor of two dimensions to one of two dimensions (or a reason to take another kind: None)

    def pointwise(self, x):
        n = self.number(0, 5, "operation")
        is_int = self.dtype.is_integer
        table = [
            lambda v, i, j: v * 2 + i - j,
            lambda v, i, j: lang.maximum(v, 1) - lang.minimum(v, 0),
            lambda v, i, j: abs(v) + 1,
            lambda v, i, j: v // 3 + v % 3 if is_int else v / (abs(v) + 1),
            lambda v, i, j: (v & 6) ^ 3 if is_int else lang.tanh(v),
            lambda v, i, j: lang.truncdiv(v, 2) + lang.rem(v, 2) if is_int else lang.exp(-abs(v)),
        ]
        return lang.compute(x.shape, lambda i, j: table[n](x[i, j], i, j))

    def broadcast(self, x):
        row = self.given((1, x.shape[1]))
        return self.pick([ops.add, ops.subtract, ops.multiply, ops.maximum])(x, row)

    def select(self, x):
        k = self.number(-1, 4)
        return lang.compute(
            x.shape, lambda i, j: lang.select((i + j <= k) | (x[i, j] > 1), x[i, j] + 1, x[i, j] * 2)
        )

    def stencil(self, x):
        modes = ["constant", "clamp", "reflect"] + (["wrap"] if self.fixed(x) else [])
        view = lang.boundary(x, mode=self.pick(modes, "mode"))
        a, b = self.number(-2, 2), self.number(-2, 2)
        return lang.compute(x.shape, lambda i, j: view[i + a, j] + view[i, j + b] - x[i, j])

    def pad(self, x):
        lo, hi = self.number(0, 2), self.number(0, 2)
        return ops.pad(x, [(lo, 0), (0, hi)], self.number(0, 1))

    def transpose(self, x):
        return ops.transpose(x)

    def reshape(self, x):
        if not self.fixed(x):
            return None
        n, m = (int(s) for s in x.shape)
        rows = self.pick([d for d in range(1, n * m + 1) if n * m % d == 0], "rows")
        return ops.reshape(x, (rows, n * m // rows))

    def strided(self, x):
        if not self.fixed(x):
            return None
        step = self.number(1, 3)
        rows = (int(x.shape[0]) + step - 1) // step
        return lang.compute((rows, x.shape[1]), lambda i, j: x[i * step, x.shape[1] - 1 - j])

    def concat(self, x):
        return ops.concat([x, self.given((self.extent(), x.shape[1]))])

    def gather(self, x):
        return ops.gather(x, self.given((self.extent(),), "i64"), self.number(0, 1))

    def rowsum(self, x):
        k = lang.reduce_axis(x.shape[1], "k")
        return lang.compute((x.shape[0], 1), lambda i, j: lang.sum(x[i, k], axis=k) - 1)

    def where(self, x):
        k = lang.reduce_axis(x.shape[1], "k")
        c = self.number(0, 3)
        fold = self.pick([lang.sum, lang.max, lang.min], "reduction")
        return lang.compute(
            (x.shape[0], x.shape[1]),
            lambda i, j: lang.select(j > 0, fold(x[i, k], axis=k, where=(k <= j) & (x[i, k] > c)), x[i, j]),
        )

    def triangle(self, x):
        def element(i, j):
            k = lang.reduce_axis((0, j + 1), "k")
            return lang.sum(x[i, k], axis=k)

        return lang.compute(x.shape, element)

    def extremum(self, x):
        kind = self.pick(["max", "min"])
        return ops.reduce(kind, x, self.number(0, 1), keepdims=True)

    def argmax(self, x):
        fold = self.pick([lang.argmax, lang.argmin])
        k = lang.reduce_axis(x.shape[1], "k")
        at = lang.compute((x.shape[0],), lambda i: fold(x[i, k], axis=k))
        return lang.compute(x.shape, lambda i, j: lang.cast(at[i], self.dtype) + x[i, j])

    def matmul(self, x):
        return ops.matmul(x, self.given((x.shape[1], self.extent())))

    def conv(self, x):
        if not self.fixed(x):
            return None
        taps, step = self.number(1, 3), self.number(1, 2)
        image = ops.reshape(x, (1, *x.shape))
        w = self.given((self.number(1, 3), x.shape[0], taps))
        y = ops.conv(image, w, strides=step, padding=[(taps - 1, 1)])
        return ops.reshape(y, y.shape[1:])

    def softmax(self, x):
        return None if self.dtype.is_integer else ops.softmax(x, self.number(0, 1))

    def pair(self, x):
        k = lang.reduce_axis(x.shape[0], "k")
        best, at = lang.compute((x.shape[1],), lambda j: lang.max_with_index(x[k, j], axis=k))
        return lang.compute(x.shape, lambda i, j: lang.select(at[j] == i, best[j], x[i, j]))

    def scan(self, x):
        d = self.number(0, 1, "axis")

        def element(t, i, j):
            before = t[i - 1, j] if d == 0 else t[i, j - 1]
            return lang.select((i, j)[d] >= 1, before, 0) + x[i, j]

        return lang.scan(x.shape, element, axis=d, dtype=self.dtype)

    def scatter(self, x):
        rows = self.extent()
        at, new = self.given((rows, x.shape[1]), "i64"), self.given((rows, x.shape[1]))
        return lang.scatter(x, at, new, 0, self.pick([None, "add", "max"]))

    def update(self, x):
        n = x.shape[0]
        return lang.update(x, [lang.axis(x.shape[1], "j"), lang.ordered_axis((1, n), "t")], _step)

    def unordered(self, x):
        if not self.fixed(x):
            return None
        n, m = (extent.index.as_int() for extent in x.shape)
        at = self.given((n, m), "u8")
        combine = self.pick([lambda a, b: a + b, lang.maximum, lang.minimum])
        axes = [lang.reduce_axis(n, "p"), lang.reduce_axis(m, "q")]

        def step(t, p, q):
            return lang.write((at[p, q] % n, q), combine(t[at[p, q] % n, q], x[p, q]))

        return lang.update(x, axes, step)


def _step(t, j, s):
    return lang.write((s, j), t[s - 1, j] + t[s, j])


@st.composite
def lang_cases(draw, kinds=KINDS, dtypes=("f32", "i32"), stages=(1, 4), largest=9):
    """A random :class:`LangCase` of some operators in sequence, sometimes with several outputs."""
    dtype = draw(st.sampled_from(list(dtypes)), label="dtype")
    b = _Builder(draw, dtype, largest)
    symbolic = draw(st.integers(0, 3), label="symbolic") == 0
    x = b.given((b.extent(symbolic), b.extent(symbolic)))
    outputs = []
    for _ in range(draw(st.integers(*stages), label="stages")):
        kind = draw(st.sampled_from(list(kinds)), label="kind")
        x = getattr(b, kind)(x) or b.pointwise(x)
        if draw(st.integers(0, 4), label="keep") == 0:
            outputs.append(x)
    if all(x is not t for t in outputs):
        outputs.append(x)
    program = lang.program(b.inputs, outputs, "random")
    return LangCase(program, b.params, ir.dtype_of(dtype).is_integer)
