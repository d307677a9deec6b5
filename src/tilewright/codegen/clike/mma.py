"""Matrix instructions of warps in CUDA text: which thread holds which elements in registers.

Layouts of fragments: PTX ISA, "Matrix Fragments for mma.m16n8k8", "… m16n8k16" and "… m16n8k32". With
``group = lane / 4`` and ``of = lane % 4``, a thread holds of the result ``(group, 2 of)``, its right
neighbour, and the two of row ``group + 8``; of the factors as many neighbours along ``k`` as 32 bits hold.
Factors are read by ordinary loads, of whole words where neighbours along ``k`` lie together: compilers then
keep in registers what several products of a warp's tile have in common.

Where a warp's tile is written out, its fragments come first, by ``ldmatrix`` where factors lie in shared
memory in rows of 16 bytes: a thread names a row of a matrix of 8 rows, and gets the word ``of`` of row
``group``, or, turned, two neighbours of column ``group`` (PTX ISA, "Warp-level matrix load instruction").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tilewright.codegen.clike.helpers import Helpers

Way: TypeAlias = Literal["rows", "turned", "words", "elements"]
"""How a fragment is read: rows of 16 bytes along ``k``, or turned across it, words, or single elements."""
ROW_BYTES: Final = 16
"""Bytes of a row of a matrix that a warp reads at once, at a multiple of them."""

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
    a, b = _words_a(helpers, row, words_a), _words_b(helpers, row, words_b)
    places = [f"{r} * cr + {c} * cc" for r in (0, 1) for c in (0, 1)]
    named = f"tw_{name}{'_wa' if words_a else ''}{'_wb' if words_b else ''}"
    first, second = row.factors
    lines = [
        f"void {named}({row.total} *c, int cr, int cc, const {first} *a, int ai, int ak, "
        f"const {second} *b, int bk, int bj) {{",
        f"    const int lane = threadIdx.x & 31, group = lane / {LANES}, of = lane % {LANES};",
        *(f"    const unsigned int a{n} = {text};" for n, text in enumerate(a)),
        *(f"    const unsigned int b{n} = {text};" for n, text in enumerate(b)),
        *(f"    {row.total} c{n} = c[{place}];" for n, place in enumerate(places)),
        *_multiplied(row, [f"a{n}" for n in range(4)], [f"b{n}" for n in range(2)]),
        *(f"    c[{place}] = c{n};" for n, place in enumerate(places)),
        "}",
    ]
    return helpers.verbatim(named, "\n".join(lines))


def fragment_function(helpers: Helpers, name: str, factor: int, way: Way) -> str:
    """The name of the function that brings a fragment of a factor (0 or 1) into registers, one way.

    It takes the registers, and a pointer to the warp's matrix in shared memory with its two strides; the
    second factor's are along ``k`` and along columns.
    """
    row = WARP_INSTRUCTIONS[name]
    letter, count = "ab"[factor], (4, 2)[factor]
    kind = row.factors[factor]
    strides = ("int ai, int ak", "int bk, int bj")[factor]
    named = f"tw_{name}_{letter}_{way}"
    if way in ("rows", "turned"):
        each = 4 * row.packed
        # lanes name rows of the matrices one after the other
        places = {
            (0, "rows"): f"(lane % 16) * ai + lane / 16 * {each}",
            (1, "rows"): f"(lane % 8) * bj + lane / 8 % 2 * {each}",
            (1, "turned"): "(lane % 16) * bk",
        }
        turned = ".trans" if way == "turned" else ""
        registers = ", ".join(f"%{n}" for n in range(count))
        outputs = ", ".join(f'"=r"(f[{n}])' for n in range(count))
        address = f'"r"((unsigned int)__cvta_generic_to_shared(&{letter}[{places[factor, way]}]))'
        body = [
            f'    asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16 '
            f'{{{registers}}}, [%{count}];"',
            f"        : {outputs} : {address});",
        ]
        if row.packed == 1:
            body += [f"    f[{n}] = {_rounding(helpers)}(__uint_as_float(f[{n}]));" for n in range(count)]
    else:
        words = (_words_a, _words_b)[factor](helpers, row, way == "words")
        body = [
            f"    const int group = lane / {LANES}, of = lane % {LANES};",
            *(f"    f[{n}] = {text};" for n, text in enumerate(words)),
        ]
    lines = [
        f"void {named}(unsigned int *f, const {kind} *{letter}, {strides}) {{",
        "    const int lane = threadIdx.x & 31;",
        *body,
        "}",
    ]
    return helpers.verbatim(named, "\n".join(lines))


def product_function(helpers: Helpers, name: str) -> str:
    """The name of the function that does an instruction on fragments in registers."""
    row = WARP_INSTRUCTIONS[name]
    places = [f"{r} * cr + {c} * cc" for r in (0, 1) for c in (0, 1)]
    named = f"tw_{name}_fragments"
    lines = [
        f"void {named}({row.total} *c, int cr, int cc, const unsigned int *a, const unsigned int *b) {{",
        *(f"    {row.total} c{n} = c[{place}];" for n, place in enumerate(places)),
        *_multiplied(row, [f"a[{n}]" for n in range(4)], [f"b[{n}]" for n in range(2)]),
        *(f"    c[{place}] = c{n};" for n, place in enumerate(places)),
        "}",
    ]
    return helpers.verbatim(named, "\n".join(lines))


def _multiplied(row: WarpInstruction, a: list[str], b: list[str]) -> list[str]:
    """The instruction on registers, its sums in ``c0`` to ``c3``."""
    registers = ", ".join(f"%{n}" for n in range(4))
    inputs = ", ".join(f'"r"({text})' for text in (*a, *b))
    outputs = ", ".join(f'"+{row.constraint}"(c{n})' for n in range(4))
    return [
        # volatile: it must not move to where only some threads are
        f'    asm volatile("{row.mnemonic} {{{registers}}}, "',
        f'        "{{%4, %5, %6, %7}}, {{%8, %9}}, {{{registers}}};"',
        f"        : {outputs} : {inputs});",
    ]


def _words_a(helpers: Helpers, row: WarpInstruction, whole: bool) -> list[str]:
    """The four words of the first factor's fragment as text."""
    return [
        _word(helpers, row, "a", f"(group + {r}) * ai + (of * {row.packed} + {k}) * ak", "ak", whole)
        for k in (0, row.packed * LANES)
        for r in (0, GROUP)
    ]


def _words_b(helpers: Helpers, row: WarpInstruction, whole: bool) -> list[str]:
    """The two words of the second factor's."""
    return [
        _word(helpers, row, "b", f"(of * {row.packed} + {k}) * bk + group * bj", "bk", whole)
        for k in (0, row.packed * LANES)
    ]


def _word(helpers: Helpers, row: WarpInstruction, matrix: str, at: str, step: str, whole: bool) -> str:
    """32 bits of neighbours along ``k`` from an offset on."""
    if row.packed == 1:
        return f"{_rounding(helpers)}({matrix}[{at}])"
    if whole:
        return f"*(const unsigned int *)&{matrix}[{at}]"
    bits = 32 // row.packed
    unsigned = {2: "(unsigned short)", 4: "(unsigned char)"}[row.packed]
    parts = [
        f"(unsigned int){unsigned}{matrix}[{at} + {n} * {step}]" + (f" << {n * bits}" if n else "")
        for n in range(row.packed)
    ]
    return " | ".join(parts)


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
