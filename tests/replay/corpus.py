"""The replay corpus: programs whose lowered functions restructuring leaves as they are, and their digests.

A case is a model (one program a kernel), a program of the language or a loop nest, on a target table for a
number of threads. Its digest is a list of structural hashes, one a kernel: names do not count, loops, storage
and hints do. With ``points`` the kernels are not those of the default plan: each nest of it is carried out by
itself, by so many plans drawn from its space.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import MappingProxyType

import onnx
from onnx import TensorProto, helper

from run import NAMES, application
from tilewright import lang
from tilewright.cost import Machine
from tilewright.driver.device_model import device_units
from tilewright.driver.graph_plan import graph_units
from tilewright.frontend import import_onnx, zoo
from tilewright.frontend.nests import scop
from tilewright.ir import LoopFunction, Program, function_at, structural_hash
from tilewright.lower import lower
from tilewright.plan import Variants, plan_unit, rewritten
from tilewright.strategies import default_schedule, schedule_nest
from tilewright.support import ScheduleError
from tilewright.target import (
    A100,
    AARCH64_NEON,
    AARCH64_SVE,
    H200,
    POCL,
    X86_AVX2,
    X86_AVX512,
    GpuTarget,
    Target,
    x86_amx,
    x86_avx512,
)
from tilewright.target.x86_cores import core
from tilewright.tiling import apply
from unit.frontend.nests.polybench import KERNELS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
THREADS = (1, 2, 8)
#: Characters of a digest that are kept: enough to tell some thousands apart.
DIGITS = 12


def _server(name: str, *, tiles: bool = False) -> Target:
    """The AVX-512 table with a CPU model's figures; with ``tiles`` its registers for whole matrices, too."""
    known, table = core(name), X86_AVX512
    if not tiles:
        return replace(known.applied(table), name=name, instructions=known.rated(table.instructions))
    features = table.features | {f for i in x86_amx.INSTRUCTIONS for f in i.features}
    features |= {f for i in x86_avx512.INSTRUCTIONS for f in i.features}
    return replace(
        known.applied(table),
        name=name,
        features=features,
        instructions=known.rated((*x86_amx.INSTRUCTIONS, *x86_avx512.INSTRUCTIONS)),
        moves=x86_amx.MOVES,
        tiles=x86_amx.TILES,
    )


CPUS: Mapping[str, Target] = MappingProxyType(
    {
        "avx512": X86_AVX512,
        "avx2": X86_AVX2,
        "neon": AARCH64_NEON,
        "sve": AARCH64_SVE,
        "znver5": _server("znver5"),
        "graniterapids": _server("graniterapids", tiles=True),
    }
)


DEVICES: Mapping[str, GpuTarget] = MappingProxyType({"a100": A100, "h200": H200, "pocl": POCL})
TARGETS: Mapping[str, Target | GpuTarget] = MappingProxyType({**CPUS, **DEVICES})

#: Products and convolutions of narrow numbers: element types of the factors and of the sums.
NARROW: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {"u8s8": ("u8", "i8", "i32"), "s8s8": ("i8", "i8", "i32"), "bf16": ("bf16", "bf16", "f32")}
)
#: Rows, columns and terms; whole tiles, remainders, few rows, few columns.
SHAPES = ((64, 256, 128), (100, 200, 300), (1, 512, 512), (37, 16, 64))
#: Channels, lines and columns, results, window.
IMAGES = ((64, 14, 64, 3), (40, 9, 24, 1))
#: Sizes of loop nests, by what they are called in PolyBench; others are 40.
NEST_SIZES: Mapping[str, int] = MappingProxyType(
    {"TSTEPS": 6, "NI": 48, "NJ": 36, "NK": 52, "N": 44, "M": 36}
)


@dataclass(frozen=True, slots=True)
class Case:
    """A model, program or nest on a target for so many threads. ``source`` names what makes it."""

    source: str
    target: str
    threads: int
    precision: str = "f32"
    points: int = 0

    @property
    def key(self) -> str:
        """What the case is called in the file of digests."""
        suffix = "" if self.precision == "f32" else f"/{self.precision}"
        suffix += f"/{self.points} points" if self.points else ""
        return f"{self.source}/{self.target}/{self.threads}{suffix}"


def _benchmark(module: str) -> object:
    """A module of the benchmarks."""
    if str(BENCHMARKS) not in sys.path:
        sys.path.insert(0, str(BENCHMARKS))
    return __import__(module)


