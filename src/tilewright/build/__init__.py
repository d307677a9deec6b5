"""Objects of scheduled functions: kernels that run here, kernels of devices, and what is told of them."""

from tilewright.build.describe import (KernelDescription, describe)
from tilewright.build.device_kernel import (DeviceFunction, LoadedKernels, device_of, kernel_source, lowered_for, place_kernels)
from tilewright.build.kernel import (Kernel, build, emit)
from tilewright.build.layouts import (Array, is_plain, pack, physical_sizes, unpack)
from tilewright.build.sizes import (read_sizes)
from tilewright.build.unit_kernel import (UnitKernel)
from tilewright.build.work import (flops, moved_bytes, reduction_length)

__all__ = [
    "Array",
    "DeviceFunction",
    "Kernel",
    "KernelDescription",
    "LoadedKernels",
    "UnitKernel",
    "build",
    "describe",
    "device_of",
    "emit",
    "flops",
    "is_plain",
    "kernel_source",
    "lowered_for",
    "moved_bytes",
    "pack",
    "physical_sizes",
    "place_kernels",
    "read_sizes",
    "reduction_length",
    "unpack",
]
