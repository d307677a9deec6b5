"""No vector register of an outlined micro-kernel is spilled, in the code of the default schedules."""

import re
from dataclasses import replace

import pytest

from tilewright import lang
from tilewright.codegen import assembly, count_vector_spills, emit_kernel
from tilewright.cost import Machine
from tilewright.ir import CONST
from tilewright.lower import lower
from tilewright.plan import EXACT
from tilewright.schedule import Schedule
from tilewright.strategies import default_schedule
from tilewright.target import AARCH64_NEON, AARCH64_SVE, X86_AVX2, X86_AVX512
from tilewright.target.x86_cores import core


def gemm(m, n, k):
    a, b = lang.placeholder((m, k), "f32", "A"), lang.placeholder((k, n), "f32", "B")
    return constant(lang.program([a, b], [lang.ops.matmul(a, b, name="C")]), "B")


def conv(channels, filters, height, taps, stride=1, groups=1, blocked=True):
    x = lang.placeholder((1, channels, height, height), "f32", "X")
    w = lang.placeholder((filters, channels // groups, taps, taps), "f32", "W")
    b = lang.placeholder((filters,), "f32", "B")
    c = lang.ops.conv(x, w, strides=stride, padding=taps // 2, groups=groups, name="C")
    y = lang.compute(c.shape, lambda n, f, i, j: lang.maximum(c[n, f, i, j] + b[f], 0), name="Y")
    program = constant(constant(lang.program([x, w, b], [y]), "W"), "B")
    layout = ("d0", "d1//16", "d2", "d3", "d1%16")
    s = Schedule(program)
    for name in ("X", "Y") if blocked else ("Y",):
        s = s.set_layout(name, layout)
    placed = {b.name: b.layout for b in s.func.buffers}
    inputs = tuple(b.with_(layout=placed[b.name]) for b in program.inputs)
    return replace(
        program, inputs=inputs, outputs=tuple(b.with_(layout=placed[b.name]) for b in program.outputs)
    )


def constant(program, name):
    inputs = tuple(b.with_(scope=CONST) if b.name == name else b for b in program.inputs)
    return replace(program, inputs=inputs)


def feed_forward():
    """A product of 8 x 3 vectors a tile with GELU as its end."""
    a, b = lang.placeholder((128, 312), "f32", "A"), lang.placeholder((312, 1200), "f32", "B")
    c = lang.ops.matmul(a, b, name="C")
    half = lang.const(0.5, "f32")
    y = lang.compute(c.shape, lambda i, j: half * c[i, j] * (1 + lang.erf(c[i, j] * 0.7071)), name="Y")
    return constant(lang.program([a, b], [y]), "B")


def few_channels(filters, taps, across, size):
    """A convolution of bytes by groups of taps, stride 2, its result scaled and in blocks of channels."""
    x = lang.placeholder((1, 3, size, size), "u8", "X")
    w = lang.placeholder((filters, 3, taps, across), "i8", "W")
    b = lang.placeholder((filters,), "f32", "B")
    ic, kh, kw = (lang.reduce_axis(n, name) for n, name in ((3, "ic"), (taps, "kh"), (across, "kw")))
    out = (size - across) // 2 + 1

    def product(n, f, i, j):
        left = lang.cast(x[n, ic, 2 * i + kh, 2 * j + kw], "i32")
        return lang.sum(left * lang.cast(w[f, ic, kh, kw], "i32"), [ic, kh, kw])

    c = lang.compute((1, filters, out, out), product, name="C")
    y = lang.compute(c.shape, lambda n, f, i, j: lang.cast(c[n, f, i, j], "f32") * b[f], name="Y")
    program = constant(constant(lang.program([x, w, b], [y]), "W"), "B")
    s = Schedule(program).set_layout("Y", ("d0", "d1//16", "d2", "d3", "d1%16"))
    placed = {b.name: b.layout for b in s.func.buffers}
    return replace(program, outputs=tuple(b.with_(layout=placed[b.name]) for b in program.outputs))


AVX512 = (
    replace(X86_AVX512, llvm_cpu="znver4"),
    replace(core("sapphirerapids").applied(X86_AVX512), llvm_cpu="sapphirerapids"),
)
PROGRAMS = {
    "gemm 512": lambda: gemm(512, 512, 512),
    "gemm with tails": lambda: gemm(128, 312, 312),
    "gemm 128x768": lambda: gemm(128, 768, 768),
    "conv 3x3": lambda: conv(64, 64, 56, 3),
    "conv 3x3, 28": lambda: conv(128, 128, 28, 3),
    "conv 3x3, 7": lambda: conv(512, 512, 7, 3),
    "conv 3x3, stride 2": lambda: conv(128, 128, 56, 3, 2),
    "conv 1x1": lambda: conv(64, 256, 56, 1),
    "conv 7x7, stride 2": lambda: conv(3, 64, 224, 7, 2, blocked=False),
    "conv 3x3, stride 2, of a picture": lambda: conv(3, 32, 224, 3, 2, blocked=False),
    "depthwise": lambda: conv(144, 144, 56, 3, groups=144),
    "depthwise, stride 2": lambda: conv(96, 96, 112, 3, 2, groups=96),
}
BYTES = {
    "bytes, 7x7 of a picture": lambda: few_channels(64, 7, 8, 230),
    "bytes, 3x3 of a picture": lambda: few_channels(32, 3, 4, 226),
}


def compiled(name, target):
    return compiled_of({**PROGRAMS, **BYTES}[name](), target)


def compiled_of(program, target):
    s = default_schedule(program, Machine(target, 2), accuracy=EXACT)
    text = emit_kernel(
        lower(s.func), triple=target.llvm_triple, vector_bits=target.preferred_vector_bits
    ).text
    return assembly(text, target)


@pytest.mark.few(10)
@pytest.mark.parametrize("target", AVX512, ids=lambda t: t.llvm_cpu)
@pytest.mark.parametrize("name", [*PROGRAMS, *BYTES])
def test_micro_kernels_keep_their_registers(name, target):
    spills = count_vector_spills(compiled(name, target))
    tiles = {function: n for function, n in spills.items() if "_tile_" in function}
    assert tiles, "no function was outlined"
    assert not any(tiles.values()), tiles


def test_long_ends_of_products_are_computed_vector_by_vector():
    """What is left are numbers that all vectors share: 22 in all, 162 where LLVM computes 24 at once."""
    spills = count_vector_spills(compiled_of(feed_forward(), AVX512[0]))
    (tile,) = [n for function, n in spills.items() if "_tile_" in function]
    assert tile <= 24


@pytest.mark.few(18)
@pytest.mark.parametrize("target", [X86_AVX2, AARCH64_NEON, AARCH64_SVE], ids=lambda t: t.name)
@pytest.mark.parametrize("name", PROGRAMS)
def test_innermost_loops_keep_their_registers_elsewhere(name, target):
    """Values that live through an inner loop may wait in memory, and functions save their caller's."""
    assert innermost_spills(compiled(name, target)) == 0


def test_wide_vectors_on_aarch64_are_scalable_registers():
    text = compiled("gemm 512", AARCH64_SVE)
    assert re.search(r"\bfml?ad?\tz\d+\.s", text), "no multiply-add of scalable vectors"
    assert not re.search(r"\bfmla\tv\d+\.4s", text), "vectors of 256 bits are taken apart"


def innermost_spills(text):
    """Spills and reloads of vectors between a label and a jump back to it, with no label between."""
    lines, start, count = text.splitlines(), None, 0
    for n, line in enumerate(lines):
        label = re.match(r"(\.LBB\S+):", line)
        if label:
            start = label[1], n
        jump = re.search(r"\s(\.LBB\S+)$", line.split("#")[0].split("//")[0].rstrip())
        if jump and start and jump[1] == start[0]:
            sizes = re.findall(r"(\d+)-byte (?:Folded )?(?:Spill|Reload)", "\n".join(lines[start[1] : n]))
            count += sum(int(size) >= 16 for size in sizes)
    return count
