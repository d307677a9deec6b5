"""Code of instructions: which layouts it asks for, and what it says where they are not so."""

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from native_kernel import HOST, Native
from tilewright import lang
from tilewright.build import pack
from tilewright.codegen import assembly, emit_kernel
from tilewright.ir import buffer_at, run_function
from tilewright.lower import lower
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, TargetError
from tilewright.target import AARCH64_NEON, AARCH64_SVE, BUILT_IN, INTERPRETED, X86_AVX512
from unit.schedule.loop.test_tensorize import arrays, expected, grouped, product


def emitted(s, bits=512):
    return emit_kernel(lower(s.func), triple=X86_AVX512.llvm_triple, vector_bits=bits).text


def test_one_instruction_a_vector_and_group():
    s = grouped(product(1, 48, 8, "vdpbf16ps"), "vdpbf16ps").tensorize("k_i", "vdpbf16ps")
    text = emitted(s.unroll("j_o").unroll("k_o"))
    assert text.count("= call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512") == 12
    # groups of the operand that has no lanes are read once a step: a word for all lanes
    assert text.count("load i32") == 4


def test_narrower_registers():
    s = grouped(product(1, 16, 8, "vpdpbusd"), "vpdpbusd").tensorize("k_i", "vpdpbusd")
    assert "llvm.x86.avx512.vpdpbusd.256" in emitted(s, 256)


def plain(kind="vdpbf16ps"):
    s = Schedule(product(2, 16, 8, kind)).split("k", 2 if kind == "vdpbf16ps" else 4)
    return s.reorder("i", "k_o", "j", "k_i").decompose_init("C", "k_o").vectorize("j")


def test_groups_apart():
    """Known where the nest becomes the instruction, and where a layout that comes later takes them apart."""
    with pytest.raises(ScheduleError, match="the elements of B that it takes together do not lie together"):
        plain().tensorize("k_i", "vdpbf16ps")
    s = plain().set_layout("B", ("d0//2", "d1", "d0%2")).tensorize("k_i", "vdpbf16ps")
    emitted(s)
    with pytest.raises(ScheduleError, match="the 2 elements of A that it takes together do not lie together"):
        emitted(s.set_layout("A", ("d1", "d0")))


def test_lanes_apart(same_text):
    s = plain().set_layout("B", ("d1", "d0")).tensorize("k_i", "vdpbf16ps")
    with pytest.raises(ScheduleError, match="lanes of B do not lie side by side") as caught:
        emitted(s)
    same_text(caught.value)


def test_operands_in_registers():
    s = grouped(product(1, 16, 4, "vdpbf16ps"), "vdpbf16ps", verify=False).tensorize("k_i", "vdpbf16ps")
    s = s.cache("A", at="i", scope="register", mode="read", name="a")
    s = s.unroll(s.loops("a")[-1])
    with pytest.raises(ScheduleError, match=r"register buffer a is addressed by 0, 2\*k_o"):
        emitted(s)
    s = s.unroll("k_o")
    assert emitted(s)
    with pytest.raises(ScheduleError, match="the 2 elements of a that it takes together do not lie together"):
        emitted(s.set_layout("a", ("d1", "d0")))


def in_registers(layout=()):
    """Bytes made in registers by the loop over the lanes of a dot, four of each lane."""
    A = lang.placeholder((2, 8), "i8", name="A")
    W = lang.placeholder((2, 64), "u8", name="W")
    B = lang.compute((2, 64), lambda g, e: W[g, e] >> lang.const(4, "u8"), name="B")
    g, j = lang.reduce_axis(2, "g"), lang.reduce_axis(4, "j")

    def total(i, c):
        return lang.sum(lang.cast(B[g, 4 * c + j], "i32") * lang.cast(A[i, 4 * g + j], "i32"), axis=(g, j))

    s = Schedule(lang.program([A, W], [lang.compute((2, 16), total, name="C", axes=("i", "c"))]))
    s = (
        s.reorder("C_g", "i", "c", "j")
        .decompose_init("C", "C_g")
        .compute_at("B", "C_g")
        .set_scope("B", "register")
    )
    last = s.loops("B")[-1]
    s = s.set_layout("B", layout).unroll(last) if layout else s.vectorize(last)
    return s.unroll("i").vectorize("c").tensorize("j", "vpdpbusd")


