"""What a machine cannot do, by the names of stages, nodes and tensors."""

import re

import numpy as np
import pytest

from machine_programs import MATMUL, RULES, gemm, machine_of, small
from tilewright import lang
from tilewright.ir import F32, F64, Index, Param
from tilewright.mapping import system
from tilewright.mapping.system import StreamProgram, execute, load_machine, schedule, time_streams
from tilewright.mapping.system.stream import Box, Call, Move, Region, Repeat, StreamTensor, Wait
from tilewright.support import InputError, ProgramError, ResourceError, TargetError

MACHINE = machine_of(small())


def without(kind, name, **changes):
    data = small(**changes)
    data[kind] = [node for node in data[kind] if node["name"] != name]
    return machine_of(data)


# ---- programs ----


def test_no_instruction_computes_it():
    x = lang.placeholder((8,), name="X")
    program = lang.program([x], [lang.compute((8,), lambda i: lang.exp(x[i]), name="Y")])
    with pytest.raises(ProgramError, match=r"stage 'Y': no instruction of machine 'small' computes exp") as e:
        schedule(program, MACHINE)
    assert "its instructions are matmul, matmul_add" in str(e.value)


def test_types_must_agree():
    with pytest.raises(ProgramError, match="no instruction of machine 'gemmini'"):
        schedule(gemm(8, 8, 8), load_machine("gemmini"))


def test_stages_of_other_kinds():
    n = lang.param("n", hi=64)
    x = lang.placeholder((n,), name="X")
    y = lang.compute((n,), lambda i: x[i] + x[i], name="Y")
    with pytest.raises(ProgramError, match=r"stage 'Y': axis 'i' is ordered or of unknown extent"):
        schedule(lang.program([x], [y]), MACHINE)
    with pytest.raises(ProgramError, match=r"stage 'C': axis 'i' has no iterations"):
        schedule(gemm(0, 8, 8), MACHINE)
    a, k = lang.placeholder((4, 8), name="A"), lang.reduce_axis(8, "k")
    best = lang.compute((4,), lambda i: lang.argmax(a[i, k], axis=k), name="B")
    with pytest.raises(ProgramError, match=r"stage '.*' is not a single assignment"):
        schedule(lang.program([a], [best]), MACHINE)


def test_a_program_larger_than_the_machine():
    with pytest.raises(ResourceError, match=r"tensors take \d+ bytes, and memory 'dram' .* has"):
        schedule(gemm(1 << 14, 1 << 14, 8), MACHINE)


def test_tiles_larger_than_a_memory():
    data = small(file=64)
    for i in data["instructions"]:
        i["semantics"] = [line.replace("param(1, 4)", "param(5, 8)") for line in i["semantics"]]
    with pytest.raises(TargetError, match="memory 'a' of 64 bytes has no room for a tile of A of 100 bytes"):
        schedule(gemm(5, 5, 5), machine_of(data))


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        (
            [("far", "near"), ("near", "far")],
            "move 'far_near' goes in a circle without effect: nothing gets into 'far'",
        ),
        (
            [("dram", "far"), ("far", "near"), ("near", "far")],
            "move 'far_near' goes in a circle without effect: no unit reads what is in 'near'",
        ),
    ],
)
def test_moves_without_effect(moves, message):
    data = small()
    data["memories"] += [{"name": n, "bytes": 64} for n in ("far", "near")]
    data["moves"] += [{**data["moves"][0], "name": f"{a}_{b}", "from": a, "to": b} for a, b in moves]
    with pytest.raises(TargetError, match=message):
        machine_of(data)


def test_semantics_that_reach_beyond_an_operand():
    data = small()
    data["instructions"][0]["semantics"] = [x.replace("f32[m, k]", "f32[m, 2]") for x in MATMUL]
    with pytest.raises(TargetError, match="'matmul': its semantics reach beyond A: index x of dimension 1"):
        machine_of(data)


