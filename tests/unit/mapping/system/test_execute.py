"""The functional simulator: instructions as the interpreter runs them, and every rule that it holds."""

import numpy as np
import pytest

from machine_programs import RULES, arrays_of, gemm, machine_of, small
from tilewright.ir import F32, Index, evaluate_index, run_program
from tilewright.lang import evaluate
from tilewright.mapping.system import StreamProgram, execute, load_machine, schedule, shipped_machines
from tilewright.mapping.system.stream import Box, Call, Move, Post, Region, Repeat, StreamTensor, Wait
from tilewright.support import InputError, ResourceError, TargetError


@pytest.mark.parametrize("name", shipped_machines())
def test_each_instruction_means_what_the_interpreter_says(name):
    rng = np.random.default_rng(3)
    for instruction in load_machine(name).instructions.values():
        program = instruction.semantics
        sizes = {p.name: 3 for p in program.params}

        def sample(b, sizes=sizes):
            return rng.integers(-2, 3, [evaluate_index(x, sizes) for x in b.shape]).astype(b.dtype.numpy)

        inputs = {b.name: sample(b) for b in program.inputs}
        before = {b.name: sample(b) for b in program.outputs if instruction.mode(b.name) == "rw"}
        made = evaluate(program, inputs, sizes, initial=before)
        copies = {n: a.copy() for n, a in before.items()}
        wanted = run_program(program, {**inputs, **copies}, sizes, inout=tuple(before), complete=False)
        for n, value in wanted.items():
            np.testing.assert_allclose(made[n].astype("f8"), value.astype("f8"), rtol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_a_program_by_the_interpreter(name):
    narrow, wide, _ = RULES[name]
    program, machine = gemm(5, 3, 4, narrow, wide), load_machine(name)
    streams, arrays = schedule(program, machine), arrays_of(program)
    made = execute(streams, machine, arrays, interpreted=True)
    np.testing.assert_array_equal(made["C"], evaluate(program, arrays)["C"])


# ---- rules ----


def streams_of(machine, *items, **more):
    tensors = (StreamTensor("A", (Index(8),), F32), StreamTensor("C", (Index(8),), F32, output=True))
    return StreamProgram(machine.name, machine.fingerprint, tensors, {"s": items, **more})


def region(at, n=8, memory="c"):
    return Region(memory, Index(at), (n,), F32)


def box(tensor, at=0, n=8):
    return Box(tensor, (Index(at),), (n,), (0,))


LOAD, SAVE = Move("load_c", box("A"), region(0)), Move("store", region(0), box("C"))


def product(unit="u0", m=4, **places):
    at = {"A": "a", "B": "b", "C": "c", **places}
    refs = tuple((o, Region(memory, Index(0), (4, 4), F32)) for o, memory in at.items())
    return Call(unit, "matmul", (("m", m), ("n", 4), ("k", 4)), refs)


def run(*items, machine=None, **more):
    machine = machine or machine_of(small())
    return execute(streams_of(machine, *items, **more), machine, {"A": np.arange(8, dtype=np.float32)})


def test_a_copy():
    np.testing.assert_array_equal(run(LOAD, SAVE)["C"], np.arange(8))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ((LOAD, Move("store", region(4), box("C"))), r"c\[4:36\] is read, and not all of it was written"),
        ((LOAD,), r"C\[0\] was never written"),
        ((Move("load_c", box("A"), region(1000)),), r"c\[1000:1032\] is outside of its 1024 bytes"),
        ((Move("load_c", box("A"), region(2)),), "is not aligned to 4 bytes"),
        ((Move("load_c", box("A", 4), region(0)),), r"A\[4:12\] is outside of the tensor's"),
        ((Move("load_a", box("A"), region(0)),), "it leads from dram to a, not c"),
        ((Move("fetch", box("A"), region(0)),), "there is no such move"),
        ((Move("load_c", box("A"), region(0, 4)),), "does not fit"),
        (
            (Move("load_c", box("A"), Region("c", Index(0), (8,), F32)), SAVE, Wait("e")),
            "deadlock: stream 's'",
        ),
        ((product("u7"),), "this stream has no such unit"),
        ((product(A="b", B="a"),), "operand 'A' cannot be in 'b'"),
        ((product(m=5),), "the size m = 5 is no multiple"),
        ((product(),), "is read, and not all of it was written"),
    ],
)
def test_what_breaks_a_rule_is_refused(items, message):
    with pytest.raises(TargetError, match=message):
        run(*items)


def test_ports():
    data = small()
    for unit in data["units"]:
        unit["places"]["matmul"]["B"] = ["b", "a"]
    with pytest.raises(TargetError, match="2 operands in 'a', which serves 1 of one instruction"):
        run(product(B="a"), machine=machine_of(data))


def two_streams():
    data = small()
    data["units"][1]["stream"] = "t"
    for m in data["moves"]:
        m["streams"] = ["s", "t"]
    return machine_of(data)


def test_streams_must_be_ordered_by_events():
    machine = two_streams()
    with pytest.raises(TargetError, match="was written by another stream, and no event orders the two"):
        run(LOAD, machine=machine, t=(SAVE,))
    made = run(LOAD, Post("e"), machine=machine, t=(Wait("e"), SAVE))
    np.testing.assert_array_equal(made["C"], np.arange(8))


def test_deadlock_names_who_waits_for_what():
    machine = two_streams()
    with pytest.raises(TargetError, match="deadlock: stream 's' waits for 'e', stream 't' waits for 'f'"):
        run(Wait("e"), Post("f"), machine=machine, t=(Wait("f"), Post("e")))


def test_another_machine_and_other_arrays():
    machine = machine_of(small())
    with pytest.raises(TargetError, match="of another description than 'small'"):
        execute(streams_of(machine, LOAD, SAVE), machine_of(small(file=2048)), {})
    with pytest.raises(InputError, match="no array is given for 'A'"):
        execute(streams_of(machine, LOAD, SAVE), machine, {})
    with pytest.raises(InputError, match="'A' must have shape"):
        execute(streams_of(machine, LOAD, SAVE), machine, {"A": np.zeros(9, np.float32)})


def test_endless_streams_are_stopped():
    machine = machine_of(small())
    endless = Repeat("i", Index(0), Index(1 << 50), (Repeat("j", Index(0), Index(1 << 50), ()),))
    with pytest.raises(ResourceError, match="execute more than"):
        execute(streams_of(machine, endless), machine, {"A": np.zeros(8, np.float32)}, limit=1000)
