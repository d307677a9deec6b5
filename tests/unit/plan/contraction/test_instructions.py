"""Contractions whose products an instruction does: chosen, packed and right at odd sizes."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from native_kernel import HOST, LANES, Native
from tilewright import lang
from tilewright.build import pack, unpack
from tilewright.cost import Machine
from tilewright.ir import BF16, CONST, run_function, verify
from tilewright.plan import Accuracy, plan_unit
from tilewright.plan.graph.layouts import Block
from tilewright.schedule import derived_constants, with_layout
from tilewright.strategies import default_schedule
from tilewright.target import INTERPRETED, X86_AVX2, X86_AVX512, find_instruction, x86_amx
from unit.schedule.loop.test_tensorize import KINDS, arrays, expected, product

SIZES = [(3, 32, 16), (16, 48, 64), (17, 40, 52), (29, 200, 24), (1, 64, 16), (5, 9, 128), (13, 19, 68)]


def needs(kind):
    if not find_instruction(kind).features <= HOST.features:
        pytest.skip(f"this machine lacks {kind}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("threads", [1, 2])
def test_products_of_constants(kind, m, n, k, threads):
    needs(kind)
    if threads > 1 and m < 16:
        return  # a single tile, which no threads share
    program = product(m, n, k, kind)
    s = default_schedule(program, Machine(LANES, threads), constants=("B",))
    verify(s.func)
    assert f"{kind}(" in str(s)
    given = arrays(program)
    wanted = expected(given)
    given["B"] = pack(given["B"], s.func.buffer("B"))
    tolerance = 0 if kind == "vpdpbusd" else 1e-5 * k
    if m * n * k < 20000:
        made = run_function(s.func, given, instructions=INTERPRETED)["C"]
        np.testing.assert_allclose(made, wanted, rtol=0, atol=tolerance)
    np.testing.assert_allclose(Native(s.func)(given)["C"], wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("n", "k"), [(3, 64), (4, 68), (5, 16), (8, 64)])
def test_bytes_with_few_columns(n, k, threads):
    """Half of a vector and less was left to single products: other rules sum floats only."""
    needs("vpdpbusd")
    program = product(37, n, k, "vpdpbusd")
    s = default_schedule(program, Machine(LANES, threads), constants=("B",))
    assert "vpdpbusd(" in str(s)
    given = arrays(program)
    wanted = expected(given)
    given["B"] = pack(given["B"], s.func.buffer("B"))
    np.testing.assert_array_equal(Native(s.func)(given)["C"], wanted)


def test_groups_that_do_not_divide_are_multiplied_one_by_one():
    needs("vdpbf16ps")
    program = product(6, 32, 9, "vdpbf16ps")
    s = default_schedule(program, Machine(LANES, 1), constants=("B",))
    assert "vdpbf16ps(" not in str(s)
    given = arrays(program)
    wanted = expected(given)
    given["B"] = pack(given["B"], s.func.buffer("B"))
    np.testing.assert_allclose(Native(s.func)(given)["C"], wanted, rtol=0, atol=1e-4)


def test_machines_without_the_instruction():
    for target in (X86_AVX2, X86_AVX512):
        s = default_schedule(product(6, 32, 8, "vdpbf16ps"), Machine(target, 1), constants=("B",))
        assert "vdpbf16ps(" not in str(s)


def convolution(channels, results, size, window, stride, pad, groups=1):
    """A convolution of bf16 channels in blocks of 16 with f32 weights and a ReLU, stored in bf16."""
    X = lang.placeholder((1, channels, size, size), name="X")
    W = lang.placeholder((results, channels // groups, window, window), name="W")
    C = lang.ops.conv(X, W, strides=stride, padding=pad, groups=groups, name="C")
    Y = lang.compute(C.shape, lambda *i: lang.maximum(C[i], 0), name="Y")
    program = lang.program([X, W], [Y])
    program = lang.algorithms.store_as(program, {"X": BF16, "Y": BF16})
    x, w = program.inputs
    (y,) = program.outputs
    return replace(program, inputs=(blocked(x), w.with_(scope=CONST)), outputs=(blocked(y),))


def blocked(b):
    block = 16 if b.shape[1].as_int() % 16 == 0 else 8
    return with_layout(b, Block(1, block).indices(len(b.shape)))


@pytest.mark.parametrize(
    ("channels", "results", "size", "window", "stride", "pad"),
    [
        (16, 32, 7, 3, 1, 1),
        (32, 16, 5, 1, 1, 0),
        (16, 48, 9, 3, 2, 1),
        (8, 24, 6, 3, 1, 1),
        (16, 16, 1, 1, 1, 0),
    ],
)
@pytest.mark.parametrize("mode", ["exact", "f2"])
def test_convolutions(channels, results, size, window, stride, pad, mode):
    needs("vdpbf16ps")
    program = convolution(channels, results, size, window, stride, pad)
    s = default_schedule(program, Machine(LANES, 1), accuracy=Accuracy(mode))
    transformed = mode == "f2" and window == 3 and stride == 1 and channels % 16 == results % 16 == 0
    assert ("vdpbf16ps(" in str(s)) != transformed
    rng = np.random.default_rng(0)
    given = {b.name: rng.normal(size=[e.as_int() for e in b.shape]) for b in program.inputs}
    rounded = {n: a.astype(ml_dtypes.bfloat16) for n, a in given.items()}
    plain = replace(program, inputs=tuple(b.with_(layout=None) for b in program.inputs))
    plain = replace(plain, outputs=tuple(b.with_(layout=None) for b in program.outputs))
    wanted = lang.evaluate(plain, {"X": rounded["X"], "W": rounded["W"].astype(np.float32)})["Y"]
    arrays = {}
    derived = derived_constants(s)
    for b in s.func.buffers:
        if b.name in s.func.outputs:
            continue
        if b.name in derived:
            arrays[b.name] = pack(derived[b.name].compute(rounded["W"].astype(np.float32)), b)
        else:
            arrays[b.name] = pack(rounded[b.name].astype(b.dtype.numpy), b)
    made = unpack(Native(s.func)(arrays)["Y"], s.func.buffer("Y")).astype(np.float64)
    scale = np.abs(wanted.astype(np.float64)).max()
    np.testing.assert_allclose(made, wanted.astype(np.float64), rtol=0, atol=2.0**-7 * scale)


def integers(left, right, m, n, k, how):
    """Products of two tensors given at run time: matrices, a batch of them, the second one transposed."""
    batch = (2,) if how == "batched" else ()
    A = lang.placeholder((*batch, m, k), left, name="A")
    B = lang.placeholder((n, k) if how == "transposed" else (*batch, k, n), right, name="B")
    r = lang.reduce_axis(k, "r")

    def term(*at):
        *around, i, j = at
        other = B[j, r] if how == "transposed" else B[(*around, r, j)]
        return lang.cast(A[(*around, i, r)], "i32") * lang.cast(other, "i32")

    return lang.program([A, B], [lang.compute((*batch, m, n), lambda *at: lang.sum(term(*at), r), name="C")])


TILED = replace(
    X86_AVX512,
    features=X86_AVX512.features | {f for row in x86_amx.INSTRUCTIONS for f in row.features},
    instructions=(*x86_amx.INSTRUCTIONS, *X86_AVX512.instructions),
    moves=x86_amx.MOVES,
    tiles=x86_amx.TILES,
)


@pytest.mark.few(11)
@pytest.mark.parametrize("how", ["plain", "batched", "transposed"])
@pytest.mark.parametrize(("left", "right"), [("u8", "i8"), ("i8", "i8"), ("i8", "u8"), ("u8", "u8")])
@pytest.mark.parametrize("target", [TILED, X86_AVX512], ids=["tiles", "lanes"])
def test_operands_given_at_run_time_are_packed(target, left, right, how):
    program = integers(left, right, 32, 64, 64, how)
    planned = plan_unit(program, Machine(target, 2))
    s = planned.schedule
    use = next(n.choice.instruction for n in planned.plan.nests if n.root == "C")
    # the one dot product of bytes by lanes takes an unsigned and a signed one
    assert (use is not None) == (target is TILED or left != right)
    assert ("C_groups" in s.blocks()) == (use is not None)
    verify(s.func)
    rng = np.random.default_rng(3)
    given = {}
    for b in program.inputs:
        low = -128 if b.dtype.kind == "int" else 0
        given[b.name] = rng.integers(low, low + 256, [e.as_int() for e in b.shape]).astype(b.dtype.numpy)
    other = given["B"].T if how == "transposed" else given["B"]
    wanted = given["A"].astype("i4") @ other.astype("i4")
    if target.features <= HOST.features:
        np.testing.assert_array_equal(Native(s.func)(given)["C"], wanted)


@pytest.mark.parametrize("target", [TILED, X86_AVX512], ids=["tiles", "lanes"])
@pytest.mark.parametrize("window", [1, 3])
def test_pictures_of_bytes_channel_by_channel_are_stored_for_instructions(target, window):
    X = lang.placeholder((1, 40, 20, 24), "u8", name="X")
    W = lang.placeholder((32, 40, window, window), "i8", name="W")
    k, y, x = (lang.reduce_axis(n, name) for n, name in ((40, "k"), (window, "y"), (window, "x")))

    def term(i, j, c):
        return lang.cast(X[0, k, i + y, j + x], "i32") * lang.cast(W[c, k, y, x], "i32")

    shape = (21 - window, 25 - window, 32)
    C = lang.compute(shape, lambda i, j, c: lang.sum(term(i, j, c), axis=[k, y, x]), name="C")
    program = lang.program([X, W], [C])
    a, b = program.inputs
    program = replace(program, inputs=(a, b.with_(scope=CONST)))
    s = default_schedule(program, Machine(target, 2), constants=("W",))
    assert any(f"{row.name}(" in str(s) for row in target.contractions)
    assert any(name.startswith("C_padded") for name in s.blocks())
    rng = np.random.default_rng(6)
    given = {
        "X": rng.integers(0, 256, (1, 40, 20, 24), np.uint8),
        "W": rng.integers(-128, 128, (32, 40, window, window), np.int8),
    }
    wanted = lang.evaluate(program, list(given.values()))["C"]
    given["W"] = pack(given["W"], s.func.buffer("W"))
    if target.features <= HOST.features:
        np.testing.assert_array_equal(Native(s.func)(given)["C"], wanted)


def test_few_products_are_not_worth_packing():
    planned = plan_unit(integers("u8", "i8", 1, 64, 64, "plain"), Machine(TILED, 1))
    assert all(getattr(nest.choice, "instruction", None) is None for nest in planned.plan.nests)
    assert "C_groups" not in planned.schedule.blocks()


def test_packed_products_in_the_interpreter():
    program = integers("u8", "i8", 16, 32, 16, "plain")
    s = plan_unit(program, Machine(TILED, 1)).schedule
    assert "C_groups" in s.blocks()
    rng = np.random.default_rng(4)
    given = {"A": rng.integers(0, 255, (16, 16), "u1"), "B": rng.integers(-128, 127, (16, 32), "i1")}
    made = run_function(s.func, given, instructions=INTERPRETED)["C"]
    np.testing.assert_array_equal(made, given["A"].astype("i4") @ given["B"].astype("i4"))
