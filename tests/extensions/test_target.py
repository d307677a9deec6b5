"""A target is a value: a machine that no table has is compiled for by giving it."""

from dataclasses import replace

import numpy as np
import pytest

import tilewright
from tilewright import lang
from tilewright.codegen import assembly, emit_kernel
from tilewright.cost import Machine
from tilewright.lower import lower
from tilewright.strategies import default_schedule
from tilewright.support import TargetError
from tilewright.target import CpuTarget, MemoryLevel, detect, find_target

#: A core with few, short vectors and small caches.
SMALL = CpuTarget(
    name="small",
    arch="x86_64",
    units=1,
    vector_registers=16,
    vector_bits=128,
    preferred_vector_bits=128,
    fma_per_cycle=1,
    fma_latency=5,
    memory=(
        MemoryLevel(name="l1", size=1 << 14, line=64, latency=4, bandwidth=16),
        MemoryLevel(name="l2", size=1 << 18, line=64, latency=12, bandwidth=8),
        MemoryLevel(name="memory", size=None, line=64, latency=200, bandwidth=2),
    ),
    instructions=(),
    llvm_triple="x86_64-unknown-linux-gnu",
    llvm_cpu="x86-64-v3",
    features=frozenset({"avx2", "fma"}),
)


def product(n=64):
    a, b = lang.placeholder((n, n), name="A"), lang.placeholder((n, n), name="B")
    return lang.program([a, b], [lang.ops.matmul(a, b, name="C")])


def code(target):
    func = lower(default_schedule(product(), Machine(target, 1)).func, native=target.functions)
    made = emit_kernel(func, triple=target.llvm_triple, vector_bits=target.preferred_vector_bits)
    return assembly(made.text, target)


def test_schedules_and_code_are_its_own():
    assert "%xmm" in code(SMALL) and "%ymm" not in code(SMALL)
    assert "%ymm" in code(find_target("x86_avx2"))


@pytest.mark.skipif(not {"avx2", "fma"} <= detect().features, reason="this machine is none like it")
def test_programs_run_by_it():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in "ab")
    (made,) = tilewright.compile(product(), target=SMALL)(a, b)
    np.testing.assert_allclose(made, a @ b, rtol=1e-4, atol=1e-4)


def test_nonsense_is_refused_by_name():
    with pytest.raises(TargetError, match="'small': fork_seconds must not be negative"):
        replace(SMALL, fork_seconds=-1.0)
    with pytest.raises(TargetError, match="'small': line_seconds must not be negative"):
        replace(SMALL, line_seconds=-1.0)