def test_sizes_that_one_of_two_instructions_does_not_have():
    data = small()
    data["instructions"][0]["semantics"] = [x.replace("param(1, 4)", "param(4, 4)") for x in MATMUL]
    machine = machine_of(data)
    schedule(gemm(8, 8, 8), machine)
    with pytest.raises(TargetError, match="would compute it, but 1 along i is no m of matmul"):
        schedule(gemm(9, 9, 9), machine)
    text = [re.sub(r"\bm\b", "rows", line) for line in data["instructions"][1]["semantics"]]
    data["instructions"][1].update(semantics=text, latency="9")
    data["instructions"][0]["semantics"] = MATMUL
    with pytest.raises(TargetError, match="matmul, which starts its sum, calls its sizes otherwise"):
        schedule(gemm(8, 8, 8), machine_of(data))


def test_a_missing_path():
    with pytest.raises(TargetError, match="stream 's' issues brings C from 'c' to 'dram'"):
        schedule(gemm(8, 8, 8), without("moves", "store"))


def test_a_move_that_would_have_to_transpose():
    data = small()
    for m in data["moves"]:
        m["transposes"] = False
    b = lang.placeholder((8, 8), name="B")
    a, k = lang.placeholder((8, 8), name="A"), lang.reduce_axis(8, "k")
    c = lang.compute((8, 8), lambda i, j: lang.sum(a[k, i] * b[k, j], axis=k), name="C")
    with pytest.raises(TargetError, match=r"no path of moves .* A from 'dram' to 'a'") as e:
        schedule(lang.program([a, b], [c]), machine_of(data))
    assert "changes the order of dimensions" in str(e.value)


def test_no_unit_with_both_instructions_of_a_sum():
    data = small()
    data["units"][1]["stream"] = "t"
    del data["units"][1]["places"]["matmul_add"]
    for m in data["moves"]:
        m["streams"] = ["s", "t"]
    del data["units"][0]["places"]["matmul"]
    with pytest.raises(TargetError, match="unit 'u0': it does not execute matmul in the same memories"):
        schedule(gemm(16, 16, 16), machine_of(data))