def product(m: int, n: int, k: int, numbers: str) -> Program:
    """A product of narrow numbers."""
    left, right, total = NARROW[numbers]
    a = lang.placeholder((m, k), left, name="A")
    b = lang.placeholder((k, n), right, name="B")
    r = lang.reduce_axis(k, "k")
    c = lang.compute(
        (m, n), lambda i, j: lang.sum(lang.cast(a[i, r], total) * lang.cast(b[r, j], total), r), name="C"
    )
    d = lang.compute((m, n), lambda i, j: lang.cast(c[i, j], "f32") * 0.5, name="D")
    return lang.program([a, b], [d])


def image(channels: int, side: int, results: int, window: int, numbers: str) -> Program:
    """A convolution of narrow numbers, padded to the size of its input, with constant weights."""
    left, right, total = NARROW[numbers]
    x = lang.placeholder((1, side, side, channels), left, name="X")
    w = lang.placeholder((window, window, channels, results), right, name="W")
    at = lang.boundary(x, 0) if window > 1 else x
    r, u, v = (lang.reduce_axis(n, name) for n, name in ((channels, "c"), (window, "u"), (window, "v")))
    half = window // 2
    y = lang.compute(
        (1, side, side, results),
        lambda b, i, j, o: lang.sum(
            lang.cast(at[b, i + u - half, j + v - half, r], total) * lang.cast(w[u, v, r, o], total),
            (r, u, v),
        ),
        name="Y",
    )
    z = lang.compute((1, side, side, results), lambda b, i, j, o: lang.maximum(y[b, i, j, o], 0), name="Z")
    return lang.program([x, w], [z])


def attention(batch: int, rows: int, keys: int, depth: int) -> Program:
    """Scores, their softmax and the values that they weigh, in one program."""
    q, k, v = (
        lang.placeholder((batch, n, depth), "f32", name=name)
        for name, n in (("Q", rows), ("K", keys), ("V", keys))
    )
    return lang.program([q, k, v], [lang.ops.attention(q, k, v)])


def program_of(source: str) -> tuple[Program, tuple[str, ...]]:
    """The program that a source of the language names, and its constants; ``made``: it has none."""
    kind, name = source.split(":", 1)
    if kind == "pipeline":
        app = application(name)
        return app.program(*app.small), ()
    sizes, *words = name.split()
    numbers = tuple(map(int, sizes.split("x")))
    if kind == "narrow":
        return product(*numbers, words[0]), () if "made" in words else ("B",)  # type: ignore[call-arg, arg-type]
    if kind == "image":
        return image(*numbers, words[0]), ("W",)  # type: ignore[call-arg, arg-type]
    return attention(*numbers), ()  # type: ignore[call-arg, arg-type]


def nest_of(name: str) -> LoopFunction:
    """A nest of PolyBench at its sizes here."""
    func = scop(KERNELS[name]).func
    return function_at(func, {p.name: NEST_SIZES.get(p.name, 40) for p in func.params})


