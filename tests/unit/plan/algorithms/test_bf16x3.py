"""Default schedules with products of bf16 pieces: right everywhere, and chosen where that pays."""

from dataclasses import replace

import numpy as np
import pytest

from native_kernel import LANES, STATED, Native
from tilewright import lang
from tilewright.build import pack
from tilewright.cost import Machine
from tilewright.ir import CONST, run_function, verify
from tilewright.lang import ops
from tilewright.plan import EXACT
from tilewright.plan.algorithms import bf16x3
from tilewright.plan.algorithms.bf16x3 import choose_bf16x3
from tilewright.schedule import Schedule, derived_constants, replay
from tilewright.strategies import default_schedule
from tilewright.target import INTERPRETED
from unit.codegen.test_tiles import AMX

#: What products of pieces leave out, relative to each product.
LEFT_OUT = 2.0**-15


def known(program, *names):
    inputs = tuple(b.with_(scope=CONST) if b.name in names else b for b in program.inputs)
    return replace(program, inputs=inputs)


def product(m, n, k, *, constant=True, epilogue=False):
    a, b = lang.placeholder((m, k), name="A"), lang.placeholder((k, n), name="B")
    c = ops.matmul(a, b, name="C")
    inputs = [a, b]
    if epilogue:
        bias = lang.placeholder((n,), name="bias")
        inputs.append(bias)
        made = c
        c = lang.compute((m, n), lambda i, j: lang.relu(made[i, j] + bias[j]), name="Y")
    program = lang.program(inputs, [c])
    return known(program, "B", "bias") if constant else program


def convolution(channels, filters, size, kernel, stride=1):
    """Channels last, as the layouts of values between kernels have them in blocks."""
    pad = kernel // 2
    whole = size + 2 * pad
    out = (whole - kernel) // stride + 1
    x = lang.placeholder((size, size, channels), name="X")
    w = lang.placeholder((kernel, kernel, channels, filters), name="W")

    def padded(y, x_, c):
        inside = (y >= pad) & (y < size + pad) & (x_ >= pad) & (x_ < size + pad)
        return lang.select(inside, x[y - pad, x_ - pad, c], 0.0)

    p = lang.compute((whole, whole, channels), padded, name="P") if pad else x
    c, i, j = (lang.reduce_axis(n, name) for n, name in ((channels, "c"), (kernel, "i"), (kernel, "j")))

    def term(h, v, o):
        return lang.sum(p[stride * h + i, stride * v + j, c] * w[i, j, c, o], axis=(c, i, j))

    y = lang.compute((out, out, filters), term, name="Y")
    return known(lang.program([x, w], [y]), "W")


def check(program, s, *, interpret):
    verify(s.func)
    assert replay(program, s.trace).func == s.func
    rng = np.random.default_rng(0)
    arrays = {
        b.name: rng.standard_normal([e.as_int() for e in b.shape]).astype(np.float32) for b in program.inputs
    }
    wanted = lang.evaluate(program, arrays, dtype_override="f64")
    size = lang.evaluate(program, {n: np.abs(a) for n, a in arrays.items()}, dtype_override="f64")
    derived = derived_constants(s)
    given = {
        b.name: pack(derived[b.name].of(arrays), b) if b.name in derived else pack(arrays[b.name], b)
        for b in s.func.buffers
        if b.name not in s.func.outputs
    }
    runs = []
    if interpret:
        runs.append(run_function(s.func, given, instructions=INTERPRETED))
    if STATED.tiles:
        runs.append(Native(s.func)(given))
    for made in runs:
        for name, exact in wanted.items():
            assert np.all(np.abs(made[name] - exact) <= (LEFT_OUT + 1e-5) * size[name] + 1e-30)
    return s


def primitives(s):
    return [step.primitive for step in s.trace.steps]


@pytest.fixture
def always(monkeypatch):
    """However little it gains."""
    monkeypatch.setattr(bf16x3, "MARGIN", 0.0)


SIZES = [(32, 64, 64), (17, 48, 64), (14, 30, 44), (35, 28, 96), (64, 96, 32), (16, 16, 66)]