def test_a_result_that_does_not_get_to_its_reader():
    """An accumulator that nothing loads, and a unit of another stream that reads it."""
    data = small()
    body = ["X = input(f32[m, n])", "Z = output(f32[m, n])", 'with stage("Z"):', *MATMUL[8:10]]
    semantics = ['program("relu")', *MATMUL[1:3], *body, "    Z[i, j] = max(X[i, j], f32(0.0))"]
    data["instructions"].append({"name": "relu", "semantics": semantics, "cycles": "m"})
    data["memories"][3]["uses"] = 2
    data["units"].append({"name": "v", "stream": "t", "places": {"relu": {"X": ["c"], "Z": ["c"]}}})
    data["moves"] = [m for m in data["moves"] if m["name"] != "load_c"]
    a, b = lang.placeholder((8, 8), name="A"), lang.placeholder((8, 8), name="B")
    k, zero = lang.reduce_axis(8, "k"), lang.const(0, "f32")
    c = lang.compute((8, 8), lambda i, j: lang.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = lang.compute((8, 8), lambda i, j: lang.maximum(c[i, j], zero), name="D")
    for stream in ("t", "s"):
        data["units"][2]["stream"] = stream
        for m in data["moves"]:
            m["streams"] = ["s", "t"] if stream == "t" else ["s"]
        machine = machine_of(data)
        if stream == "s":
            schedule(lang.program([a, b], [d]), machine)
            continue
        with pytest.raises(TargetError, match="what makes 'C' cannot leave it there"):
            schedule(lang.program([a, b], [d]), machine)


# ---- recurrences ----


def step(shape=(8, 8), wide="f32"):
    narrow, _, _ = RULES["clusters"]
    h, w = lang.placeholder(shape, narrow, name="h"), lang.placeholder((8, 8), narrow, name="w")
    k = lang.reduce_axis(shape[1], "k")
    made = lang.compute(
        (8, 8), lambda i, j: lang.sum(lang.cast(h[i, k], "f32") * lang.cast(w[k, j], "f32"), axis=k), name="p"
    )
    out = made if wide == "f32" else lang.compute((8, 8), lambda i, j: lang.cast(made[i, j], wide), name="q")
    return lang.program([h, w], [out])


@pytest.mark.parametrize(
    ("recurrence", "message"),
    [
        (system.Recurrence(step(), 0, {}), "a recurrence has at least one step"),
        (system.Recurrence(step(), 2, {"p": "x"}), "'p' -> 'x' is carried"),
        (system.Recurrence(step(), 2, {"p": "h"}), "'p' and 'h' differ in shape or type"),
        (system.Recurrence(step(), 2, {}, ("v",)), "the sequence 'v' is no input of the step"),
    ],
)
def test_recurrences(recurrence, message):
    with pytest.raises(ProgramError, match=message):
        system.schedule_recurrence(recurrence, load_machine("clusters"))


def test_a_step_that_no_stream_does_alone():
    data = small()
    body = ["X = input(f32[m, n])", "Z = output(f32[m, n])", 'with stage("Z"):', *MATMUL[8:10]]
    semantics = ['program("relu")', *MATMUL[1:3], *body, "    Z[i, j] = max(X[i, j], f32(0.0))"]
    data["instructions"].append({"name": "relu", "semantics": semantics, "cycles": "m"})
    data["memories"][3]["uses"] = 2
    data["units"].append({"name": "v", "stream": "t", "places": {"relu": {"X": ["c"], "Z": ["c"]}}})
    for m in data["moves"]:
        m["streams"] = ["s", "t"]
    h, w, k = lang.placeholder((4, 4), name="h"), lang.placeholder((4, 4), name="w"), lang.reduce_axis(4, "k")
    p = lang.compute((4, 4), lambda i, j: lang.sum(h[i, k] * w[k, j], axis=k), name="p")
    q = lang.compute((4, 4), lambda i, j: lang.maximum(p[i, j], lang.const(0, "f32")), name="q")
    recurrence = system.Recurrence(lang.program([h, w], [q]), 3, {"q": "h"})
    with pytest.raises(TargetError, match="no stream can do all of a step by itself, which takes matmul_add"):
        system.schedule_recurrence(recurrence, machine_of(data))


def test_a_step_that_is_too_long():
    h, w = lang.placeholder((512, 512), name="h"), lang.placeholder((512, 512), name="w")
    k = lang.reduce_axis(512, "k")
    p = lang.compute((512, 512), lambda i, j: lang.sum(h[i, k] * w[k, j], axis=k), name="p")
    with pytest.raises(ResourceError, match="one step takes more than 20000 calls"):
        system.schedule_recurrence(system.Recurrence(lang.program([h, w], [p]), 3, {"p": "h"}), MACHINE)


# ---- streams ----


def streams_of(*items, dtype=F32, params=(), stream="s", size=8):
    tensors = (
        StreamTensor("A", (Index(size),), dtype),
        StreamTensor("M", (Index(4), Index(4)), F32, temp=True),
    )
    return StreamProgram("small", MACHINE.fingerprint, tensors, {stream: items}, params)


def region(n=8, memory="c", dtype=F32):
    return Region(memory, Index(0), (n,), dtype)


A = Box("A", (Index(0),), (8,), (0,))
LOAD = Move("load_c", A, region())
FOUR = (("m", 4), ("n", 4), ("k", 4))


def operands(**shapes):
    given = {"A": (4, 4), "B": (4, 4), "C": (4, 4), **shapes}
    return tuple((o, Region(o.lower(), Index(0), shape, F32)) for o, shape in given.items())


def filled(file):
    """16 values in a file."""
    box = Box("A", (Index(0),), (16,), (0,))
    return Move(f"load_{file}", box, Region(file, Index(0), (16,), F32))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ((Call("u0", "matmul", FOUR, operands()[:2]),), "its operands are A, B, C"),
        ((filled("a"), filled("b"), Call("u0", "matmul", FOUR, operands(C=(16,)))), "has shape"),
        ((Move("load_c", A, region(8, "z")),), "leads from dram to c, not z"),
        ((Move("load_c", Box("A", (Index(0),), (4,), (0,)), region(4, dtype=F64)),), "takes f64, not f32"),
        (
            (LOAD, Move("store", Region("c", Index(0), (4,), F64), Box("A", (Index(0),), (4,), (0,)))),
            "takes f32",
        ),
    ],
)
def test_items(items, message):
    with pytest.raises(TargetError, match=message):
        execute(streams_of(*items, size=16), MACHINE, {"A": np.zeros(16, np.float32)})


