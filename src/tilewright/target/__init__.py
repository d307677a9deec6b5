"""Machines to compile for: what a target is, the tables, and detection of this machine."""

from tilewright.target.aarch64_neon import AARCH64_NEON as AARCH64_NEON
from tilewright.target.aarch64_sve import AARCH64_SVE as AARCH64_SVE
from tilewright.target.calibration import calibrated as calibrated, keep_calibration as keep_calibration
from tilewright.target.cpu import CpuTarget as CpuTarget
from tilewright.target.cpu_names import cpuinfo_flags as cpuinfo_flags
from tilewright.target.detect import detect as detect
from tilewright.target.detect_cuda import (
    CudaDriver as CudaDriver,
    detect_cuda as detect_cuda,
    first_cuda_device as first_cuda_device,
)
from tilewright.target.detect_opencl import choose_opencl_device as choose_opencl_device, pyopencl as pyopencl
from tilewright.target.gpu import WIDE_ATOMICS as WIDE_ATOMICS, GpuTarget as GpuTarget
from tilewright.target.instruction import (
    Emission as Emission,
    Instruction as Instruction,
    Operand as Operand,
    Placement as Placement,
    clear as clear,
    contraction as contraction,
    copy as copy,
    element as element,
    stage_of as stage_of,
)
from tilewright.target.model import (
    CACHE_LINE as CACHE_LINE,
    MemoryLevel as MemoryLevel,
    Operations as Operations,
    ParallelLevel as ParallelLevel,
    TargetBase as TargetBase,
)
from tilewright.target.nvidia import (
    A100 as A100,
    H200 as H200,
    NVIDIA as NVIDIA,
    ORIN_NANO as ORIN_NANO,
    RTX_4090 as RTX_4090,
    V100 as V100,
)
from tilewright.target.quantities import LINE_SECONDS as LINE_SECONDS, Quantities as Quantities
from tilewright.target.registry import (
    BUILT_IN as BUILT_IN,
    HOST as HOST,
    find_instruction as find_instruction,
    find_operation as find_operation,
    find_target as find_target,
    target_names as target_names,
)
from tilewright.target.semantics import (
    INTERPRETED as INTERPRETED,
    interpreted as interpreted,
    lane_semantics as lane_semantics,
    meaning as meaning,
)
from tilewright.target.simulated import POCL as POCL, SIMULATED as SIMULATED
from tilewright.target.tensor_map import (
    MOST_BOX as MOST_BOX,
    MOST_RANK as MOST_RANK,
    STRIDE_BYTES as STRIDE_BYTES,
    TensorMap as TensorMap,
    read_tensor_map as read_tensor_map,
)
from tilewright.target.x86_amx import ROW_BYTES as ROW_BYTES, ROWS as ROWS, TILES as TILES
from tilewright.target.x86_avx2 import X86_AVX2 as X86_AVX2
from tilewright.target.x86_avx512 import X86_AVX512 as X86_AVX512

Target = CpuTarget
"""The name that code for CPUs alone knows their targets by; what is for all machines says TargetBase."""
