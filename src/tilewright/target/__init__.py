"""Machines to compile for: what a target is, the tables, and detection of this machine."""

from tilewright.target.aarch64_neon import AARCH64_NEON
from tilewright.target.aarch64_sve import AARCH64_SVE
from tilewright.target.calibration import calibrated, calibration_path, keep_calibration
from tilewright.target.cpu import CpuTarget
from tilewright.target.cpu_names import cpuinfo_flags
from tilewright.target.detect import detect
from tilewright.target.detect_cuda import (
    CudaDeviceFacts,
    CudaDriver,
    detect_cuda,
    first_cuda_device,
)
from tilewright.target.detect_opencl import choose_opencl_device, detect_opencl, pyopencl
from tilewright.target.gpu import WIDE_ATOMICS, GpuTarget
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
from tilewright.target.model import CACHE_LINE, MemoryLevel, Operations, ParallelLevel, TargetBase
from tilewright.target.nvidia import A100, H200, NVIDIA, ORIN_NANO, RTX_4090, V100
from tilewright.target.quantities import LINE_SECONDS, Quantities
from tilewright.target.registry import (
    BUILT_IN,
    find_instruction,
    find_operation,
    find_target,
    target_names,
)
from tilewright.target.semantics import INTERPRETED, interpreted, lane_semantics, meaning
from tilewright.target.simulated import POCL, SIMULATED
from tilewright.target.tensor_map import MOST_BOX, MOST_RANK, STRIDE_BYTES, TensorMap, read_tensor_map
from tilewright.target.x86_amx import ROW_BYTES, ROWS, TILES
from tilewright.target.x86_avx2 import X86_AVX2
from tilewright.target.x86_avx512 import X86_AVX512

Target = CpuTarget
"""The name that code for CPUs alone knows their targets by; what is for all machines says TargetBase."""

__all__ = [
    "CACHE_LINE",
    "MOST_BOX",
    "MOST_RANK",
    "STRIDE_BYTES",
    "TensorMap",
    "read_tensor_map",
    "A100",
    "CpuTarget",
    "CudaDeviceFacts",
    "CudaDriver",
    "detect_cuda",
    "first_cuda_device",
    "GpuTarget",
    "H200",
    "NVIDIA",
    "ORIN_NANO",
    "POCL",
    "Quantities",
    "calibrated",
    "calibration_path",
    "keep_calibration",
    "RTX_4090",
    "SIMULATED",
    "TargetBase",
    "V100",
    "choose_opencl_device",
    "detect_opencl",
    "pyopencl",
    "AARCH64_NEON",
    "AARCH64_SVE",
    "BUILT_IN",
    "Emission",
    "INTERPRETED",
    "LINE_SECONDS",
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
    "WIDE_ATOMICS",
]