def test_a_stream_that_does_not_issue_a_move():
    data = small()
    data["units"][1]["stream"] = "t"
    data["moves"] += [{**m, "name": f"t_{m['name']}", "streams": ["t"]} for m in data["moves"]]
    machine = machine_of(data)
    program = StreamProgram("small", machine.fingerprint, streams_of().tensors, {"t": (LOAD,)})
    with pytest.raises(TargetError, match="this stream does not issue it"):
        execute(program, machine, {"A": np.zeros(8, np.float32)})


def test_a_move_that_cannot_transpose():
    data = small()
    for m in data["moves"]:
        m["transposes"] = False
    machine = machine_of(data)
    items = (
        filled("c"),
        Move(
            "store", Region("c", Index(0), (4, 4), F32), turned := Box("M", (Index(0),) * 2, (4, 4), (1, 0))
        ),
    )
    assert not turned.in_order
    program = StreamProgram("small", machine.fingerprint, streams_of(size=16).tensors, {"s": items})
    with pytest.raises(TargetError, match="it cannot change the order of dimensions"):
        execute(program, machine, {"A": np.zeros(16, np.float32)})


def test_home_has_no_addresses():
    with pytest.raises(TargetError, match="there is no memory 'dram' with addresses"):
        execute(
            streams_of(Move("load_c", region(8, "dram"), region())), MACHINE, {"A": np.zeros(8, np.float32)}
        )


def test_streams_and_sizes():
    with pytest.raises(TargetError, match="machine 'small' has no stream 't'"):
        execute(streams_of(stream="t"), MACHINE, {})
    n = Param("n", 2, 8, 2)
    with pytest.raises(InputError, match="the size 'n' has no value"):
        execute(streams_of(params=(n,)), MACHINE, {})
    with pytest.raises(InputError, match=r"n = 3 is not a multiple of 2 in \[2, 8\]"):
        execute(streams_of(params=(n,)), MACHINE, {}, {"n": 3})
    with pytest.raises(ResourceError, match="the simulation would need more than"):
        execute(streams_of(size=1 << 40), MACHINE, {})


def test_timing_refuses_what_there_is_not():
    for items, message in (
        ((Move("fetch", A, region()),), "machine 'small' has no move 'fetch'"),
        ((Move("load_c", A, A),), "move 'load_c' has both ends in the home memory"),
        ((Call("u7", "matmul", (), ()),), "there is no such unit"),
        ((Wait("e"),), "deadlock: stream 's' waits for 'e'"),
    ):
        with pytest.raises(TargetError, match=message):
            time_streams(streams_of(*items), MACHINE)
    nest = Repeat("i", Index(0), Index(1 << 50), (LOAD,))
    with pytest.raises(ResourceError, match="more than 100 items would have to be timed one by one"):
        time_streams(streams_of(nest), MACHINE, exact=True, limit=100)


def test_moves_that_cannot_take_steps():
    box = Box("A", (Index(0),), (4,), (0,), (2,))
    with pytest.raises(TargetError, match="move 'load_c': it cannot take elements that lie steps apart"):
        execute(streams_of(Move("load_c", box, region(4))), MACHINE, {"A": np.zeros(8, np.float32)})
