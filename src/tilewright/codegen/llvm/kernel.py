"""From a lowered function to the text of an LLVM module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.codegen.llvm.builder import Builder
from tilewright.codegen.llvm.compile import AS_WRITTEN_LEVEL, DEFAULT_LEVEL
from tilewright.codegen.llvm.loader import LIBRARY_SYMBOLS
from tilewright.codegen.memory import Keys, RegistersReusedError
from tilewright.codegen.statements import Emitter
from tilewright.codegen.storage import Memory
from tilewright.ir import BF16, LoopFunction
from tilewright.target import BUILT_IN, Operations

MAX_SYMBOL: Final = 60
"""Characters of a kernel's symbol, without what is added for its parts."""
_NEON_BITS: Final = 128


@dataclass(frozen=True, slots=True)
class KernelText:
    """LLVM IR of one kernel, its exported symbol, the memory it needs in bytes, and the passes it wants."""

    symbol: str
    text: str
    memory: Memory
    level: int = DEFAULT_LEVEL


def emit_kernel(
    func: LoopFunction,
    *,
    triple: str,
    vector_bits: int,
    operations: Operations = BUILT_IN,
    apart: bool = False,
) -> KernelText:
    """Emit a lowered function (no blocks left) for vectors of ``vector_bits``.

    ``operations`` are the instructions that it may name, those of its target. ``apart`` says that no two
    arguments share memory, as those of nests: LLVM is told so, and may put loops in lanes.

    The kernel has the runtime's calling convention: ``i32 (context, buffers, params, workspace, scratch)``.
    It returns 0, or ``n`` where assumption number ``n`` (from 1) of the function does not hold.
    """
    symbol = symbol_of(func.name)
    attributes = _attributes(triple, vector_bits)
    # machines with products of bf16 numbers have an instruction that rounds to them as well
    rounds = any(BF16 in (operand.dtype for operand in row.operands) for row in operations.values())
    lanes = False
    kept: Keys = frozenset()
    while True:
        builder = Builder(triple, attributes, rounds)
        emitter = Emitter(builder, vector_bits, operations, keeps_lanes=lanes, kept=kept, apart=apart)
        try:
            memory = emitter.kernel(func, symbol)
        except RegistersReusedError as found:
            # each time at least one register more is kept, of the finitely many that there are
            lanes, kept = lanes or found.lanes, kept | found.keys
        else:
            level = AS_WRITTEN_LEVEL if apart else DEFAULT_LEVEL
            return KernelText(symbol, builder.module(), memory, level)


def _attributes(triple: str, vector_bits: int) -> str:
    """Attributes of every function: on AArch64 the length of vectors where it is more than Neon's.

    Without it LLVM takes wider vectors apart.
    """
    if triple.startswith("aarch64") and vector_bits > _NEON_BITS:
        return f"nounwind vscale_range({vector_bits // _NEON_BITS},{vector_bits // _NEON_BITS})"
    return "nounwind"


def symbol_of(name: str) -> str:
    """A symbol for a function called ``name``: names are the user's, and may be anything."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)[:MAX_SYMBOL]
    if not plain or plain[0].isdigit() or plain in LIBRARY_SYMBOLS or plain.startswith("tw_"):
        return f"k_{plain}"
    return plain
