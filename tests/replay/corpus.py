"""The replay corpus: programs whose lowered functions restructuring leaves as they are, and their digests.

A case is a model (one program a kernel) on a target table for a number of threads. Its digest is a list of
structural hashes, one a kernel: names do not count, loops, storage and hints do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import onnx
from onnx import TensorProto, helper

from tilewright.cost import Machine
from tilewright.driver.graph_plan import graph_units
from tilewright.frontend import import_onnx, zoo
from tilewright.ir import Program, structural_hash
from tilewright.lower import lower
from tilewright.strategies import default_schedule
from tilewright.target import AARCH64_NEON, AARCH64_SVE, X86_AVX2, X86_AVX512, Target, x86_amx, x86_avx512
from tilewright.target.x86_cores import core

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


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "avx512": X86_AVX512,
        "avx2": X86_AVX2,
        "neon": AARCH64_NEON,
        "sve": AARCH64_SVE,
        "znver5": _server("znver5"),
        "graniterapids": _server("graniterapids", tiles=True),
    }
)


@dataclass(frozen=True, slots=True)
class Case:
    """A model on a target for so many threads. ``source`` names what makes it."""

    source: str
    target: str
    threads: int
    precision: str = "f32"

    @property
    def key(self) -> str:
        """What the case is called in the file of digests."""
        suffix = "" if self.precision == "f32" else f"/{self.precision}"
        return f"{self.source}/{self.target}/{self.threads}{suffix}"


def _benchmark(module: str) -> object:
    """A module of the benchmarks."""
    if str(BENCHMARKS) not in sys.path:
        sys.path.insert(0, str(BENCHMARKS))
    return __import__(module)


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


def sample() -> Iterator[Case]:
    """What every run of the tests compares."""
    for name in zoo.SMALL:
        yield Case(f"small:{name}", "avx512", 2)
    for name in ("resnet18", "bert_base", "mobilenet_v2"):
        for target in ("avx2", "neon", "graniterapids"):
            yield Case(f"small:{name}", target, 2)
    yield Case("small:resnet18", "graniterapids", 2, "bf16")
    for name in ("matmul 512x512x512", "LayerNormalization 128x768", "conv 3x3 1x64-64 56x56"):
        yield Case(f"operator:{name}", "avx512", 2)


def everything() -> Iterator[Case]:
    """The whole corpus."""
    sources = [f"small:{name}" for name in zoo.SMALL] + [f"zoo:{name}" for name in zoo.FULL]
    sources += [f"operator:{o.name}" for o in _benchmark("operators").OPERATORS]  # type: ignore[attr-defined]
    shapes = _benchmark("deepbench").SHAPES  # type: ignore[attr-defined]
    sources += ["product:" + "x".join(map(str, shape)) for shape in shapes]
    for source in sources:
        for target in TARGETS:
            for threads in THREADS:
                yield Case(source, target, threads)
        if source.startswith(("small:", "zoo:")):
            for target in ("znver5", "graniterapids"):
                yield Case(source, target, 2, "bf16")


def programs(case: Case, model: onnx.ModelProto) -> tuple[tuple[Program, int], ...]:
    """The programs of a model's kernels, each once, and the threads that run one call of it."""
    graph = import_onnx(model)
    units = graph_units(graph, TARGETS[case.target], case.threads, case.precision).units
    found = [(unit.program, case.threads if unit.parts == 1 else 1) for unit in units]
    return tuple(dict.fromkeys(found))


def digests(case: Case, model: onnx.ModelProto) -> list[str]:
    """One digest a kernel: of the function that code generation takes."""
    target = TARGETS[case.target]
    out: list[str] = []
    for program, threads in programs(case, model):
        scheduled = default_schedule(program, Machine(target, threads))
        out.append(structural_hash(lower(scheduled.func, native=target.functions))[:DIGITS])
    return out
