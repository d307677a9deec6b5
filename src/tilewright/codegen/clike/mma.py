"""Matrix instructions of warps in CUDA text: which thread holds which elements in registers.

Layouts of fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "… mma.m16n8k32". With ``group = lane /
4`` and ``of = lane % 4``, a thread holds of the result ``(group, 2 of)``, its right neighbour, and the two of
row ``group + 8``; of the factors as many neighbours along ``k`` as 32 bits hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.codegen.clike.helpers import Helpers


@dataclass(frozen=True, slots=True)
class WarpInstruction:
    """How text calls an instruction: the PTX mnemonic, and elements of a factor in 32 bits."""

    mnemonic: str
    packed: int
    factor: str
    total: str
    constraint: str


WARP_INSTRUCTIONS: Final = {
    "mma_m16n8k16_f16": WarpInstruction(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 2, "unsigned short", "float", "f"
    ),
    "mma_m16n8k16_bf16": WarpInstruction(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 2, "unsigned short", "float", "f"
    ),
    "mma_m16n8k32_i8": WarpInstruction(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 4, "signed char", "int", "r"
    ),
}


def mma_function(helpers: Helpers, name: str) -> str:
    """The name of the function that does an instruction on matrices in memory, each with two strides."""
    row = WARP_INSTRUCTIONS[name]
    bits = 32 // row.packed
    unsigned = "unsigned short" if row.packed == 2 else "unsigned char"

    def word(matrix: str, at: str, step: str) -> str:
        """32 bits of neighbours along ``k`` from an offset on."""
        parts = [
            f"(unsigned int)({unsigned}){matrix}[{at} + {n} * {step}]" + (f" << {n * bits}" if n else "")
            for n in range(row.packed)
        ]
        return " | ".join(parts)

    half = row.packed * 4
    a = [
        word("a", f"(group + {r}) * ai + (of * {row.packed} + {k}) * ak", "ak")
        for k in (0, half)
        for r in (0, 8)
    ]
    b = [word("b", f"(of * {row.packed} + {k}) * bk + group * bj", "bk") for k in (0, half)]
    places = [f"(group + {r}) * ci + (of * 2 + {j}) * cj" for r in (0, 8) for j in (0, 1)]
    registers = ", ".join(f"%{n}" for n in range(4))
    inputs = [f'"r"(a{n})' for n in range(4)] + [f'"r"(b{n})' for n in range(2)]
    outputs = ", ".join(f'"+{row.constraint}"(c{n})' for n in range(4))
    lines = [
        f"void tw_{name}({row.total} *c, int ci, int cj, const {row.factor} *a, int ai, int ak, "
        f"const {row.factor} *b, int bk, int bj) {{",
        "    const int lane = threadIdx.x & 31, group = lane >> 2, of = lane & 3;",
        "    __syncwarp();",
        *(f"    const unsigned int a{n} = {text};" for n, text in enumerate(a)),
        *(f"    const unsigned int b{n} = {text};" for n, text in enumerate(b)),
        *(f"    {row.total} c{n} = c[{place}];" for n, place in enumerate(places)),
        f'    asm volatile("{row.mnemonic} {{{registers}}}, "',
        f'        "{{%4, %5, %6, %7}}, {{%8, %9}}, {{{registers}}};"',
        f"        : {outputs} : {', '.join(inputs)});",
        *(f"    c[{place}] = c{n};" for n, place in enumerate(places)),
        "    __syncwarp();",
        "}",
    ]
    return helpers.verbatim(f"tw_{name}", "\n".join(lines))
