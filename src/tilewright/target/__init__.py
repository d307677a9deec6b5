"""Machines to compile for: what a target is, the tables, and detection of this machine."""

from tilewright.target.aarch64_neon import AARCH64_NEON
from tilewright.target.aarch64_sve import AARCH64_SVE
from tilewright.target.cpu_names import cpuinfo_flags
from tilewright.target.detect import detect
from tilewright.target.instruction import (
    Emission,
    Instruction,
    Operand,
    Placement,
    clear,
    contraction,
    copy,
    element,
    old_value,
    stage_of,
)
from tilewright.target.lane_dots import lane_dot
from tilewright.target.model import MemoryLevel, Operations, ParallelLevel, Target
from tilewright.target.registry import (
    BUILT_IN,
    HOST,
    find_instruction,
    find_operation,
    find_target,
    target_names,
)
from tilewright.target.semantics import INTERPRETED, interpreted, lane_semantics, meaning
from tilewright.target.x86_amx import ROW_BYTES, ROWS, TILES
from tilewright.target.x86_avx2 import X86_AVX2
from tilewright.target.x86_avx512 import X86_AVX512

__all__ = [
    "AARCH64_NEON",
    "AARCH64_SVE",
    "BUILT_IN",
    "Emission",
    "HOST",
    "INTERPRETED",
    "Instruction",
    "MemoryLevel",
    "Operand",
    "Operations",
    "ParallelLevel",
    "Placement",
    "ROWS",
    "ROW_BYTES",
    "TILES",
    "Target",
    "X86_AVX2",
    "X86_AVX512",
    "clear",
    "contraction",
    "copy",
    "cpuinfo_flags",
    "detect",
    "element",
    "find_instruction",
    "find_operation",
    "find_target",
    "interpreted",
    "lane_dot",
    "lane_semantics",
    "meaning",
    "old_value",
    "stage_of",
    "target_names",
]
