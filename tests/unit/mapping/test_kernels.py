"""Every kernel of the five papers has a mapping, found without a timing: the numbers of steps are bounded."""

import pytest

from mapping_kernels import KERNELS
from tilewright.ir import BF16, F32
from tilewright.mapping import find_mappings, search_mappings, system
from unit.mapping.kernels import ROWS, matmul

MATMUL = matmul((64, 64, 64), types=(F32, BF16, BF16), **ROWS)
#: Mappings with the factors as they stand and exchanged: `test_mapper.py` counts them for small sizes.
COUNTS = {
    "gemm": 2,
    "gemv": 2,
    "batched": 2,
    "conv1d": 6,
    "conv2d": 14,
    "conv3d": 26,
}


def of_kind(asked):
    found = [k for k in KERNELS if k.asked == asked]
    return pytest.mark.parametrize("kernel", found, ids=[k.name for k in found])


@of_kind("maps")
def test_mappings(kernel):
    match = find_mappings(kernel.program(), MATMUL)
    assert match.mappings, match.failures[:5]
    assert match.nodes < 1000
    wanted = COUNTS.get(kernel.name.split()[0])
    assert wanted is None or len(match.mappings) == wanted


@of_kind("transforms")
def test_transformed(kernel):
    outcome = search_mappings(kernel.program(), MATMUL)
    found = [t for t in outcome.found if t.steps]
    assert found and all(t.mappings for t in found)


@of_kind("selects")
def test_all_stages_are_instructions(kernel):
    program, machine = kernel.program(), system.load_machine("clusters")
    selection = system.select(program, machine, system.Heuristics())
    assert not selection.uncovered
    products = [u for u in selection.uses if u.instruction == "matmul_add"]
    assert len(products) == sum(s.is_reduction for s in program.stages)
    done = {s.name for u in selection.uses for s in u.stages}
    assert {s.name for s in program.stages} <= done