@pytest.mark.few(9)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("constant", "epilogue"), [(True, False), (True, True), (False, False)])
def test_products(m, n, k, threads, constant, epilogue, always):
    program = product(m, n, k, constant=constant, epilogue=epilogue)
    s = default_schedule(program, Machine(AMX, threads))
    if m != 17:
        assert "tdpbf16ps(" in str(s)
    check(program, s, interpret=m * n * k <= 100_000 and threads < 3)


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "sizes",
    [
        (32, 32, 8, 1),
        (64, 32, 7, 3),
        (32, 48, 9, 3, 2),
        (64, 16, 3, 5),
        (36, 32, 14, 1),
    ],
    ids=lambda sizes: "-".join(map(str, sizes)),
)
@pytest.mark.parametrize("threads", [1, 2])
def test_convolutions(sizes, threads, always):
    program = convolution(*sizes)
    s = default_schedule(program, Machine(AMX, threads))
    assert "tdpbf16ps(" in str(s)
    check(program, s, interpret=threads == 2 and sizes[0] * sizes[1] < 2000)


def test_chosen_where_it_pays():
    def chosen(program, target=AMX, **options):
        return "bf16x3" in primitives(default_schedule(program, Machine(target, 2), **options))

    assert chosen(product(512, 512, 512))
    assert chosen(product(512, 512, 512, constant=False))
    assert chosen(convolution(256, 256, 14, 3))
    # little to compute for what is read, or for what is stored
    assert not chosen(product(4, 512, 512))
    assert not chosen(product(512, 4, 512))
    assert not chosen(convolution(16, 64, 56, 1))
    # nothing to compute at all
    assert not chosen(product(16, 5, 0)) and not chosen(product(0, 5, 16))
    # where products must be those of the program, or nothing does them faster
    assert not chosen(product(512, 512, 512), accuracy=EXACT)
    assert not chosen(product(512, 512, 512), accuracy=EXACT)
    assert not chosen(product(512, 512, 512), LANES)
    assert not chosen(product(512, 512, 512), replace(AMX, tiles=0))


@pytest.mark.parametrize(("batch", "m"), [(16, 128), (None, 2048)])
def test_many_rows_are_done_by_pieces_not_by_strassen_s_method(batch, m):
    shape = (m, 768) if batch is None else (batch, m, 768)
    X, W = lang.placeholder(shape, name="X"), lang.placeholder((768, 768), name="W")
    r = lang.reduce_axis(768, "r")
    Y = lang.compute(shape, lambda *i: lang.sum(X[(*i[:-1], r)] * W[r, i[-1]], axis=r), name="Y")
    program = known(lang.program([X, W], [Y]), "W")
    assert "bf16x3" in primitives(default_schedule(program, Machine(AMX, 2)))


def test_pieces_of_a_matrix_lie_in_panels():
    s = default_schedule(product(512, 300, 512, constant=False), Machine(AMX, 2))
    assert "alloc C_factors: bf16[10, 256, 2, 30, 2]" in str(s)


def test_operands_are_split_in_whole_vectors():
    """One pass makes both pieces of what it reads."""
    text = str(default_schedule(product(512, 512, 512), Machine(AMX, 2)))
    lines = text.splitlines()
    at = next(n for n, line in enumerate(lines) if "block C_padded" in line)
    assert " vector" in lines[at - 1]
    assert " unroll" in lines[at - 2]


def test_the_model_counts_what_is_moved():
    """Rows that fill tiles badly take longer than more of them that fill them well."""

    def cycles(program):
        s = Schedule(program)
        return choose_bf16x3(s, s.program.stage("C"), Machine(AMX, 2)).cycles

    assert cycles(product(35, 1504, 512)) > cycles(product(48, 1504, 512))


def test_sums_that_are_no_product_of_matrices_stay():
    """Both operands of attention are computed, and lie as their makers put them."""
    q, k = lang.placeholder((4, 64, 32), name="Q"), lang.placeholder((4, 64, 32), name="K")
    d = lang.reduce_axis(32, "d")
    scores = lang.compute((4, 64, 64), lambda h, i, j: lang.sum(q[h, i, d] * k[h, j, d], axis=d), name="S")
    s = Schedule(lang.program([q, k], [scores]))
    assert choose_bf16x3(s, s.program.stage("S"), Machine(AMX, 2)) is None
