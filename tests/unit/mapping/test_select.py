"""Selection: what does a program, each operation once, by the fewest executions or a given price."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import verify_program
from tilewright.mapping import Needle, select_instructions
from unit.mapping.kernels import conv, gemm, matmul, separable

SHAPE = (8, 6)


def needle(name, inputs, value, shape=SHAPE):
    """An instruction of one stage over inputs of a shape."""
    return Needle.of_program(name, lang.program(inputs, [lang.compute(shape, value, name="o")]))


def tensors(names, shape=SHAPE):
    return [lang.placeholder(shape, name=n) for n in names]


ZERO = lang.const(0, "f32")
P, Q, R = tensors("pqr")
ADD = needle("add", [P, Q], lambda i, j: P[i, j] + Q[i, j])
MUL = needle("mul", [P, Q], lambda i, j: P[i, j] * Q[i, j])
FMA = needle("fma", [P, Q, R], lambda i, j: P[i, j] * Q[i, j] + R[i, j])
RELU = needle("relu", [P], lambda i, j: lang.maximum(P[i, j], ZERO))
ADD_RELU = needle("add_relu", [P, Q], lambda i, j: lang.maximum(P[i, j] + Q[i, j], ZERO))


def check(program, needles, **rules):
    """A selection, whose program is right and equal to the given one."""
    found = select_instructions(program, needles, **rules)
    verify_program(found.program)
    rng = np.random.default_rng(0)
    arrays = {
        b.name: rng.integers(-3, 4, [e.as_int() for e in b.shape]).astype(b.dtype.numpy)
        for b in program.inputs
    }
    wanted, made = lang.evaluate(program, arrays), lang.evaluate(found.program, arrays)
    for name, value in wanted.items():
        np.testing.assert_array_equal(made[name], value)
    return found


def names(found):
    return [u.instruction for u in found.uses]


def chain():
    x, y, z = tensors("xyz")
    d = lang.compute(SHAPE, lambda i, j: lang.maximum(x[i, j] * y[i, j] + z[i, j], ZERO), name="d")
    return lang.program([x, y, z], [d])


def test_fused_instructions_are_taken_where_they_save_executions():
    assert names(check(chain(), [ADD, MUL, RELU])) == ["mul", "add", "relu"]
    assert names(check(chain(), [ADD, MUL, RELU, FMA])) == ["fma", "relu"]
    assert names(check(chain(), [ADD, MUL, RELU, ADD_RELU])) == ["mul", "add_relu"]


def test_a_price_decides_otherwise():
    costs = {"add": 1, "mul": 1, "relu": 1, "fma": 5, "add_relu": 1}
    every = [ADD, MUL, RELU, FMA, ADD_RELU]
    found = check(chain(), every, price=lambda use: (costs[use.instruction] * use.executions,))
    assert names(found) == ["mul", "add_relu"]
    assert found.cost == (2,)


def test_what_a_price_refuses_is_not_taken():
    refused = check(chain(), [ADD, MUL, RELU, FMA], price=lambda u: None if u.instruction == "fma" else (1,))
    assert names(refused) == ["mul", "add", "relu"]


def test_expressions_that_occur_twice_are_done_once():
    x, y = tensors("xy")
    d = lang.compute(SHAPE, lambda i, j: (x[i, j] + y[i, j]) * (x[i, j] + y[i, j]), name="d")
    assert names(check(lang.program([x, y], [d]), [ADD, MUL])) == ["add", "mul"]


def test_operands_keep_the_axes_that_they_mention():
    x, y, b = (
        lang.placeholder((8, 6), name="x"),
        lang.placeholder((6,), name="y"),
        lang.placeholder((6,), name="b"),
    )
    rows = needle("rows", [P, b], lambda i, j: P[i, j] * b[j])
    line = needle("line", [y, b], lambda j: y[j] + b[j], (6,))
    d = lang.compute(SHAPE, lambda i, j: x[i, j] * (y[j] + b[j]), name="d")
    found = check(lang.program([x, y, b], [d]), [rows, line])
    assert names(found) == ["line", "rows"]
    assert [len(t.shape) for t in found.program.temps] == [1]


def test_what_nothing_does_is_named_and_left_as_it_was():
    x, y = tensors("xy")
    d = lang.compute(SHAPE, lambda i, j: lang.exp(x[i, j] + y[i, j]), name="d")
    e = lang.compute(SHAPE, lambda i, j: d[i, j] + y[i, j], name="e")
    found = check(lang.program([x, y], [e]), [ADD])
    assert names(found) == ["add"]
    (left,) = found.uncovered
    assert (left.stage, left.value, left.combine) == ("d", "exp((x[i, j] + y[i, j]))", "")
    # what lacks is named where it lies: the product, though nothing does its exponential either
    f = lang.compute(SHAPE, lambda i, j: x[i, j] * y[i, j] + y[i, j], name="f")
    (left,) = check(lang.program([x, y], [f]), [ADD]).uncovered
    assert (left.stage, left.value) == ("f", "(x[i, j] * y[i, j])")


def test_several_assignments_are_nobodys():
    a, k = lang.placeholder((4, 8), name="a"), lang.reduce_axis(8, "k")
    best = lang.compute((4,), lambda i: lang.argmax(a[i, k], axis=k), name="b")
    found = select_instructions(lang.program([a], [best]), [ADD])
    assert [u.value for u in found.uncovered if not u.value]
    assert not found.uses


def sums(starting=True, continuing=True):
    rows = [Needle.of(matmul((4, 4, 4), starts=True))] if starting else []
    return rows + ([Needle.of(matmul((4, 4, 4)))] if continuing else [])


def test_sums_are_started_and_continued():
    (use,) = check(gemm(4, 8, 8), sums()).uses
    assert (use.instruction, use.starts and use.starts.name, use.whole) == ("matmul", "matmul", False)
    assert use.executions == 4
    (use,) = check(gemm(4, 8, 8), sums(starting=False)).uses
    assert use.starts is None
    assert not use.whole
    # what starts alone does the whole reduction or nothing
    (use,) = check(gemm(4, 8, 4), sums(continuing=False)).uses
    assert use.whole
    assert select_instructions(gemm(4, 8, 8), sums(continuing=False)).uncovered


def test_the_mapping_with_the_fewest_executions():
    (use,) = check(conv(1, n=2, size=16, ic=8, oc=8), sums()).uses
    assert use.mapping.program_axes() == {"m": ("i1",), "n": ("i2",), "k": ("ic",)} or use.executions == min(
        u.executions for u in select_instructions(conv(1, n=2, size=16, ic=8, oc=8), sums()).uses
    )


def fused(k=4):
    a, b, bias = (lang.placeholder(s, name=n) for n, s in (("a", (4, k)), ("b", (k, 4)), ("bias", (4,))))
    kk = lang.reduce_axis(k, "k")
    c = lang.compute((4, 4), lambda i, j: lang.sum(a[i, kk] * b[kk, j], kk), name="c")
    d = lang.compute((4, 4), lambda i, j: lang.maximum(c[i, j] + bias[j], ZERO), name="d")
    return lang.program([a, b, bias], [d])


def layer(k=4, scale=False, reads=1):
    program_inputs = [
        lang.placeholder(s, name=n) for n, s in (("A", (8, k)), ("B", (k, 12)), ("bias", (12,)), ("S", (12,)))
    ]
    a, b, bias, s = program_inputs
    kk = lang.reduce_axis(k, "k")
    c = lang.compute((8, 12), lambda i, j: lang.sum(a[i, kk] * b[kk, j], kk), name="C")

    def value(x, y):
        add = bias[y] + s[y] if scale else bias[y]
        return lang.maximum(ZERO, c[x, y] + add)

    outputs = [lang.compute((8, 12), value, name="D")]
    if reads > 1:
        outputs.append(lang.compute((8, 12), lambda x, y: c[x, y] + bias[y], name="E"))
    return lang.program(program_inputs if scale else program_inputs[:3], outputs)


BIAS = lang.placeholder((6,), name="bias")
ADD_ROW = needle("add_row", [P, BIAS], lambda i, j: P[i, j] + BIAS[j])
LINE = needle("line", [BIAS, Q], lambda j: BIAS[j] + Q[0, j], (6,))
SUM2 = [lang.placeholder((6,), name=n) for n in "uv"]
VECTOR_ADD = needle("vector_add", SUM2, lambda j: SUM2[0][j] + SUM2[1][j], (6,))


def test_a_chain_does_several_stages():
    apart = [*sums(), ADD_ROW, RELU]
    chained = Needle.of_program("layer", fused())
    assert names(check(layer(), apart)) == ["matmul", "add_row", "relu"]
    found = check(layer(), [*apart, chained])
    assert names(found) == ["layer"]
    assert [s.name for s in found.uses[0].stages] == ["C", "D"]
    # operands of a chain may be expressions, too
    found = check(layer(scale=True), [*apart, VECTOR_ADD, chained])
    assert names(found)[1:] == ["layer"]


@pytest.mark.parametrize(
    ("program", "why"), [(layer(k=8), "a longer sum"), (layer(reads=2), "another reader")]
)
def test_no_chain(program, why):
    chained = Needle.of_program("layer", fused())
    assert "layer" not in names(check(program, [*sums(), ADD_ROW, RELU, chained])), why


def test_separable_convolutions_are_nobodys_whole():
    assert select_instructions(separable(), sums()).uncovered
