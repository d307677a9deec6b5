"""Code of instructions: which layouts it asks for, and what it says where they are not so."""

from dataclasses import replace

import pytest

from tilewright import lang
from tilewright.codegen import emit_kernel
from tilewright.ir import Exec, map_stmt
from tilewright.lower import lower
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, TargetError
from tilewright.target import X86_AVX512
from unit.schedule.loop.test_tensorize import grouped, product


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
    with pytest.raises(ScheduleError, match="the 2 elements of B that it takes together do not lie together"):
        emitted(plain().tensorize("k_i", "vdpbf16ps"))


def test_lanes_apart():
    s = plain().set_layout("B", ("d1", "d0")).tensorize("k_i", "vdpbf16ps")
    with pytest.raises(ScheduleError, match="lanes of B do not lie side by side"):
        emitted(s)


def test_operands_in_registers():
    s = grouped(product(1, 16, 4, "vdpbf16ps"), "vdpbf16ps", verify=False).tensorize("k_i", "vdpbf16ps")
    s = s.stage("A", at="i", scope="register", mode="read", name="a")
    s = s.unroll(s.loops("a")[-1])
    with pytest.raises(ScheduleError, match="reads a, which is in registers"):
        emitted(s)


def test_no_code_for_it():
    lowered = lower(grouped(product(1, 16, 4, "vpdpbusd"), "vpdpbusd").tensorize("k_i", "vpdpbusd").func)

    def other(node):
        return replace(node, instr="sdot") if isinstance(node, Exec) else node

    unknown = lowered.with_body(map_stmt(lowered.body, other))
    with pytest.raises(TargetError, match="no code can be generated for the instruction sdot"):
        emit_kernel(unknown, triple=X86_AVX512.llvm_triple, vector_bits=512)


def test_operands_of_symbolic_size():
    program = product(2, 16, lang.param("K", multiple_of=2), "vdpbf16ps")
    s = Schedule(program).set_layout("B", ("d1//16", "d0//2", "d1%16", "d0%2")).split("k", 2)
    s = s.reorder("i", "k_o", "j", "k_i").decompose_init("C", "k_o").vectorize("j")
    with pytest.raises(ScheduleError, match="has sizes or indices that are known only when running"):
        emitted(s.tensorize("k_i", "vdpbf16ps"))
