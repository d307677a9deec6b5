"""From a lowered function to the text of an LLVM module."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.llvm.builder import Builder
from tilewright.codegen.memory import LanesReusedError
from tilewright.codegen.statements import Emitter
from tilewright.codegen.storage import Memory
from tilewright.ir import LoopFunction


@dataclass(frozen=True, slots=True)
class KernelText:
    """LLVM IR of one kernel, its exported symbol and the memory it needs in bytes."""

    symbol: str
    text: str
    memory: Memory


def emit_kernel(func: LoopFunction, *, triple: str, vector_bits: int) -> KernelText:
    """Emit a lowered function (no blocks left) for vectors of ``vector_bits``.

    The kernel has the runtime's calling convention: ``i32 (context, buffers, params, workspace, scratch)``.
    """
    builder = Builder(triple)
    try:
        memory = Emitter(builder, vector_bits).kernel(func)
    except LanesReusedError:
        builder = Builder(triple)
        memory = Emitter(builder, vector_bits, keeps_lanes=True).kernel(func)
    return KernelText(func.name, builder.module(), memory)
