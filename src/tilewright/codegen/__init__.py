"""From lowered loop functions to code: the partial-evaluating emitter and the back ends."""

from tilewright.codegen.clike import (
    ALL_CALLS,
    CSource,
    DeviceSource,
    Grid,
    KernelEntry,
    emit_c,
    emit_kernels,
)
from tilewright.codegen.link import COMPILERS, link_shared
from tilewright.codegen.llvm.cache import ObjectCache, open_cache
from tilewright.codegen.llvm.compile import CompileRequest, assembly, compile_ir, optimised_ir
from tilewright.codegen.llvm.compile import request as compile_request
from tilewright.codegen.llvm.kernel import KernelText, emit_kernel
from tilewright.codegen.llvm.loader import LoadedObject, load_object
from tilewright.codegen.llvm.shared import can_link, shared_library
from tilewright.codegen.llvm.spills import count_vector_spills
from tilewright.codegen.llvm.symbols import rename_functions
from tilewright.codegen.llvm.workers import CompilePool, compile_many
from tilewright.codegen.nvrtc import CudaModule, KernelResources, compile_cuda
from tilewright.codegen.refusals import check
from tilewright.codegen.storage import Memory

__all__ = [
    "COMPILERS",
    "ALL_CALLS",
    "CSource",
    "DeviceSource",
    "Grid",
    "KernelEntry",
    "CompilePool",
    "CudaModule",
    "KernelResources",
    "CompileRequest",
    "KernelText",
    "LoadedObject",
    "Memory",
    "ObjectCache",
    "assembly",
    "can_link",
    "check",
    "compile_cuda",
    "compile_ir",
    "compile_many",
    "compile_request",
    "count_vector_spills",
    "emit_c",
    "emit_kernel",
    "emit_kernels",
    "link_shared",
    "load_object",
    "open_cache",
    "optimised_ir",
    "rename_functions",
    "shared_library",
]