def model_of(source: str) -> onnx.ModelProto:
    """The model that a source names."""
    kind, name = source.split(":", 1)
    if kind in ("small", "zoo"):
        return (zoo.SMALL if kind == "small" else zoo.FULL)[name]()
    if kind == "operator":
        found = next(o for o in _benchmark("operators").OPERATORS if o.name == name)  # type: ignore[attr-defined]
        return found.make(name).model
    m, n, k = map(int, name.split("x"))
    shapes = {"A": (m, k), "B": (k, n), "Y": (m, n)}
    a, b, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in shapes)
    graph = helper.make_graph([helper.make_node("MatMul", ["A", "B"], ["Y"])], "product", [a, b], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


LANGUAGE = ("pipeline", "narrow", "image", "attention")


def _language() -> Iterator[str]:
    yield from (f"pipeline:{name}" for name in NAMES)
    for numbers in NARROW:
        for shape in SHAPES:
            yield f"narrow:{'x'.join(map(str, shape))} {numbers}"
        yield f"narrow:{'x'.join(map(str, SHAPES[1]))} {numbers} made"
        yield from (f"image:{'x'.join(map(str, shape))} {numbers}" for shape in IMAGES)
    yield from ("attention:2x64x64x32", "attention:4x100x77x24")


def sample() -> Iterator[Case]:
    """What every run of the tests compares."""
    for name in zoo.SMALL:
        yield Case(f"small:{name}", "avx512", 2)
    for name in ("resnet18", "bert_base", "mobilenet_v2"):
        for target in ("avx2", "neon", "graniterapids"):
            yield Case(f"small:{name}", target, 2)
    yield Case("small:resnet18", "graniterapids", 2, "bf16")
    yield Case("small:resnet18", "a100", 2)
    yield Case("small:bert_base", "h200", 2, "tf32")
    yield Case("small:mobilenet_v2", "avx512", 2, points=1)
    for name in ("matmul 512x512x512", "LayerNormalization 128x768", "conv 3x3 1x64-64 56x56"):
        yield Case(f"operator:{name}", "avx512", 2)
    for name in ("harris", "unsharp", "iir_blur"):
        yield Case(f"pipeline:{name}", "avx512", 2)
    yield Case("pipeline:harris", "pocl", 2)
    for target in ("znver5", "graniterapids"):
        yield Case("narrow:100x200x300 u8s8", target, 2, points=2)
    yield Case("attention:4x100x77x24", "avx512", 2)
    for name in ("gemm", "jacobi_2d", "cholesky"):
        yield Case(f"nest:{name}", "avx512", 2)


def everything() -> Iterator[Case]:
    """The whole corpus."""
    sources = [f"small:{name}" for name in zoo.SMALL] + [f"zoo:{name}" for name in zoo.FULL]
    sources += [f"operator:{o.name}" for o in _benchmark("operators").OPERATORS]  # type: ignore[attr-defined]
    shapes = _benchmark("deepbench").SHAPES  # type: ignore[attr-defined]
    sources += ["product:" + "x".join(map(str, shape)) for shape in shapes]
    for source in sources:
        for target in CPUS:
            for threads in THREADS:
                yield Case(source, target, threads)
        if source.startswith(("small:", "zoo:")):
            for target in ("znver5", "graniterapids"):
                yield Case(source, target, 2, "bf16")
        if source.startswith("small:"):
            for target in DEVICES:
                yield Case(source, target, 2)
            yield Case(source, "h200", 2, "tf32")
            for target in ("avx512", "avx2", "neon", "graniterapids"):
                yield Case(source, target, 2, points=3)
            yield Case(source, "a100", 2, points=1)
            yield Case(source, "graniterapids", 2, "bf16", 3)
        if source.startswith("operator:"):
            yield Case(source, "avx512", 2, points=3)
            yield Case(source, "a100", 2)
    for source in _language():
        for target in ("avx512", "avx2", "neon", "znver5", "graniterapids", "a100", "pocl"):
            yield Case(source, target, 2)
        for target in ("avx512", "graniterapids"):
            yield Case(source, target, 2, points=3)
    for name in KERNELS:
        for target in ("avx512", "avx2"):
            for threads in (1, 2):
                yield Case(f"nest:{name}", target, threads)


def programs(case: Case) -> tuple[tuple[Program, int, tuple[str, ...]], ...]:
    """The programs of a case's kernels, each once, the threads that run one call of it, and constants."""
    if case.source.startswith(LANGUAGE):
        program, constants = program_of(case.source)
        return ((program, case.threads, constants),)
    graph, target = import_onnx(model_of(case.source)), TARGETS[case.target]
    if isinstance(target, GpuTarget):
        units = device_units(graph, target, case.precision).units  # type: ignore[arg-type]
    else:
        units = graph_units(graph, target, case.threads, case.precision).units  # type: ignore[arg-type]
    found = [(unit.program, case.threads if unit.parts == 1 else 1, ()) for unit in units]
    return tuple(dict.fromkeys(found))


def digests(case: Case) -> list[str]:
    """One digest a kernel: of the function that code generation takes; of drawn plans one a plan."""
    target = TARGETS[case.target]
    if case.source.startswith("nest:"):
        made = schedule_nest(nest_of(case.source.removeprefix("nest:")), Machine(target, case.threads))
        return [_digest(made.func, target)]
    out: list[str] = []
    for program, threads, constants in programs(case):
        machine = Machine(target, threads)
        if case.points:
            out += _points(program, machine, constants, case.points)
        else:
            out.append(_digest(default_schedule(program, machine, constants).func, target))
    return out


def _digest(func: LoopFunction, target: Target | GpuTarget) -> str:
    native = frozenset() if isinstance(target, GpuTarget) else target.functions
    return structural_hash(lower(func, native=native))[:DIGITS]


def _points(program: Program, machine: Machine, constants: tuple[str, ...], count: int) -> Iterator[str]:
    """Each nest of the default plan by itself, by plans drawn from its space."""
    variants = Variants(program, plan_unit(program, machine, constants).plan, machine, constants)
    s, _ = rewritten(program, variants.plan, machine, constants)
    for varied in variants.nests:
        assert varied is not None
        rng = Random(7)
        for drawn in dict.fromkeys(varied.space.sample(rng) for _ in range(count)):
            try:
                nest = varied.rule.write(varied.cluster, varied.problem, drawn)
                yield _digest(apply(s.replay(nest.steps), nest.trees).func, machine.on)
            except ScheduleError:
                yield "refused"