def test_lanes_in_registers():
    s, rng = in_registers(), np.random.default_rng(0)
    given = {"A": rng.integers(-128, 128, (2, 8), np.int8), "W": rng.integers(0, 256, (2, 64), np.uint8)}
    weights = (given["W"] >> 4).astype(np.int32).reshape(2, 16, 4).transpose(0, 2, 1).reshape(8, 16)
    wanted = given["A"].astype(np.int32) @ weights
    np.testing.assert_array_equal(run_function(s.func, given, instructions=INTERPRETED)["C"], wanted)
    if "avx512vnni" in HOST.features:
        np.testing.assert_array_equal(Native(s.func)(given)["C"], wanted)
    # unpacked in registers: nothing but what is given is read
    code = machine_code(s.unroll("C_g"), X86_AVX512)
    assert code.count("vpdpbusd") == 4 and "rsp" not in code
    with pytest.raises(ScheduleError, match="lanes of B do not lie side by side"):
        emitted(in_registers(("d0", "d1//4", "d1%4")))


def test_no_code_for_it():
    """An instruction of another machine, and rows that say nothing of code."""
    lowered = lower(grouped(product(1, 16, 4, "vpdpbusd"), "vpdpbusd").tensorize("k_i", "vpdpbusd").func)
    with pytest.raises(TargetError, match="there is no instruction 'vpdpbusd'"):
        emit_kernel(lowered, triple=X86_AVX512.llvm_triple, vector_bits=512, operations={})
    plain_row = replace(BUILT_IN["vpdpbusd"], emission=None)
    with pytest.raises(TargetError, match="no code can be generated for the instruction vpdpbusd"):
        emit_kernel(
            lowered,
            triple=X86_AVX512.llvm_triple,
            vector_bits=512,
            operations={"vpdpbusd": plain_row},
        )


def machine_code(s, target):
    text = emit_kernel(
        lower(s.func),
        triple=target.llvm_triple,
        vector_bits=target.preferred_vector_bits,
        operations=target.operations,
    ).text
    return assembly(text, target)


def test_words_of_sixteen_bits():
    """A row alone: nothing of this instruction is anywhere else."""
    s = grouped(product(3, 32, 8, "vpdpwssd"), "vpdpwssd").tensorize("k_i", "vpdpwssd")
    given = arrays(s.source)
    wanted = expected(given)
    given["B"] = pack(given["B"], s.func.buffer("B"))
    np.testing.assert_array_equal(run_function(s.func, given, instructions=INTERPRETED)["C"], wanted)
    if "avx512vnni" in HOST.features:
        np.testing.assert_array_equal(Native(s.func)(given)["C"], wanted)
    target = replace(X86_AVX512, instructions=(BUILT_IN["vpdpwssd"],))
    assert "vpdpwssd" in machine_code(s, target)


def test_lanes_of_another_machine():
    s = grouped(product(3, 32, 8, "sdot"), "sdot", lanes=4).tensorize("k_i", "sdot")
    code = machine_code(s.unroll("j_o"), AARCH64_NEON)
    assert re.search(r"sdot\s+v\d+\.4s, v\d+\.16b, v\d+\.16b", code)


def test_registers_that_hold_a_matrix():
    """Rows of two are loaded from where they are; the result goes back row by row."""
    A, B = lang.placeholder((4, 8), "bf16", name="A"), lang.placeholder((6, 8), "bf16", name="B")
    k = lang.reduce_axis(8, "k")
    C = lang.compute(
        (4, 6), lambda i, j: lang.sum(lang.cast(A[i, k], "f32") * lang.cast(B[j, k], "f32"), k), name="C"
    )
    s = Schedule(lang.program([A, B], [C]), verify=True).tile(("i", "j"), (2, 2)).split("k", 4)
    s = s.reorder("i_o", "j_o", "k_o", "i_i", "j_i", "k_i").decompose_init("C", "k_o")
    code = machine_code(s.tensorize("i_i", "bfmmla"), AARCH64_SVE)
    assert re.search(r"bfmmla\s+v\d+\.4s, v\d+\.8h, v\d+\.8h", code)


def test_operands_of_symbolic_size():
    program = product(2, 16, lang.param("K", multiple_of=2), "vdpbf16ps")
    s = Schedule(program).set_layout("B", ("d1//16", "d0//2", "d1%16", "d0%2")).split("k", 2)
    s = s.reorder("i", "k_o", "j", "k_i").decompose_init("C", "k_o").vectorize("j")
    s = s.tensorize("k_i", "vdpbf16ps")
    assert "llvm.x86.avx512bf16.dpbf16ps.512" in emitted(s)
    rng = np.random.default_rng(4)
    for size in (2, 8, 34) if "avx512bf16" in HOST.features else ():
        a, b = (rng.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((2, size), (size, 16)))
        packed = pack(b, buffer_at(s.func.buffer("B"), {"K": size}))
        made = Native(s.func)({"A": a, "B": packed}, {"K": size})["C"]
        np.testing.assert_array_equal(made, a.astype("f4") @ b.astype("f4"))
