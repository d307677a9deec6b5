"""C-like text from lowered functions: C99, OpenCL C and CUDA C by one printer."""

from tilewright.codegen.clike.c import C99, CSource, emit_c
from tilewright.codegen.clike.dialect import ALL_CALLS, Dialect

__all__ = ["ALL_CALLS", "C99", "CSource", "Dialect", "emit_c"]
