"""The hint ``reload``: a part of single elements is an operand of each instruction that uses it."""

import numpy as np
import pytest
from tests.native_kernel import Native

from tilewright import lang
from tilewright.codegen import assembly, emit_kernel
from tilewright.lower import lower
from tilewright.schedule import Schedule
from tilewright.target import X86_AVX512

ROWS, COLUMNS, STEPS, TURN = 6, 32, 12, 4
VECTORS = COLUMNS * 32 // X86_AVX512.preferred_vector_bits


def tiled(part):
    """A register tile of six rows by two vectors, its steps expanded four at a time."""
    a, b = lang.placeholder((ROWS, STEPS), name="A"), lang.placeholder((STEPS, COLUMNS), name="B")
    s = Schedule(lang.program([a, b], [lang.ops.matmul(a, b, name="C")]))
    i, j, k = s.loops("C")
    s = s.split(i, ROWS, names=["it", "ir"]).reorder("it", "ir", j, k)
    s = s.cache("C", at="it", scope="register", mode="write", name="acc")
    s = s.reorder(k, "ir", j).decompose_init("C", k).annotate(k, "unroll", str(TURN))
    for block in ("C", "C_init", "acc_out"):
        row, lanes = [loop for loop in s.loops(block)[1:] if loop != k]
        s = s.unroll(row).vectorize(lanes)
    s = s.annotate("it", "outline")
    return s.annotate(k, "reload", part) if part else s


@pytest.mark.parametrize(("part", "rows"), [("", 0), ("1/6", 1), ("4/6", 4), ("6/6", 6), ("1/2", 3)])
def test_so_many_rows_are_operands(part, rows):
    target = X86_AVX512
    kernel = emit_kernel(
        lower(tiled(part).func), triple=target.llvm_triple, vector_bits=target.preferred_vector_bits
    )
    operands = [line for line in assembly(kernel.text, target).splitlines() if "{1to16}" in line]
    assert len(operands) == rows * VECTORS * TURN
    # a register and a constant: no index
    assert not any("," in line.split("(")[1].split(")")[0] for line in operands)


@pytest.mark.parametrize("part", ["1/6", "6/6"])
def test_results_are_the_same(part):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(e).astype(np.float32) for e in ((ROWS, STEPS), (STEPS, COLUMNS)))
    expected, got = (Native(tiled(p).func)({"A": a, "B": b})["C"] for p in ("", part))
    np.testing.assert_array_equal(got, expected)
