"""Intel AMX: eight tile registers of up to 16 rows of 64 bytes, and products of whole tiles.

A tile holds as many rows, and as many bytes of each, as it was configured for; products take as long for
parts of tiles. Figures: Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), ch. 20:
a product starts every 16 cycles; measured on Emerald Rapids: 16.4, with loads and stores beside it.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir import BF16, F32, I8, I32, TILE, U8, DType
from tilewright.target.instruction import Emission, Instruction, Placement, clear, contraction, copy, element

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
    axes = (("m", ROWS), ("n", ROW_BYTES // WORD), ("k", ROW_BYTES // a.bytes))
    left, right = element("a", ("m", "k"), a), element("b", ("k", "n"), b)
    return Instruction(
        name=name,
        stage=contraction(axes, element("result", ("m", "n"), total), left, right),
        placements=(
            ("result", Placement(scope=TILE)),
            ("a", Placement(strided=("m",), overlapping=("m",))),
            ("b", Placement(group=group)),
        ),
        emission=Emission(intrinsic=f"llvm.x86.{name}", form="tiles"),
        features=_NEEDS | {feature},
        latency=52,
        per_cycle=1 / 16,
        partial=("m", "n", "k"),
    )


_PART: Final = (("m", ROWS), ("n", ROW_BYTES // WORD))


def _zero(total: DType) -> Instruction:
    return Instruction(
        name=f"tilezero_{total.name}",
        stage=clear(_PART, element("result", ("m", "n"), total)),
        placements=(("result", Placement(scope=TILE)),),
        emission=Emission(intrinsic="llvm.x86.tilezero", form="tiles"),
        features=_NEEDS,
        latency=16,
        per_cycle=1,
        partial=("m", "n"),
    )


def _store(total: DType) -> Instruction:
    result, source = (element(name, ("m", "n"), total) for name in ("result", "source"))
    return Instruction(
        name=f"tilestored_{total.name}",
        stage=copy(_PART, result, source),
        placements=(("result", Placement(strided=("m",))), ("source", Placement(scope=TILE))),
        emission=Emission(intrinsic="llvm.x86.tilestored64", form="tiles"),
        features=_NEEDS,
        latency=16,
        per_cycle=1 / 16,
        partial=("m", "n"),
    )


TDPBF16PS: Final = _product("tdpbf16ps", BF16, BF16, F32, "amx-bf16")
"""16x32 times 32x16 bf16 numbers, accumulated in f32; subnormals count as zero."""
TDPBUSD: Final = _product("tdpbusd", U8, I8, I32, "amx-int8")
"""16x64 unsigned times 64x16 signed bytes, accumulated in i32."""
TDPBSSD: Final = _product("tdpbssd", I8, I8, I32, "amx-int8")
"""16x64 times 64x16 signed bytes, accumulated in i32."""
TDPBSUD: Final = _product("tdpbsud", I8, U8, I32, "amx-int8")
"""16x64 signed times 64x16 unsigned bytes, accumulated in i32."""
TDPBUUD: Final = _product("tdpbuud", U8, U8, I32, "amx-int8")
"""16x64 times 64x16 unsigned bytes, accumulated in i32."""

INSTRUCTIONS: Final = (TDPBF16PS, TDPBUSD, TDPBSSD, TDPBSUD, TDPBUUD)
MOVES: Final = (_zero(F32), _zero(I32), _store(F32), _store(I32))
