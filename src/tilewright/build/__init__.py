"""Objects of scheduled functions: kernels that run here, kernels of devices, and what is told of them."""

from tilewright.build.describe import KernelDescription as KernelDescription, describe as describe
from tilewright.build.device_kernel import (
    DeviceFunction as DeviceFunction,
    LoadedKernels as LoadedKernels,
    device_of as device_of,
    kernel_source as kernel_source,
    lowered_for as lowered_for,
    place_kernels as place_kernels,
)
from tilewright.build.kernel import Kernel as Kernel, build as build, emit as emit
from tilewright.build.layouts import (
    Array as Array,
    is_plain as is_plain,
    pack as pack,
    physical_sizes as physical_sizes,
    unpack as unpack,
)
from tilewright.build.sizes import read_sizes as read_sizes
from tilewright.build.unit_kernel import UnitKernel as UnitKernel
from tilewright.build.work import (
    flops as flops,
    moved_bytes as moved_bytes,
    reduction_length as reduction_length,
)
