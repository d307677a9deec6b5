"""The hint ``nontemporal``: whole, aligned vectors of the named buffers are stored past the caches."""

import re
from dataclasses import replace

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.codegen import assembly, emit_kernel
from tilewright.ir import run_function
from tilewright.lower import lower
from tilewright.schedule import Schedule
from tilewright.target import AARCH64_NEON, X86_AVX2, X86_AVX512

STORE = "!nontemporal"


def doubled(rows, columns, *, parallel=True, name="Y"):
    x = lang.placeholder((rows, columns), name="X")
    y = lang.compute((rows, columns), lambda i, j: x[i, j] * 2, name="Y")
    s = Schedule(lang.program([x], [y])).vectorize("j")
    s = s.parallel("i") if parallel else s
    return s.annotate("i", "nontemporal", name)


def emitted(func, target=X86_AVX512):
    bits = target.preferred_vector_bits
    return emit_kernel(lower(func), triple=target.llvm_triple, vector_bits=bits).text


def text(s, target=X86_AVX512):
    return emitted(s.func, target)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("columns", [16, 48, 160, 33, 40, 7])
def test_results_are_the_same_however_the_result_is_aligned(columns, parallel):
    """The kernel's arguments lie against forbidden pages: once anyhow aligned, once to a page."""
    x = np.random.default_rng(0).random((5, columns), np.float32)
    s = doubled(5, columns, parallel=parallel)
    np.testing.assert_array_equal(Native(s.func)({"X": x})["Y"], x * 2)
    np.testing.assert_array_equal(run_function(s.func, {"X": x})["Y"], x * 2)


def test_both_versions_exist_and_one_has_the_stores():
    found = text(doubled(8, 256))
    assert found.count(STORE) == 1
    assert len(re.findall(r"store <16 x float> .* align 4$", found, re.M)) == 1
    assert "and i64" in found and "icmp eq i64" in found  # the alignment is tested once
    assert found.count("align 64, !nontemporal !0") == 1


def test_stores_that_may_not_be_aligned_stay_as_they_are():
    assert text(doubled(8, 264)).count(STORE) == 0  # rows of 16.5 vectors
    tail = text(doubled(8, 48 + 16 * 8, parallel=False))
    assert tail.count(STORE) == 1
    moved = lang.placeholder((8, 65), name="X")
    y = lang.compute((8, 65), lambda i, j: moved[i, j], name="Y")
    s = Schedule(lang.program([moved], [y])).split("j", 64, tail="peel").vectorize("j_i")
    assert text(s.annotate("i", "nontemporal", "Y")).count(STORE) == 0


def test_several_registers_are_stored_past_the_caches_one_by_one():
    """The kernel tests the buffer's start for one register: rows need be multiples of one only."""
    x = lang.placeholder((8, 336), name="X")
    y = lang.compute((8, 336), lambda i, j: lang.tanh(x[i, j]), name="Y")
    s = Schedule(lang.program([x], [y])).vectorize("j").annotate("i", "nontemporal", "Y")
    found = text(s)
    assert len(re.findall(r"store <64 x float> .*, align 64, !nontemporal !0", found)) == 1
    assert len(re.findall(r"\bvmovntps\b", assembly(found, X86_AVX512))) == 5
    given = np.random.default_rng(0).random((8, 336), np.float32)
    np.testing.assert_allclose(Native(s.func)({"X": given})["Y"], np.tanh(given), rtol=1e-6)


def test_what_is_only_read_needs_no_version_of_its_own():
    """As where a later step has moved what the hint was given for."""
    func = doubled(8, 256).func
    other = replace(func, body=replace(func.body, hints=(("nontemporal", "X"),)))
    plain = replace(func, body=replace(func.body, hints=()))
    assert emitted(other) == emitted(plain) != emitted(func)


def test_other_buffers_are_stored_as_usual():
    x = lang.placeholder((8, 256), name="X")
    y = lang.compute((8, 256), lambda i, j: x[i, j] * 2, name="Y")
    z = lang.compute((8, 256), lambda i, j: y[i, j] + 1, name="Z")
    s = Schedule(lang.program([x], [y, z])).reverse_compute_at("Z", "i")
    for loop in (s.loops("Y")[-1], s.loops("Z")[-1]):
        s = s.vectorize(loop)
    found = text(s.annotate("i", "nontemporal", "Z"))
    stores = [line for line in found.splitlines() if " store <16 x float>" in line]
    assert len(stores) == 4
    assert sum(STORE in line for line in stores) == 1


@pytest.mark.parametrize("target", [X86_AVX512, X86_AVX2])
def test_object_code_of_x86(target):
    found = assembly(text(doubled(8, 256), target), target)
    assert len(re.findall(r"\bvmovntps\b", found)) == 1
    body = re.split(r"^main_par_\d+:", found, flags=re.M)[1]
    bypassing = body if "vmovntps" in body else re.split(r"^main_par_\d+:", found, flags=re.M)[2]
    # the thread's own stores are ordered before it says that it has done its part
    assert bypassing.index("vmovntps") < bypassing.index("sfence")


def test_serial_loops_order_their_stores_too():
    found = text(doubled(8, 256, parallel=False))
    assert found.index(STORE) < found.index("call void @llvm.x86.sse.sfence()")


def test_other_machines_need_no_fence():
    found = text(doubled(8, 256), AARCH64_NEON)
    assert STORE in found and "sfence" not in found
