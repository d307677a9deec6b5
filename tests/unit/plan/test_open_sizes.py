"""Default schedules of programs whose sizes are open: tiles and vectors, right at every size."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from native_kernel import HOST, STATED, Native
from tilewright import lang
from tilewright.build import build, pack
from tilewright.cost import Machine, seconds, tree_of
from tilewright.ir import CONST, TYPICAL, Block, function_at, locate, program_at, run_function
from tilewright.plan import plan_open, plan_versions
from tilewright.plan.open_sizes import elements
from tilewright.support import assert_close
from tilewright.target import INTERPRETED, X86_AVX512
from unit.codegen.test_tiles import AMX

R, N, K = (lang.param(name, hi=4096) for name in "RNK")


def softmax():
    X = lang.placeholder((R, N), name="X")
    return lang.program([X], [lang.ops.softmax(X, axis=-1)], name="soft")


def product(rows, columns, depth):
    A, B = lang.placeholder((rows, depth), name="A"), lang.placeholder((depth, columns), name="B")
    k = lang.reduce_axis(depth, "k")
    C = lang.compute((rows, columns), lambda i, j: lang.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = lang.compute((rows, columns), lambda i, j: lang.relu(C[i, j]), name="D")
    return lang.program([A, B], [D], name="product")


def bytes_product(batch, rows):
    """Products of bytes, batch by batch: what dynamic quantisation makes of a linear layer."""
    A, B = lang.placeholder((batch, rows, 96), "u8", name="A"), lang.placeholder((96, 64), "i8", name="B")
    k = lang.reduce_axis(96, "k")
    C = lang.compute(
        (batch, rows, 64),
        lambda b, i, j: lang.sum(lang.cast(A[b, i, k], "i32") * lang.cast(B[k, j], "i32"), axis=k),
        name="C",
    )
    D = lang.compute((batch, rows, 64), lambda b, i, j: lang.cast(C[b, i, j], "f32") * 0.5, name="D")
    program = lang.program([A, B], [D], name="bytes")
    a, b = program.inputs
    return replace(program, inputs=(a, b.with_(scope=CONST)))


def blur():
    A = lang.placeholder((R + 2, N + 2), name="A")
    T = lang.compute((R + 2, N), lambda y, x: A[y, x] + A[y, x + 1] + A[y, x + 2], name="T")
    B = lang.compute((R, N), lambda y, x: (T[y, x] + T[y + 1, x] + T[y + 2, x]) / 9, name="B")
    return lang.program([A], [B], name="blur")


@pytest.mark.few(6)
@pytest.mark.parametrize(
    "program",
    [softmax(), product(R, 96, 80), product(R, N, K), blur()],
    ids=["softmax", "rows", "product", "blur"],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_open_programs_get_vectors_and_are_right_at_every_size(program, threads):
    s = plan_open(program, Machine(STATED, threads)).schedule
    primitives = {step.primitive for step in s.trace.steps}
    assert "vectorize" in primitives and ("parallel" in primitives) == (threads > 1)
    if program.name == "product":
        assert {"split", "unroll", "set_scope"} <= primitives
    kernel = build(s, threads=threads)
    rng = np.random.default_rng(3)
    for value in (1, 3, 31, 64, 65, TYPICAL):
        sizes = {p.name: value + at for at, p in enumerate(program.params)}
        fixed = program_at(program, sizes)
        inputs = [
            rng.random([n.as_int() for n in b.shape], np.float32).astype(np.float32) for b in fixed.inputs
        ]
        (want,) = lang.evaluate(fixed, inputs).values()
        (got,) = kernel(*inputs)
        assert_close(got, want, magnitude=np.abs(want).max(), terms=value + 8)


@pytest.mark.few(3)
@pytest.mark.parametrize(("batch", "rows"), [(R, 37), (1, N), (3, N), (R, N), (R, 64)])
@pytest.mark.parametrize("target", [AMX, X86_AVX512], ids=["tiles", "lanes"])
def test_products_of_bytes_keep_instructions_and_threads(batch, rows, target):
    """Rows of no multiple of a tile: padded ones have no symbolic form, products in lanes have."""
    program = bytes_product(batch, rows)
    s = plan_open(program, Machine(target, 2)).schedule
    primitives = [step.primitive for step in s.trace.steps]
    assert "tensorize" in primitives and "parallel" in primitives
    native = Native(s.func) if target.features <= HOST.features else None
    rng = np.random.default_rng(5)
    for value in (2, 5, 17):
        sizes = {p.name: value + at for at, p in enumerate(program.params)}
        (*shape,) = (n.as_int() for n in program_at(program, sizes).inputs[0].shape)
        A, B = rng.integers(0, 256, shape, np.uint8), rng.integers(-128, 128, (96, 64), np.int8)
        given = {"A": A, "B": pack(B, s.func.buffer("B"))}
        wanted = (A.astype(np.int32) @ B.astype(np.int32)).astype(np.float32) * np.float32(0.5)
        if target.features <= HOST.features:
            made = native(given, sizes)["D"]
        elif value == 2:
            made = run_function(function_at(s.func, sizes), given, instructions=INTERPRETED)["D"]
        else:
            break
        assert np.array_equal(made, wanted)


@pytest.mark.parametrize("shape", [(1, N, 96), (R, N, 96), (R, 40, 96)])
def test_loops_that_cannot_become_one_are_shared_all_the_same(shape):
    X = lang.placeholder(shape, name="X")
    Y = lang.compute(shape, lambda *i: lang.relu(X[i]) + 1, name="Y")
    s = plan_open(lang.program([X], [Y], name="pointwise"), Machine(STATED, 2)).schedule
    assert {"parallel", "vectorize"} <= {step.primitive for step in s.trace.steps}


@pytest.mark.parametrize("rows", [5, 37, 100, 700])
def test_tiles_of_a_typical_size_are_none_of_other_sizes(rows):
    """Tiles of all rows of a typical size had conditions for half a thousand rows at every size."""
    s = plan_open(product(R, 768, 768), Machine(STATED, 1)).schedule
    done = 0
    for found in locate(function_at(s.func, {"R": rows}).body, Block):
        if found.node.stage == "C" and any(it.kind == "red" for it in found.node.iters):
            done += prod(loop.extent.as_int() for loop in found.loops)
    assert rows <= done / 768**2 <= rows + 32


def test_a_tail_is_cut_where_conditions_stand_in_stages():
    """Sums in parts have their conditions in the stage: each turn tested them where nothing was cut."""
    X, k = lang.placeholder((R, N), name="X"), lang.reduce_axis(N, "k")
    M = lang.compute((R,), lambda i: lang.sum(X[i, k], axis=k), name="M")
    s = plan_open(lang.program([X], [M]), Machine(STATED, 1)).schedule
    assert s.notes == ()
    assert [step.args[1] for step in s.trace.steps if step.primitive == "partition"] == ["tail"]


@pytest.mark.parametrize(("parts", "hi"), [(16, 160), (4, 64)])
def test_register_tiles_of_all_rows_of_a_typical_size_are_tiles_at_every_size(parts, hi):
    """A tile of all of a few rows was left out with its level, and the loops stayed as they were written."""
    program = product(lang.param("n", lo=32, hi=hi) // parts, 96, 48)
    s = plan_open(program, Machine(STATED, 1)).schedule
    assert s.notes == ()
    assert any(step.primitive == "set_scope" and step.args[1] == "register" for step in s.trace.steps)
    kernel, rng = Native(s.func), np.random.default_rng(4)
    for value in range(32, hi + 1, 16):
        fixed = program_at(program, {"n": value})
        inputs = {b.name: rng.random([e.as_int() for e in b.shape], np.float32) for b in fixed.inputs}
        (want,) = lang.evaluate(fixed, list(inputs.values())).values()
        got = kernel(inputs, {"n": value})["D"]
        assert_close(got, want, magnitude=np.abs(want).max(), terms=56)


def test_two_plans_where_few_elements_want_another_than_many():
    """Forks cost more than small arrays: below a border of prices one thread does all."""
    X = lang.placeholder((R, N), name="X")
    program = lang.program([X], [lang.compute((R, N), lambda i, j: lang.exp(X[i, j]), name="Y")], name="e")
    few, many = plan_versions(program, Machine(STATED, 2))
    assert few.above == 0 and few.until == many.above and many.until is None

    def is_shared(version):
        return any(step.primitive == "parallel" for step in version.planned.schedule.trace.steps)

    assert is_shared(many) and not is_shared(few)
    assert elements(program, {"R": 3, "N": 4}) == 24
    # the border is where prices change places: on either side the other plan is dearer
    for version, other, size in ((few, many, 8), (many, few, 400)):
        assert (elements(program, {"R": size, "N": size}) <= few.until) == (version is few)
        own, others = (
            seconds(tree_of(function_at(v.planned.schedule.func, {"R": size, "N": size})), Machine(STATED, 2))
            for v in (version, other)
        )
        assert own < others
    (one,) = plan_versions(product(R, 96, 80), Machine(STATED, 1))
    assert (one.above, one.until) == (0, None)
