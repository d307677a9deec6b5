"""From lowered loop functions to code: the partial-evaluating emitter and the back ends."""

from tilewright.codegen.clike import ALL_CALLS, CSource, emit_c
from tilewright.codegen.link import link_shared
from tilewright.codegen.llvm.cache import ObjectCache, open_cache
from tilewright.codegen.llvm.compile import CompileRequest, assembly, compile_ir, optimised_ir
from tilewright.codegen.llvm.compile import request as compile_request
from tilewright.codegen.llvm.kernel import KernelText, emit_kernel
from tilewright.codegen.llvm.loader import LoadedObject, load_object
from tilewright.codegen.llvm.spills import count_vector_spills
from tilewright.codegen.llvm.symbols import rename_functions
from tilewright.codegen.llvm.workers import CompilePool, compile_many
from tilewright.codegen.storage import Memory

__all__ = [
    "ALL_CALLS",
    "CSource",
    "CompilePool",
    "CompileRequest",
    "KernelText",
    "LoadedObject",
    "Memory",
    "ObjectCache",
    "assembly",
    "compile_ir",
    "compile_many",
    "compile_request",
    "count_vector_spills",
    "emit_c",
    "emit_kernel",
    "link_shared",
    "load_object",
    "open_cache",
    "optimised_ir",
    "rename_functions",
]
