"""From lowered loop functions to code: the partial-evaluating emitter and the back ends."""

from tilewright.codegen.llvm.compile import compile_ir
from tilewright.codegen.llvm.kernel import KernelText, emit_kernel
from tilewright.codegen.llvm.loader import LoadedObject, load_object
from tilewright.codegen.statements import Memory

__all__ = ["KernelText", "LoadedObject", "Memory", "compile_ir", "emit_kernel", "load_object"]
