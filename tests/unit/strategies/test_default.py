"""Default schedules: right on the interpreter and natively, for every kind of axis and many sizes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.native_kernel import LANES, STATED, Native

from tilewright import lang
from tilewright.build import pack, unpack
from tilewright.cost import Machine
from tilewright.ir import CONST, Program, run_function
from tilewright.lang import ops
from tilewright.plan import AUTO, EXACT, Accuracy, Flow, assign_layouts
from tilewright.plan.algorithms import winograd
from tilewright.plan.contraction import rule as default
from tilewright.schedule import derived_constants, replay
from tilewright.strategies import default_schedule


def t(*shape, name, dtype="f32"):
    return lang.placeholder(shape, dtype, name=name)


def constant(program: Program, *names: str) -> Program:
    """The program with some inputs known at compile time."""
    inputs = tuple(b.with_(scope=CONST) if b.name in names else b for b in program.inputs)
    return replace(program, inputs=inputs)


def blocked(program: Program) -> Program:
    """The program with values in the layouts that a model would give them."""
    inputs = {b.name: b.name for b in program.inputs}
    outputs = {b.name: b.name for b in program.outputs}
    return assign_layouts([Flow(program, inputs, outputs)], (), STATED)[0]


def check(program, *, threads=2, accuracy=AUTO, interpret=True, tolerance=1e-5, target=STATED):
    """Schedule, run in both ways, and compare with the reference; returns the schedule."""
    s = default_schedule(program, Machine(target, threads), accuracy=accuracy)
    check_schedule(program, s, interpret=interpret, tolerance=tolerance)
    assert str(replay(s.source, s.trace)) == str(s)
    return s


def check_schedule(program, s, *, interpret=False, tolerance=1e-5):
    """Run a schedule of a program and compare with the reference."""
    rng = np.random.default_rng(3)
    arrays = {}
    for b in program.inputs:
        shape = [e.as_int() for e in b.shape]
        if b.dtype.is_float:
            arrays[b.name] = rng.standard_normal(shape).astype(b.dtype.numpy)
        else:
            arrays[b.name] = rng.integers(-9, 9, shape).astype(b.dtype.numpy)
    plain = replace(
        program,
        inputs=tuple(b.with_(layout=None) for b in program.inputs),
        outputs=tuple(b.with_(layout=None) for b in program.outputs),
    )
    wanted = lang.evaluate(plain, arrays)
    derived = derived_constants(s)
    given = {}
    for b in s.func.buffers:
        if b.name in s.func.outputs:
            continue
        made = derived.get(b.name)
        given[b.name] = pack(arrays[b.name] if made is None else made.of(arrays), b)
    results = [Native(s.func)(given)]
    if interpret:
        results.append(run_function(s.func, given, seed=1))
    for got in results:
        for b in program.outputs:
            value = unpack(got[b.name], b)
            scale = max(1.0, float(np.abs(wanted[b.name]).max()))
            np.testing.assert_allclose(value, wanted[b.name], rtol=0, atol=tolerance * scale)


def conv_program(n, ic, oc, spatial, window, stride=1, pad=0, groups=1, dilation=1, epilogue=True):
    x, w = t(n, ic, *spatial, name="X"), t(oc, ic // groups, *window, name="W")
    y = ops.conv(
        x, w, strides=stride, padding=pad, groups=groups, dilations=dilation, name="Y0" if epilogue else "Y"
    )
    inputs = [x, w]
    if epilogue:
        b = t(oc, name="B")
        r = t(*[e.index.as_int() for e in y.shape], name="R")
        rank = len(spatial)
        y = lang.compute(
            y.shape,
            lambda *i: lang.maximum(y[i] + b[i[1]] + r[i], 0),
            name="Y",
            axes=["n", "oc", *["od", "oh", "ow"][-rank:]],
        )
        inputs += [b, r]
    return constant(lang.program(inputs, [y]), "W", "B")


CONVOLUTIONS = {
    "3x3 padded": ((1, 16, 32, (9, 17), (3, 3)), {"pad": 1}),
    "3x3 two tiles": ((1, 8, 16, (3, 30), (3, 3)), {"pad": 1}),
    "3x3 unpadded": ((2, 16, 16, (5, 6), (3, 3)), {}),
    "5x5 strided": ((1, 4, 16, (9, 11), (5, 5)), {"stride": 2, "pad": 2}),
    "7x7 first layer": ((1, 3, 16, (15, 15), (7, 7)), {"stride": 2, "pad": 3}),
    "1x1": ((1, 32, 48, (4, 15), (1, 1)), {}),
    "1x1 strided": ((1, 16, 32, (5, 7), (1, 1)), {"stride": 2}),
    "dilated": ((1, 8, 16, (9, 9), (3, 3)), {"pad": 2, "dilation": 2}),
    "depthwise": ((1, 32, 32, (6, 15), (3, 3)), {"pad": 1, "groups": 32}),
    "depthwise strided": ((1, 16, 16, (7, 9), (3, 3)), {"pad": 1, "groups": 16, "stride": 2}),
    "grouped": ((1, 16, 32, (4, 5), (3, 3)), {"pad": 1, "groups": 4}),
    "24 channels": ((1, 16, 24, (4, 5), (1, 1)), {}),
    "odd channels": ((1, 5, 7, (4, 5), (3, 3)), {"pad": 1}),
    "1-D": ((1, 8, 16, (19,), (3,)), {"pad": 1}),
    "3-D": ((1, 4, 16, (3, 4, 6), (3, 3, 3)), {"pad": 1}),
    "one pixel": ((1, 16, 16, (1, 1), (3, 3)), {"pad": 1}),
}


@pytest.mark.few(16)
@pytest.mark.parametrize("layout", [lambda p: p, blocked], ids=["plain", "blocked"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(case, layout):
    args, options = CONVOLUTIONS[case]
    check(layout(conv_program(*args, **options)), accuracy=EXACT, interpret=False)


@pytest.mark.few(2)
@pytest.mark.parametrize("case", ["3x3 padded", "depthwise", "3-D", "24 channels"])
@pytest.mark.parametrize("threads", [1, 3])
def test_convolutions_on_the_interpreter(case, threads):
    args, options = CONVOLUTIONS[case]
    small = (args[0], min(args[1], 16), min(args[2], 24), *args[3:])
    if "groups" in options:
        small = args
    check(blocked(conv_program(*small, **options)), threads=threads, accuracy=EXACT)


def test_a_convolution_without_consumer():
    check(blocked(conv_program(1, 16, 32, (5, 9), (3, 3), pad=1, epilogue=False)), accuracy=EXACT)


@pytest.mark.few(4)
@pytest.mark.parametrize("mode", ["f2", "f4"])
@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((1, 16, 32, (9, 13), (3, 3)), {"pad": 1}),
        ((1, 32, 16, (8, 8), (3, 3)), {}),
        ((2, 16, 16, (5, 4), (3, 3)), {"pad": 1}),
        ((1, 16, 16, (3, 7, 6), (3, 3, 3)), {"pad": 1}),
        ((1, 16, 16, (6, 6), (3, 3)), {"pad": 1, "epilogue": False}),
    ],
    ids=["padded", "unpadded", "batch", "3-D", "no epilogue"],
)
def test_winograd(mode, args, options):
    s = check(
        blocked(conv_program(*args, **options)), accuracy=Accuracy(mode), interpret=False, tolerance=5e-5
    )
    assert "winograd" in [step.primitive for step in s.trace.steps]


def test_winograd_on_the_interpreter():
    check(blocked(conv_program(1, 16, 16, (4, 5), (3, 3), pad=1)), accuracy=Accuracy("f2"), tolerance=5e-5)


@pytest.mark.parametrize("when", ["at once", "packed"])
def test_winograd_gives_way_where_its_products_have_no_register_tile(monkeypatch, caplog, when):
    from_packing = winograd.is_tileable

    def none(program, stage, target, epilogue=None, *, packed=True):
        return (
            from_packing(program, stage, target, epilogue, packed=packed)
            if when == "packed" and not packed
            else None
        )

    monkeypatch.setattr(winograd, "is_tileable", none)
    with caplog.at_level("INFO", "tilewright"):
        s = check(
            blocked(conv_program(1, 16, 16, (6, 6), (3, 3), pad=1)), accuracy=Accuracy("f2"), interpret=False
        )
    assert "winograd" not in [step.primitive for step in s.trace.steps]
    assert "the direct method: Y0_points has no register tile" in caplog.text


def test_a_layout_that_leaves_no_register_tile_is_given_up(monkeypatch, caplog):
    found = default.is_tileable

    def none(program, *args, **kwargs):
        return None if any(b.layout is not None for b in program.inputs) else found(program, *args, **kwargs)

    monkeypatch.setattr(default, "is_tileable", none)
    a, b = t(64, 64, name="A"), t(64, 64, name="B")
    program = constant(lang.program([a, b], ops.matmul(a, b, name="Y")), "B")
    with caplog.at_level("INFO", "tilewright"):
        check(program, accuracy=EXACT, interpret=False)
    assert "the layout of B leaves Y without a register tile" in caplog.text


def test_without_winograd_the_schedule_is_the_direct_one():
    s = check(blocked(conv_program(1, 64, 64, (28, 28), (3, 3), pad=1)), accuracy=EXACT, interpret=False)
    assert "winograd" not in [step.primitive for step in s.trace.steps]


def test_auto_takes_winograd_where_it_pays_and_direct_where_it_does_not():
    def steps(program):
        return [step.primitive for step in default_schedule(blocked(program), Machine(LANES, 2)).trace.steps]

    assert "winograd" in steps(conv_program(1, 64, 64, (56, 56), (3, 3), pad=1))
    assert "winograd" not in steps(conv_program(1, 16, 16, (1, 1), (3, 3), pad=1))
    assert "winograd" not in steps(conv_program(1, 64, 64, (56, 56), (3, 3), pad=1, stride=2))


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 1, 1), (1, 16, 7), (7, 48, 5), (17, 49, 33), (9, 312, 20), (130, 15, 4), (3, 100, 64), (40, 64, 1)],
)
@pytest.mark.parametrize("known", [True, False], ids=["packed", "as given"])
@pytest.mark.parametrize("transposed", [False, True], ids=["kn", "nk"])
def test_matrix_products(m, n, k, known, transposed):
    a, b = t(m, k, name="A"), t(*((n, k) if transposed else (k, n)), name="B")
    p = lang.program([a, b], [ops.matmul(a, b, transpose_b=transposed, name="C")])
    check(constant(p, "B") if known else p, interpret=m * n * k < 9000)


@settings(deadline=None, max_examples=12)
@given(
    st.integers(1, 40),
    st.integers(1, 70),
    st.integers(1, 24),
    st.integers(1, 3),
    st.sampled_from(["f32", "f64"]),
)
def test_matrix_products_of_any_size(m, n, k, threads, dtype):
    a, b = t(m, k, name="A", dtype=dtype), t(k, n, name="B", dtype=dtype)
    bias = t(n, name="D", dtype=dtype)
    y = lang.compute((m, n), lambda i, j: lang.tanh(ops.matmul(a, b)[i, j] + bias[j]), name="Y")
    check(constant(lang.program([a, b, bias], [y]), "B", "D"), threads=threads, interpret=False)


def _twice(x, op, name):
    """A function of an element and of a function of it, as two stages."""
    shape = (9, 40)
    inner = lang.compute(shape, lambda *i: op(x[i]), name=f"{name}_inner")
    return lang.compute(shape, lambda *i: x[i] * inner[i], name=name)


@pytest.mark.parametrize("nested", [False, True])
def test_an_epilogue_that_uses_the_result_twice_stays_in_registers(nested):
    a, b, bias = t(9, 24, name="A"), t(24, 40, name="B"), t(40, name="D")
    product = ops.matmul(a, b, name="C")
    z = lang.compute((9, 40), lambda i, j: product[i, j] + bias[j], name="Z")
    y = _twice(z, lang.sigmoid, "S")
    if nested:
        y = _twice(y, lang.tanh, "T")
    s = check(constant(lang.program([a, b, bias], [y]), "B", "D"))
    assert "Z" not in str(s) and "S_inner" not in str(s)
    assert str(s).count("alloc") == 1


def test_what_two_nests_read_is_stored():
    a, b = t(9, 24, name="A"), t(24, 40, name="B")
    z = lang.compute((9, 40), lambda i, j: lang.exp(ops.matmul(a, b, name="C")[i, j]) * 0.5, name="Z")
    first = lang.compute((9, 40), lambda i, j: z[i, j] * 2.0, name="first")
    second = lang.compute((9,), lambda i: z[i, 3], name="second")
    s = check(constant(lang.program([a, b], [first, second]), "B"))
    assert "alloc Z" in str(s)


def test_attention_heads_read_through_strides():
    heads, length, size = 3, 18, 16
    q, k = t(length, heads * size, name="Q"), t(length, heads * size, name="K")
    d = lang.reduce_axis(size, "d")
    y = lang.compute(
        (heads, length, length),
        lambda b, i, j: lang.sum(q[i, b * size + d] * k[j, b * size + d], axis=d) * 0.25,
        name="Y",
    )
    s = check(lang.program([q, k], [y]))
    assert "gather_operand" in [step.primitive for step in s.trace.steps]


@pytest.mark.parametrize("shape", [(5, 7), (33, 128), (2, 3, 17), (1, 1)])
def test_softmax_and_layer_norm(shape):
    x = t(*shape, name="X")
    check(lang.program([x], [ops.softmax(x, name="Y")]))
    w, b = t(shape[-1], name="W"), t(shape[-1], name="B")
    check(lang.program([x, w, b], [ops.layer_norm(x, w, b, name="Y")]), tolerance=1e-4)


@pytest.mark.parametrize("layout", [lambda p: p, blocked], ids=["plain", "blocked"])
def test_pooling(layout):
    x = t(1, 32, 9, 11, name="X")
    check(layout(lang.program([x], [ops.max_pool(x, (3, 3), strides=2, padding=1, name="Y")])))
    check(layout(lang.program([x], [ops.average_pool(x, (2, 2), strides=2, name="Y")])))
    check(layout(lang.program([x], [ops.global_average_pool(x, name="Y")])))


def test_elementwise_and_movement():
    x = t(3, 40, 6, name="X")
    check(lang.program([x], [lang.compute((3, 40, 6), lambda i, j, k: lang.exp(x[i, j, k]) * 2, name="Y")]))
    check(lang.program([x], [ops.transpose(x, (2, 0, 1), name="Y")]))
    z = t(2, 3, 70, name="Z", dtype="i32")
    check(lang.program([z], [lang.compute((70, 3), lambda i, j: z[0, j, i] + z[1, j, i], name="Y")]))


def test_scheduling_is_deterministic():
    p = blocked(conv_program(1, 16, 32, (9, 17), (3, 3), pad=1))
    first, second = default_schedule(p, Machine(STATED, 2)), default_schedule(p, Machine(STATED, 2))
    assert first.trace == second.trace


def test_the_result_is_the_same_for_every_number_of_threads():
    p = blocked(conv_program(1, 16, 32, (9, 17), (3, 3), pad=1))
    rng = np.random.default_rng(0)
    arrays = {b.name: rng.standard_normal([e.as_int() for e in b.shape]).astype(np.float32) for b in p.inputs}
    results = []
    for threads in (1, 2, 3):
        s = default_schedule(p, Machine(STATED, threads), accuracy=EXACT)
        given = {b.name: pack(arrays[b.name], b) for b in s.func.buffers if b.name in arrays}
        results.append(Native(s.func)(given)["Y"])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_extrema_with_their_indices():
    x = t(6, 37, name="X")
    k = lang.reduce_axis(37, "k")
    value, place = lang.compute((6,), lambda i: lang.max_with_index(x[i, k], axis=k), name="best")
    y = lang.compute((6, 37), lambda i, j: x[i, j] - value[i], name="Y")
    z = lang.compute((6,), lambda i: place[i] * 2, name="Z")
    check(lang.program([x], [y, z]))


@pytest.mark.parametrize("columns", [320, 312, 300])
def test_threads_share_the_tiles_around_partial_ones(columns):
    """A batch of one, in front of a loop whose last tile is partial, is no work to share."""
    a, b = t(1, 128, 96, name="A"), t(96, columns, name="B")
    program = constant(lang.program([a, b], [ops.matmul(a, b, name="C")]), "B")
    s = default_schedule(program, Machine(STATED, 2), accuracy=EXACT)
    text = str(s)
    assert " parallel" in text and "in 0:1 parallel" not in text
