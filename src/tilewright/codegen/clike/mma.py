"""Matrix instructions of warps in CUDA text: which thread holds which elements in registers.

Layouts of fragments: PTX ISA, "Matrix Fragments for mma.m16n8k8", "… m16n8k16" and "… m16n8k32". With
``group = lane / 4`` and ``of = lane % 4``, a thread holds of the result ``(group, 2 of)``, its right
neighbour, and the two of row ``group + 8``; of the factors as many neighbours along ``k`` as 32 bits hold.
Factors are read by ordinary loads, of whole words where neighbours along ``k`` lie together: compilers then
keep in registers what several products of a warp's tile have in common.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.codegen.clike.helpers import Helpers

LANES: Final = 4
"""Lanes side by side along a row of the result; each has two neighbouring columns."""
GROUP: Final = 8
"""Rows between the two that a lane has."""


@dataclass(frozen=True, slots=True)
class WarpInstruction:
    """How text calls an instruction: the PTX mnemonic, and elements of a factor in 32 bits."""

    mnemonic: str
    packed: int
    factors: tuple[str, str]
    total: str
    constraint: str


def _of(shape: str, types: str, packed: int, a: str, b: str, total: str = "float") -> WarpInstruction:
    return WarpInstruction(
        f"mma.sync.aligned.{shape}.row.col.{types}", packed, (a, b), total, "f" if total == "float" else "r"
    )


_BYTES: Final = {"i8": ("s8", "signed char"), "u8": ("u8", "unsigned char")}

WARP_INSTRUCTIONS: Final = {
    "mma_m16n8k16_f16": _of("m16n8k16", "f32.f16.f16.f32", 2, "unsigned short", "unsigned short"),
    "mma_m16n8k16_bf16": _of("m16n8k16", "f32.bf16.bf16.f32", 2, "unsigned short", "unsigned short"),
    "mma_m16n8k8_tf32": _of("m16n8k8", "f32.tf32.tf32.f32", 1, "float", "float"),
    **{
        f"mma_m16n8k32_{a if a == b else a + b}": _of(
            "m16n8k32", f"s32.{_BYTES[a][0]}.{_BYTES[b][0]}.s32", 4, _BYTES[a][1], _BYTES[b][1], "int"
        )
        for a in _BYTES
        for b in _BYTES
    },
}


def mma_function(helpers: Helpers, name: str, words_a: bool, words_b: bool) -> str:
    """The name of the function that does an instruction on matrices in memory, each with two strides.

    The result's are those of this thread's share, those of the factors of the warp's matrices, which
    begin at their pointers. ``words`` say of which factors elements along ``k`` lie together, at multiples of
    32 bits.
    """
    row = WARP_INSTRUCTIONS[name]
    bits = 32 // row.packed
    unsigned = {1: "", 2: "(unsigned short)", 4: "(unsigned char)"}[row.packed]

    def word(matrix: str, at: str, step: str, whole: bool) -> str:
        """32 bits of neighbours along ``k`` from an offset on."""
        if row.packed == 1:
            return f"{_rounding(helpers)}({matrix}[{at}])"
        if whole:
            return f"*(const unsigned int *)&{matrix}[{at}]"
        parts = [
            f"(unsigned int){unsigned}{matrix}[{at} + {n} * {step}]" + (f" << {n * bits}" if n else "")
            for n in range(row.packed)
        ]
        return " | ".join(parts)

    half = row.packed * LANES
    a = [
        word("a", f"(group + {r}) * ai + (of * {row.packed} + {k}) * ak", "ak", words_a)
        for k in (0, half)
        for r in (0, GROUP)
    ]
    b = [word("b", f"(of * {row.packed} + {k}) * bk + group * bj", "bk", words_b) for k in (0, half)]
    places = [f"{r} * cr + {c} * cc" for r in (0, 1) for c in (0, 1)]
    registers = ", ".join(f"%{n}" for n in range(4))
    inputs = [f'"r"(a{n})' for n in range(4)] + [f'"r"(b{n})' for n in range(2)]
    outputs = ", ".join(f'"+{row.constraint}"(c{n})' for n in range(4))
    named = f"tw_{name}{'_wa' if words_a else ''}{'_wb' if words_b else ''}"
    first, second = row.factors
    lines = [
        f"void {named}({row.total} *c, int cr, int cc, const {first} *a, int ai, int ak, "
        f"const {second} *b, int bk, int bj) {{",
        f"    const int lane = threadIdx.x & 31, group = lane / {LANES}, of = lane % {LANES};",
        *(f"    const unsigned int a{n} = {text};" for n, text in enumerate(a)),
        *(f"    const unsigned int b{n} = {text};" for n, text in enumerate(b)),
        *(f"    {row.total} c{n} = c[{place}];" for n, place in enumerate(places)),
        # volatile: it must not move to where only some threads are
        f'    asm volatile("{row.mnemonic} {{{registers}}}, "',
        f'        "{{%4, %5, %6, %7}}, {{%8, %9}}, {{{registers}}};"',
        f"        : {outputs} : {', '.join(inputs)});",
        *(f"    c[{place}] = c{n};" for n, place in enumerate(places)),
        "}",
    ]
    return helpers.verbatim(named, "\n".join(lines))


def _rounding(helpers: Helpers) -> str:
    """The name of the function that gives an f32 number's bits as TF32."""
    lines = [
        "unsigned int tw_tf32(float x) {",
        "    unsigned int bits;",
        '    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));',
        "    return bits;",
        "}",
    ]
    return helpers.verbatim("tw_tf32", "\n".join(lines))
