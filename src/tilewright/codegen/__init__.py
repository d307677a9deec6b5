"""From lowered loop functions to code: the partial-evaluating emitter and the back ends.

The names below are loaded on first use: devices load compiled modules without any of the back ends.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilewright.codegen.clike import (
        ALL_CALLS as ALL_CALLS,
        CSource as CSource,
        DeviceSource as DeviceSource,
        Grid as Grid,
        KernelEntry as KernelEntry,
        emit_c as emit_c,
        emit_kernels as emit_kernels,
        lower_for_c as lower_for_c,
    )
    from tilewright.codegen.link import COMPILERS as COMPILERS, link_shared as link_shared
    from tilewright.codegen.llvm.cache import ObjectCache as ObjectCache, open_cache as open_cache
    from tilewright.codegen.llvm.compile import (
        CompileRequest as CompileRequest,
        assembly as assembly,
        compile_ir as compile_ir,
        compile_request as compile_request,
        optimised_ir as optimised_ir,
    )
    from tilewright.codegen.llvm.kernel import KernelText as KernelText, emit_kernel as emit_kernel
    from tilewright.codegen.llvm.loader import LoadedObject as LoadedObject, load_object as load_object
    from tilewright.codegen.llvm.shared import can_link as can_link, shared_library as shared_library
    from tilewright.codegen.llvm.spills import count_vector_spills as count_vector_spills
    from tilewright.codegen.llvm.symbols import rename_functions as rename_functions
    from tilewright.codegen.llvm.workers import CompilePool as CompilePool, compile_many as compile_many
    from tilewright.codegen.nvrtc import (
        CudaModule as CudaModule,
        KernelResources as KernelResources,
        compile_cuda as compile_cuda,
    )
    from tilewright.codegen.refusals import check as check
    from tilewright.codegen.storage import Memory as Memory

# Public name -> the module that defines it.
_EXPORTS: Final = {
    "ALL_CALLS": "clike",
    "COMPILERS": "link",
    "CSource": "clike",
    "CompilePool": "llvm.workers",
    "CompileRequest": "llvm.compile",
    "CudaModule": "nvrtc",
    "DeviceSource": "clike",
    "Grid": "clike",
    "KernelEntry": "clike",
    "KernelResources": "nvrtc",
    "KernelText": "llvm.kernel",
    "LoadedObject": "llvm.loader",
    "Memory": "storage",
    "ObjectCache": "llvm.cache",
    "assembly": "llvm.compile",
    "can_link": "llvm.shared",
    "check": "refusals",
    "compile_cuda": "nvrtc",
    "compile_ir": "llvm.compile",
    "compile_many": "llvm.workers",
    "compile_request": "llvm.compile",
    "count_vector_spills": "llvm.spills",
    "emit_c": "clike",
    "emit_kernel": "llvm.kernel",
    "emit_kernels": "clike",
    "link_shared": "link",
    "load_object": "llvm.loader",
    "lower_for_c": "clike",
    "open_cache": "llvm.cache",
    "optimised_ir": "llvm.compile",
    "rename_functions": "llvm.symbols",
    "shared_library": "llvm.shared",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"tilewright.codegen.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *_EXPORTS})
