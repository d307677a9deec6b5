"""Code generation: the partial-evaluating emitter and the LLVM back end."""

from tilewright.codegen.llvm.kernel import KernelText, emit_kernel
from tilewright.codegen.statements import Memory

__all__ = ["KernelText", "Memory", "emit_kernel"]
