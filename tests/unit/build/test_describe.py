"""What kernels are said to do: algorithm, layouts, register tile and threads, for each kind of nest."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper
from tests.native_kernel import STATED
from tests.unit.codegen.test_tiles import AMX
from tests.unit.plan.fused.test_bands import block
from tests.unit.strategies.test_default import blocked, constant, conv_program, t

import onnx_models as tiny
import tilewright
from tilewright.plan import EXACT, Accuracy
from tilewright.cost import Machine
from tilewright import lang
from tilewright.cost import is_fast
from tilewright.build import (describe)
from tilewright.driver import (Limits)
from tilewright.build.describe import (layout_name)
from tilewright.build import (moved_bytes)
from tilewright.ir import BF16, F32, Buffer, Index, to_function
from tilewright.lang import ops
from tilewright.plan.contraction import rule as default
from tilewright.plan.graph.layouts import Block
from tilewright.schedule import Schedule, with_layout
from tilewright.strategies import default_schedule
from tilewright.support import InternalError, ScheduleError
from tilewright.target import detect

HOST = STATED
LANES = HOST.lanes(F32)


def between(*args, **options):
    """A convolution between others: all values blocked."""
    program = blocked(conv_program(*args, **options))
    inputs = tuple(
        with_layout(b, Block(1, LANES).indices(len(b.shape))) if len(b.shape) == 4 and b.name != "W" else b
        for b in program.inputs
    )
    return replace(program, inputs=inputs)


def described(program, threads=2, target=HOST, **options):
    return describe(default_schedule(program, Machine(target, threads), **options), threads)


def test_a_chain_in_bands():
    found = described(block(1, (28, 28), 2 * LANES, 192, 2 * LANES, residual=True))
    assert found.algorithm == "matmul > depthwise > matmul in bands of 14"
    assert found.outputs == {"Y2": f"NCHW{LANES}c"}
    assert found.tile is not None and found.tile[1] % LANES == 0
    assert found.threads == 2


def test_a_chain_in_parts():
    found = described(block(1, (7, 7), 10 * LANES, 60 * LANES, 10 * LANES))
    assert found.algorithm == f"matmul > depthwise > matmul in parts of {30 * LANES} channels"


@pytest.mark.parametrize(
    ("program", "options", "algorithm"),
    [
        (between(1, 32, 64, (28, 28), (3, 3), pad=1), {"accuracy": EXACT}, "direct"),
        (between(1, 32, 64, (28, 28), (3, 3), pad=1), {"accuracy": Accuracy("f2")}, "winograd f2"),
        (between(1, 32, 64, (28, 28), (3, 3), pad=1), {"accuracy": Accuracy("f4")}, "winograd f4"),
        (between(1, 32, 64, (28, 28), (1, 1)), {"accuracy": EXACT}, "matmul"),
        (between(1, 32, 32, (40, 40), (3, 3), pad=1, groups=32), {}, "direct, depthwise"),
    ],
)
def test_convolutions(program, options, algorithm):
    found = described(program, **options)
    assert found.algorithm == algorithm
    assert found.threads == 2
    assert found.outputs == {"Y": f"NCHW{LANES}c"}
    assert set(found.inputs.values()) == set(found.outputs.values())
    assert found.constants["B"] == "plain"
    assert found.tile is not None and found.tile[1] % LANES == 0
    assert found.layouts == f"NCHW{LANES}c -> NCHW{LANES}c"
    assert found.as_data()["register_tile"] == list(found.tile)


@pytest.mark.parametrize(
    ("make", "args", "options", "algorithm"),
    [
        (blocked, (1, 1, 32, (12, 40), (3, 5)), {}, "direct"),
        (lambda p: p, (1, 1, 32, (12, 40), (3, 5)), {}, "direct"),
        (blocked, (2, 1, 32, (12, 40), (3, 5)), {"stride": 2, "pad": 1}, "direct"),
        (lambda p: p, (1, 32, 32, (12, 40), (3, 5)), {"groups": 32}, "direct, depthwise"),
        (blocked, (1, 32, 64, (12, 40), (3, 5)), {"groups": 32}, "direct, depthwise"),
        (lambda p: p, (1, 32, 64, (12, 40), (3, 5)), {"groups": 32}, "direct, depthwise"),
    ],
)
def test_one_channel_is_not_depthwise(make, args, options, algorithm):
    """First layers by rows of pixels have one channel, of which each filter makes another one."""
    assert described(make(conv_program(*args, **options))).algorithm == algorithm


def program_of(inputs, result):
    return lang.program(inputs, [result])


def softmax():
    x = t(64, 96, name="X")
    return program_of([x], ops.softmax(x, name="Y"))


def total():
    x = t(64, 96, name="X")
    k = lang.reduce_axis(96, "k")
    return program_of([x], lang.compute((64,), lambda i: lang.sum(x[i, k], axis=k), name="Y"))


def addition():
    x = t(640, 96, name="X")
    return program_of([x], lang.compute((640, 96), lambda i, j: x[i, j] + 1.0, name="Y"))


def transposition():
    x = t(64, 96, name="X")
    return program_of([x], lang.compute((96, 64), lambda i, j: x[j, i], name="Y"))


def maxima():
    x = t(1, 16, 30, 30, name="X")
    return program_of([x], ops.max_pool(x, 3, name="Y"))


@pytest.mark.parametrize(
    ("make", "algorithm"),
    [
        (softmax, "row-wise"),
        (total, "reduction"),
        (addition, "element-wise"),
        (transposition, "movement"),
        (maxima, "windows"),
    ],
)
def test_other_nests(make, algorithm):
    assert described(make()).algorithm == algorithm


def product(constants=()):
    a, b = t(128, 768, name="A"), t(768, 768, name="B")
    return constant(program_of([a, b], ops.matmul(a, b, name="C")), *constants)


def test_strassen():
    found = described(product("B"), target=replace(HOST, tiles=0))
    assert found.algorithm == "strassen"
    assert found.threads == 2
    assert found.tile is not None


@pytest.mark.parametrize("program", [product("B"), product()], ids=["constant", "given"])
def test_products_of_pieces(program, monkeypatch):
    """What makes the pieces goes unnamed."""
    monkeypatch.setattr("tilewright.plan.algorithms.bf16x3.MARGIN", 0.0)
    found = described(program, target=AMX)
    assert found.algorithm == "bf16x3 by tdpbf16ps"
    assert found.instructions == ("tdpbf16ps",)
    assert found.threads == 2
    assert described(program, target=AMX, accuracy=EXACT).algorithm == "matmul"


def test_rules_that_give_way_are_told(monkeypatch):
    program = conv_program(1, 16, 32, (12, 12), (1, 1))
    assert described(program).fallbacks == ()

    def none(*args, **kwargs):
        raise ScheduleError("not today")

    monkeypatch.setattr(default, "tiles_nests", none)
    found = described(program)
    assert found.fallbacks == ("stage Y by a simpler rule: not today",)
    assert found.as_data()["fallbacks"] == list(found.fallbacks)


def test_one_thread_and_no_tile():
    found = described(addition(), threads=1)
    assert found.threads == 1 and found.tile is None and found.tile_text == "-"


def test_schedules_of_loop_functions_are_refused():
    with pytest.raises(InternalError, match="only schedules of programs"):
        describe(Schedule(to_function(addition())), 1)


def test_layout_names():
    shape = tuple(map(Index, (2, 24, 5, 5)))
    value = Buffer("X", shape, F32)
    program = constant(blocked(conv_program(1, 32, 24, (9, 9), (3, 3), pad=1)), "W")
    s = default_schedule(program, Machine(HOST, 1), accuracy=EXACT)
    names = {b.name: layout_name(b) for b in s.func.buffers}
    assert layout_name(value) == "plain"
    assert names["Y"] == "NCHW8c" and names["X"] == names["B"] == "plain"


def test_limits_are_the_larger_of_compute_and_memory():
    limits = Limits(2, 100.0, {1000: 50.0, 10_000: 10.0}, {"dot": 400.0})
    assert limits.seconds(1e9, 100) == pytest.approx(0.01)
    assert limits.seconds(1e9, 100, "dot") == pytest.approx(0.0025)
    assert limits.seconds(1e9, 100, "other") == pytest.approx(0.01)
    assert limits.seconds(1.0, 2e9) == pytest.approx(0.2)
    assert limits.bound(1e9, 100) == "compute" and limits.bound(1.0, 2e9) == "memory"
    assert moved_bytes(softmax()) == 2 * 4 * 64 * 96
    assert np.isfinite(limits.bandwidth(5000))


def test_instructions_are_named():
    host = detect()
    fast = [i.name for i in host.instructions if i.a.dtype == BF16 and is_fast(i, host)]
    if not fast:
        pytest.skip("this machine has no fast products of bf16")
    # tiles before lanes
    expected = "tdpbf16ps" if "tdpbf16ps" in fast else fast[0]
    w = np.random.default_rng(0).standard_normal((128, 128), np.float32)
    names = ["x", "v0", "v1", "v2", "y"]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in itertools.pairwise(names)]
    ends = [[tiny.tensor(name, (128, 128))] for name in ("x", "y")]
    model = tiny.model(nodes, *ends, {"w": w})
    found = tilewright.compile(model, precision="bf16", accuracy="exact").descriptions()
    named = [each.algorithm for each in found if each.instructions == (expected,)]
    assert named and set(named) == {f"matmul by {expected}"}
