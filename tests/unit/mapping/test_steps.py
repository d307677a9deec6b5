"""Mappings as schedules: whatever is legal is exact, in the interpreter and where this machine has it."""

from dataclasses import replace

import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright.build import pack, unpack
from tilewright.codegen import emit_kernel
from tilewright.ir import run_function, verify
from tilewright.lang import evaluate
from tilewright.lower import lower
from tilewright.mapping import find_mappings, tensorized
from tilewright.schedule import Schedule, replay
from tilewright.support import ScheduleError
from tilewright.target import BUILT_IN, INTERPRETED, X86_AVX512, interpreted
from unit.mapping.kernels import ROWS, conv, gemm, gemv, matmul, sized

BYTES = ("i32", "u8", "i8")
PROGRAMS = {
    "gemm": gemm(6, 8, 16, types=BYTES),
    "conv1d": conv(1, types=BYTES, ic=4, oc=4, taps=4, size=2),
    "conv2d": conv(2, types=BYTES, n=1, size=2, taps=2, ic=4, oc=2),
    "strided": conv(1, stride=2, types=BYTES, ic=4, oc=4, size=2),
    "grouped": conv(1, types=BYTES, ic=4, oc=4, groups=2, size=2),
}


def inputs(program):
    rng = np.random.default_rng(0)
    return {
        b.name: rng.integers(0, 9, [e.as_int() for e in b.shape]).astype(b.dtype.numpy)
        for b in program.inputs
    }


def check(s, native):
    given = inputs(s.source)
    (wanted,) = evaluate(s.source, given).values()
    verify(s.func)
    packed = {name: pack(a, s.func.buffer(name)) for name, a in given.items()}
    for seed in range(2):
        ((name, made),) = run_function(s.func, packed, seed=seed, instructions=INTERPRETED).items()
        made = unpack(made, s.func.buffer(name))
        np.testing.assert_array_equal(made, wanted)
    if native and native <= HOST.features:
        ((name, made),) = Native(s.func)(packed).items()
        made = unpack(made, s.func.buffer(name))
        np.testing.assert_array_equal(made, wanted)


def possible(program, name):
    """Mappings that need nothing but layouts."""
    found = find_mappings(program, BUILT_IN[name]).mappings
    out = []
    for m in found:
        try:
            out.append((m, tensorized(Schedule(program), m)))
        except ScheduleError as error:
            assert "needs more than layouts" in error.what or "no part of axis" in error.what
    return out


@pytest.mark.parametrize("name", ["tdpbusd", "tdpbssd"])
@pytest.mark.parametrize("case", PROGRAMS)
def test_every_mapping_onto_tiles_is_exact(case, name):
    made = possible(PROGRAMS[case], name)
    assert bool(made) == (name == "tdpbusd")
    for mapping, s in made:
        text = str(s)
        assert f"{name}(" in text and "tilezero_i32(" in text and "tilestored_i32(" in text, mapping
        # code is generated also where this machine has no tiles
        emit_kernel(lower(s.func), triple=X86_AVX512.llvm_triple, vector_bits=512)
        check(s, BUILT_IN[name].features)


@pytest.mark.parametrize("case", PROGRAMS)
def test_every_mapping_onto_lanes_is_exact(case):
    made = possible(PROGRAMS[case], "vpdpbusd")
    assert made
    for _, s in made:
        assert "vpdpbusd(" in str(s)
        check(s, frozenset())


def test_steps_replay():
    ((_, s), *_) = possible(PROGRAMS["gemm"], "tdpbusd")
    assert replay(s.source, s.trace.to_json()).func == s.func
    assert [step.primitive for step in s.trace.steps].count("tensorize") == 3
    assert len(s.trace.steps) <= 13


REFUSALS = {
    "another row": (
        lambda: tensorized(Schedule(gemm()), find_mappings(gemm(), matmul()).mappings[0]),
        "the mapping is onto another instruction 'matmul' than the schedule's",
    ),
    "a vector": (
        lambda: onto(gemv(16, 16), matmul()),
        "axis n of matmul is 0 axes of stage 'y'",
    ),
    "padding": (
        lambda: onto(gemm(5, 6, 7), matmul(partial=())),
        "matmul needs more than layouts of stage 'C': PadNeed",
    ),
    "windows": (
        lambda: onto(conv(1, taps=4, types=BYTES), BUILT_IN["vpdpbusd"]),
        "what it reads of A begins anywhere along dimension 1, and not at each 4th element",
    ),
    "symbolic": (
        lambda: onto(sized(), matmul(**ROWS)),
        "no part of axis i (M) is an execution of matmul along m",
    ),
    "loops already": (
        lambda: onto(gemm(), matmul(), before=lambda s: s.split("i", 2)),
        "a mapping is of a program's stage",
    ),
    "no moves": (
        lambda: onto(gemm(types=BYTES), BUILT_IN["tdpbusd"]),
        "no instruction would clear results of tdpbusd in scope tile",
    ),
}


def onto(program, row, before=lambda s: s):
    """The first mapping of a row as steps, of a schedule that has this row alone."""
    (mapping, *_) = find_mappings(program, row).mappings
    return tensorized(before(Schedule(program, operations={row.name: row})), mapping)


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case):
    steps, message = REFUSALS[case]
    with pytest.raises(ScheduleError) as caught:
        steps()
    assert message in str(caught.value)


def test_a_row_of_a_test_alone():
    """A new instruction of a known kind of operands is a row: mapped, scheduled, interpreted and recorded."""
    row = replace(matmul(**ROWS), name="new_matmul")
    program = conv(1)
    operations = {row.name: row}
    for mapping in find_mappings(program, row).mappings:
        s = tensorized(Schedule(program, operations=operations), mapping)
        rng = np.random.default_rng(1)
        given = {b.name: rng.random([e.as_int() for e in b.shape], "f4") for b in program.inputs}
        (wanted,) = evaluate(program, given).values()
        packed = {name: pack(a, s.func.buffer(name)) for name, a in given.items()}
        ((name, made),) = run_function(s.func, packed, instructions=interpreted([row])).items()
        np.testing.assert_allclose(unpack(made, s.func.buffer(name)), wanted, rtol=1e-5)
