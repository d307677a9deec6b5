"""Instructions as loops: what a machine without them computes is what they do."""

import numpy as np
import pytest

from c_kernel import CKernel
from tilewright.build import pack
from tilewright.ir import F32, ZERO, Along, Exec, LoopFunction, Window, buffer, run_function
from tilewright.lower import lower
from tilewright.support import TargetError
from tilewright.target import BUILT_IN, INTERPRETED
from unit.schedule.loop import test_tensorize as lanes, test_tensorize_tiles as tiles
from unit.schedule.loop_programs import arrays


def agree(s):
    """The loops, by the interpreter and as C, give bit for bit what the instructions do."""
    given = arrays(s.source)
    given = {name: pack(a, s.func.buffer(name)) for name, a in given.items()}
    want = run_function(s.func, given, instructions=INTERPRETED)["C"]
    plain = lower(s.func, expanded=BUILT_IN)
    np.testing.assert_array_equal(run_function(plain, given)["C"], want)
    np.testing.assert_array_equal(CKernel(s.func)(given)["C"], want)


@pytest.mark.parametrize("kind", lanes.KINDS)
@pytest.mark.parametrize("sizes", [(3, 32, 16), (2, 21, 12), (4, 1, 4)])
def test_instructions_of_lanes(kind, sizes):
    agree(lanes.grouped(lanes.product(*sizes, kind), kind).tensorize("k_i", kind))


@pytest.mark.parametrize("kind", tiles.KINDS)
@pytest.mark.parametrize(("sizes", "parts"), [((6, 8, 16), (3, 4, 8)), ((5, 1, 8), (5, 1, 4))])
def test_instructions_of_tiles(kind, sizes, parts):
    agree(tiles.tiled(tiles.product(*sizes, kind), kind, *parts))


def test_rows_apart():
    agree(tiles.tiled(tiles.product(6, 8, 16, "tdpbusd", step=2), "tdpbusd", 3, 4, 8))


def test_names_of_the_function_stay_apart_from_the_operands():
    """Buffers that are called as the instruction's operands are, in another order."""
    function, windows = BUILT_IN["mma_m16n8k16_f16"], []
    shapes = {"result": (2, 2), "a": (2, 16), "b": (16, 2)}
    called = {"result": "b", "a": "result", "b": "a"}
    buffers = []
    for operand in function.operands:
        shape = shapes[operand.name]
        axes = tuple(Along(d, n) for d, n in enumerate(shape))
        mode = "rw" if operand is function.result else "r"
        windows.append(Window(called[operand.name], (ZERO, ZERO), shape, mode, axes))
        buffers.append(buffer(called[operand.name], shape, operand.dtype))
    func = LoopFunction("f", (), tuple(buffers), ("b",), Exec(function.name, tuple(windows)), inouts=("b",))
    rng = np.random.default_rng(5)
    given = {
        b.name: rng.standard_normal([e.as_int() for e in b.shape]).astype(b.dtype.numpy) for b in buffers
    }
    want = given["b"] + given["result"].astype(F32.numpy) @ given["a"].astype(F32.numpy)
    made = run_function(lower(func, expanded=BUILT_IN), given, inout=("b",))["b"]
    np.testing.assert_allclose(made, want, atol=1e-4)


def test_an_instruction_that_nothing_is_known_of():
    s = lanes.grouped(lanes.product(1, 16, 4, "vpdpbusd"), "vpdpbusd").tensorize("k_i", "vpdpbusd")
    with pytest.raises(TargetError, match="there are no loops for the instruction 'vpdpbusd'"):
        lower(s.func, expanded={"sdot": BUILT_IN["sdot"]})
