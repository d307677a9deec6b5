"""Which rows of a register tile have their element loaded by each multiply-add."""

from dataclasses import replace

import pytest

from tilewright import lang
from tilewright.cost import Machine
from tilewright.cost.issue import reloaded_rows
from tilewright.ir import CONST
from tilewright.strategies import default_schedule
from tilewright.target import X86_AVX512

SHARED = replace(X86_AVX512, shared_issue=(2.4, 1.75))


@pytest.mark.parametrize(
    ("rows", "vectors", "reloaded"), [(14, 1, 14), (14, 2, 9), (7, 2, 4), (9, 3, 6), (6, 4, 4), (1, 4, 0)]
)
def test_loads_and_instructions_last_equally_long(rows, vectors, reloaded):
    assert reloaded_rows(SHARED, rows, vectors) == reloaded


def test_a_core_of_its_own_broadcasts():
    assert reloaded_rows(X86_AVX512, 14, 2) == 0


@pytest.mark.parametrize(("target", "parts"), [(X86_AVX512, set()), (SHARED, {"8/12"})])
def test_the_reduction_of_a_product_says_so(target, parts):
    a, b = lang.placeholder((384, 512), "f32", "A"), lang.placeholder((512, 96), "f32", "B")
    program = lang.program([a, b], [lang.ops.matmul(a, b, name="C")])
    weights = program.inputs[1].with_(scope=CONST)
    s = default_schedule(replace(program, inputs=(program.inputs[0], weights)), Machine(target, 1))
    loops = {loop for block in s.blocks() for loop in s.loops(block)}
    assert {value for loop in loops for key, value in s.loop(loop).hints if key == "reload"} == parts
