"""C-like text from lowered functions: C99, OpenCL C and CUDA C by one printer."""

from tilewright.codegen.clike.c import C99, CSource, emit_c, lower_for_c
from tilewright.codegen.clike.cuda import CUDA, emit_cuda
from tilewright.codegen.clike.device import DeviceSource, KernelEntry, emit_device
from tilewright.codegen.clike.dialect import ALL_CALLS, Dialect
from tilewright.codegen.clike.emit import emit_kernels
from tilewright.codegen.clike.launches import Grid
from tilewright.codegen.clike.opencl import OPENCL, emit_opencl

__all__ = [
    "ALL_CALLS",
    "C99",
    "CSource",
    "CUDA",
    "DeviceSource",
    "Dialect",
    "Grid",
    "KernelEntry",
    "OPENCL",
    "emit_c",
    "emit_cuda",
    "emit_device",
    "emit_kernels",
    "emit_opencl",
    "lower_for_c",
]
