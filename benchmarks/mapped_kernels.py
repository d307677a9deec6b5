"""The kernels of the five papers mapped: how many mappings, and how long finding them takes.

A part of `benchmarks/mapping.py` (`--only kernels`). The kernels are those of `tests/mapping_kernels.py`; the
instruction is a product of 64 x 64 matrices of bf16 with rows any distance apart, for cells all instructions
of the machine `clusters`. What has been found before is forgotten before each run; the best of some is shown.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from mapping_kernels import KERNELS, Kernel
from tilewright.ir import BF16, F32, Program
from tilewright.mapping import find_mappings, match, search_mappings, system
from tilewright.target import Instruction, Placement, contraction, element

ROUNDS = 5
LIMITS = {"maps": 100.0, "transforms": 2000.0, "selects": 100.0}
"""Milliseconds that the issue allows."""


def matmul() -> Instruction:
    """A product of matrices whose rows may lie any distance apart."""
    c, a, b = (element(n, x, t) for n, x, t in (("c", "mn", F32), ("a", "mk", BF16), ("b", "kn", BF16)))
    rows = (
        ("a", Placement(strided=("m",))),
        ("b", Placement(strided=("k",))),
        ("c", Placement(strided=("m",))),
    )
    stage = contraction([(x, 64) for x in "mnk"], c, a, b)
    return Instruction(name="matmul", stage=stage, partial=("m", "n", "k"), placements=rows)


def rows() -> Iterator[dict[str, Any]]:
    """One row a kernel."""
    machine = system.load_machine("clusters")
    for kernel in KERNELS:
        program = kernel.program()
        best, count = float("inf"), 0
        for _ in range(ROUNDS):
            match.solve.cache_clear()
            start = time.perf_counter()
            count = mapped(kernel, program, machine)
            best = min(best, (time.perf_counter() - start) * 1e3)
        yield {
            "kernel": kernel.name,
            "asked": kernel.asked,
            "found": count,
            "ms": round(best, 2),
            "within": best <= LIMITS[kernel.asked],
        }


def mapped(kernel: Kernel, program: Program, machine: system.SystemGraph) -> int:
    """Mappings, mappings of rewritten programs, or instructions that are selected."""
    if kernel.asked == "maps":
        return len(find_mappings(program, matmul()).mappings)
    if kernel.asked == "transforms":
        return sum(len(t.mappings) for t in search_mappings(program, matmul()).found if t.steps)
    selection = system.select(program, machine, system.Heuristics())
    return 0 if selection.uncovered else len(selection.uses)
