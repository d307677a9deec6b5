"""C-like text from lowered functions: C99, OpenCL C and CUDA C by one printer."""

from tilewright.codegen.clike.c import (
    C99 as C99,
    CSource as CSource,
    emit_c as emit_c,
    lower_for_c as lower_for_c,
)
from tilewright.codegen.clike.cuda import CUDA as CUDA
from tilewright.codegen.clike.device import DeviceSource as DeviceSource, KernelEntry as KernelEntry
from tilewright.codegen.clike.dialect import ALL_CALLS as ALL_CALLS
from tilewright.codegen.clike.emit import emit_kernels as emit_kernels
from tilewright.codegen.clike.launches import Grid as Grid
