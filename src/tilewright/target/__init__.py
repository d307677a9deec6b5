"""Machines to compile for: what a target is, the tables, and detection of this machine."""

from tilewright.target.aarch64_neon import AARCH64_NEON
from tilewright.target.aarch64_sve import AARCH64_SVE
from tilewright.target.cpu_names import cpuinfo_flags
from tilewright.target.detect import detect
from tilewright.target.model import Instruction, MemoryLevel, Move, Operand, ParallelLevel, Target
from tilewright.target.registry import (
    HOST,
    find_instruction,
    find_operation,
    find_target,
    instruction_names,
    target_names,
)
from tilewright.target.semantics import INTERPRETED, lane_semantics, move_semantics
from tilewright.target.x86_amx import ROW_BYTES, ROWS, TILES
from tilewright.target.x86_avx2 import X86_AVX2
from tilewright.target.x86_avx512 import X86_AVX512

__all__ = [
    "AARCH64_NEON",
    "AARCH64_SVE",
    "HOST",
    "INTERPRETED",
    "Instruction",
    "MemoryLevel",
    "Move",
    "Operand",
    "ParallelLevel",
    "ROWS",
    "ROW_BYTES",
    "TILES",
    "Target",
    "X86_AVX2",
    "X86_AVX512",
    "cpuinfo_flags",
    "detect",
    "find_instruction",
    "find_operation",
    "find_target",
    "instruction_names",
    "lane_semantics",
    "move_semantics",
    "target_names",
]
