"""Intel AMX: eight tile registers of up to 16 rows of 64 bytes, and products of whole tiles.

A tile holds as many rows, and as many bytes of each, as it was configured for; products take as long for
parts of tiles. Figures: Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), ch. 20:
a product starts every 16 cycles; measured on Emerald Rapids: 16.4, with loads and stores beside it.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import BF16, F32, I8, I32, TILE, U8, DType
from tilewright.target.model import Instruction, Move, Operand

TILES: Final = 8
"""Tile registers."""
ROWS: Final = 16
"""Rows of a tile, at most."""
ROW_BYTES: Final = 64
"""Bytes of a row, at most."""
WORD: Final = 4
"""Bytes that products take together from both operands: one element of the result."""

_NEEDS: Final = frozenset({"amx-tile"})


def _product(name: str, a: DType, b: DType, total: DType, feature: str) -> Instruction:
    group = WORD // a.bytes
    return Instruction(
        name=name,
        axes=(("m", ROWS), ("n", ROW_BYTES // WORD), ("k", ROW_BYTES // a.bytes)),
        result=Operand(name="result", dtype=total, axes=("m", "n"), scope=TILE),
        a=Operand(name="a", dtype=a, axes=("m", "k")),
        b=Operand(name="b", dtype=b, axes=("k", "n"), group=group),
        emitter=f"llvm.x86.{name}",
        features=_NEEDS | {feature},
        latency=52,
        per_cycle=1 / 16,
        partial=("m", "n", "k"),
    )


def _zero(total: DType) -> Move:
    return Move(
        name=f"tilezero_{total.name}",
        axes=(("m", ROWS), ("n", ROW_BYTES // WORD)),
        result=Operand(name="result", dtype=total, axes=("m", "n"), scope=TILE),
        source=None,
        emitter="llvm.x86.tilezero",
        features=_NEEDS,
        latency=16,
        per_cycle=1,
        partial=("m", "n"),
    )


def _store(total: DType) -> Move:
    return Move(
        name=f"tilestored_{total.name}",
        axes=(("m", ROWS), ("n", ROW_BYTES // WORD)),
        result=Operand(name="result", dtype=total, axes=("m", "n")),
        source=Operand(name="source", dtype=total, axes=("m", "n"), scope=TILE),
        emitter="llvm.x86.tilestored64",
        features=_NEEDS,
        latency=16,
        per_cycle=1 / 16,
        partial=("m", "n"),
    )


TDPBF16PS: Final = _product("tdpbf16ps", BF16, BF16, F32, "amx-bf16")
"""16x32 times 32x16 bf16 numbers, accumulated in f32; subnormals count as zero."""
TDPBUSD: Final = _product("tdpbusd", U8, I8, I32, "amx-int8")
"""16x64 unsigned times 64x16 signed bytes, accumulated in i32."""

INSTRUCTIONS: Final = (TDPBF16PS, TDPBUSD)
MOVES: Final = (_zero(F32), _zero(I32), _store(F32), _store(I32))
