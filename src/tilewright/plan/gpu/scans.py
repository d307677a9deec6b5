"""Scans on GPUs taken apart: parts for the threads of a block, and for blocks where rows are few and long.

A row that a block computes::

    each thread scans its part of the row (into shared memory)
    threads scan what the parts come to, and one of them what those come to
    all threads: result = what is before the part, and the element within its part

A longer one is cut into parts for blocks first, each of them such a row; what these come to is a row again.
"""

from __future__ import annotations

from math import isqrt, prod
from typing import Final

from tilewright.analysis import flat_index, scan_of
from tilewright.ir import Program, Stage, stmt_loads
from tilewright.plan.fallback import fell_back
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import GpuTarget

#: Elements of a row from which on threads share it.
LONG_ROW: Final = 32
#: Threads of a block that are tried, and elements that each scans at most: an odd number, so that those of
#: neighbours lie in different banks of shared memory.
THREADS: Final = (32, 64, 128, 256)
EACH: Final = 9
BLOCK_ROW: Final = THREADS[-1] * EACH
#: Parts that one thread scans at most; the sums of more are scanned in parts themselves.
SCANNED: Final = 32


def split_scans(s: Schedule, target: GpuTarget) -> tuple[Schedule, frozenset[str]]:
    """Take apart what too few threads would scan. Rewrites the program only.

    Also returns the stages that end rows of blocks, and that no block computes for another one's.
    """
    ends: set[str] = set()
    for stage in s.require_program().stages:
        scan = scan_of(stage)
        if scan is None or not all(it.extent.is_const for it in stage.iters):
            continue
        try:
            if scan.axis == stage.iters[-1] and _along_memory(s.require_program(), stage, scan.axis.name):
                s = _split_row(s, stage.name, stage.name, scan.axis.extent.as_int(), ends)
            else:
                s = _split_column(s, stage, scan.axis.extent.as_int(), target)
        except ScheduleError as error:
            s = fell_back(s, f"{stage.name} is scanned in order", error)
    return s, frozenset(ends)


def _split_row(s: Schedule, stage: str, prefix: str, length: int, ends: set[str]) -> Schedule:
    """Parts of a row for the threads of a block; before that, of a long one, for blocks."""
    if length < LONG_ROW:
        return s
    if length > BLOCK_ROW:
        name = f"{prefix}_blocks"
        s = s.split_scan(stage, BLOCK_ROW, name)
        ends |= {name, f"{name}_before"}
        s = _split_row(s, f"{name}_before", f"{name}_before", -(-length // BLOCK_ROW) - 1, ends)
        stage, prefix, length = name, name, BLOCK_ROW
    threads = next(n for n in THREADS if length <= n * EACH)
    each = -(-length // threads) | 1
    parts = -(-length // each)
    name = f"{prefix}_lanes"
    s = s.split_scan(stage, each, name)
    if parts - 1 > SCANNED:
        s = s.split_scan(f"{name}_before", isqrt(parts) | 1, f"{prefix}_joined")
    return s


def _split_column(s: Schedule, stage: Stage, length: int, target: GpuTarget) -> Schedule:
    """Parts for threads where neighbouring threads scan neighbouring rows, as far as rows are too few."""
    rows = prod(it.extent.as_int() for it in stage.iters if it.kind == "par")
    enough = target.units * target.threads_per_unit // 2
    parts = min(-(-enough // rows), length // LONG_ROW, SCANNED)
    return s if parts < 2 else s.split_scan(stage.name, -(-length // parts), f"{stage.name}_parts")


def _along_memory(program: Program, stage: Stage, axis: str) -> bool:
    """Whether neighbours along an axis lie together in an operand of a scan."""
    found = [ld for ld in stmt_loads(stage.body) if ld.buffer not in stage.writes]
    steps = [flat_index(program, ld.buffer, ld.indices) for ld in found]
    return any(flat is not None and abs(flat.coefficient(axis)) == 1 for flat in steps)
