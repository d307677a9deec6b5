"""From lowered loop functions to code: the partial-evaluating emitter and the back ends.

The names below are loaded on first use: devices load compiled modules without any of the back ends.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilewright.codegen.clike import (
        ALL_CALLS,
        CSource,
        DeviceSource,
        Grid,
        KernelEntry,
        emit_c,
        emit_kernels,
        lower_for_c,
    )
    from tilewright.codegen.link import COMPILERS, link_shared
    from tilewright.codegen.llvm.cache import ObjectCache, open_cache
    from tilewright.codegen.llvm.compile import (
        CompileRequest,
        assembly,
        compile_ir,
        optimised_ir,
        request as compile_request,
    )
    from tilewright.codegen.llvm.kernel import KernelText, emit_kernel
    from tilewright.codegen.llvm.loader import LoadedObject, load_object
    from tilewright.codegen.llvm.shared import can_link, shared_library
    from tilewright.codegen.llvm.spills import count_vector_spills
    from tilewright.codegen.llvm.symbols import rename_functions
    from tilewright.codegen.llvm.workers import CompilePool, compile_many
    from tilewright.codegen.nvrtc import CudaModule, KernelResources, compile_cuda
    from tilewright.codegen.refusals import check
    from tilewright.codegen.storage import Memory

# Public name -> the module that defines it, and its name there.
_EXPORTS: Final = {
    "ALL_CALLS": ("clike", "ALL_CALLS"),
    "COMPILERS": ("link", "COMPILERS"),
    "CSource": ("clike", "CSource"),
    "CompilePool": ("llvm.workers", "CompilePool"),
    "CompileRequest": ("llvm.compile", "CompileRequest"),
    "CudaModule": ("nvrtc", "CudaModule"),
    "DeviceSource": ("clike", "DeviceSource"),
    "Grid": ("clike", "Grid"),
    "KernelEntry": ("clike", "KernelEntry"),
    "KernelResources": ("nvrtc", "KernelResources"),
    "KernelText": ("llvm.kernel", "KernelText"),
    "LoadedObject": ("llvm.loader", "LoadedObject"),
    "Memory": ("storage", "Memory"),
    "ObjectCache": ("llvm.cache", "ObjectCache"),
    "assembly": ("llvm.compile", "assembly"),
    "can_link": ("llvm.shared", "can_link"),
    "check": ("refusals", "check"),
    "compile_cuda": ("nvrtc", "compile_cuda"),
    "compile_ir": ("llvm.compile", "compile_ir"),
    "compile_many": ("llvm.workers", "compile_many"),
    "compile_request": ("llvm.compile", "request"),
    "count_vector_spills": ("llvm.spills", "count_vector_spills"),
    "emit_c": ("clike", "emit_c"),
    "emit_kernel": ("llvm.kernel", "emit_kernel"),
    "emit_kernels": ("clike", "emit_kernels"),
    "link_shared": ("link", "link_shared"),
    "load_object": ("llvm.loader", "load_object"),
    "lower_for_c": ("clike", "lower_for_c"),
    "open_cache": ("llvm.cache", "open_cache"),
    "optimised_ir": ("llvm.compile", "optimised_ir"),
    "rename_functions": ("llvm.symbols", "rename_functions"),
    "shared_library": ("llvm.shared", "shared_library"),
}

__all__ = [
    "ALL_CALLS",
    "COMPILERS",
    "CSource",
    "CompilePool",
    "CompileRequest",
    "CudaModule",
    "DeviceSource",
    "Grid",
    "KernelEntry",
    "KernelResources",
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
    "lower_for_c",
    "open_cache",
    "optimised_ir",
    "rename_functions",
    "shared_library",
]


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    value: object = getattr(import_module(f"tilewright.codegen.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *_EXPORTS})
