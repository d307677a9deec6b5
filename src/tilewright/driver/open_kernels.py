"""Kernels of models with open sizes: symbolic ones for ranges of sizes, others for a size alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.build import Array, UnitKernel, flops
from tilewright.driver.assemble import Assembled, Steps, assemble
from tilewright.driver.graph_plan import GraphUnits, graph_units
from tilewright.driver.kernels import KernelOptions, build_kernels
from tilewright.driver.progress import Progress, no_progress
from tilewright.driver.size_ranges import DEGENERATE, NamedRanges, range_of, sampled_sizes
from tilewright.driver.units import Precision, Unit
from tilewright.graph import Graph
from tilewright.ir import Param, Program, buffer_at, generalise, program_at
from tilewright.plan import GraphPlan
from tilewright.runtime import Ranges, ThreadPool
from tilewright.support import Settings
from tilewright.target import CpuTarget

#: Kernels of single sizes, where no symbolic one fits, that are kept.
KERNELS_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class Compiler:
    """What decides how a model is compiled, whatever its sizes."""

    target: CpuTarget
    options: KernelOptions
    precision: Precision
    settings: Settings
    pool: ThreadPool
    memory: int
    checks: bool

    def units(self, graph: Graph, plan: GraphPlan | None) -> GraphUnits:
        """The units of a graph, by a plan that was made at other sizes where that fits."""
        options = self.options
        return graph_units(graph, self.target, options.threads, self.precision, options.accuracy, plan)

    def assemble(self, steps: Steps, wanted: Sequence[str]) -> Assembled:
        """The plan of a run that computes values."""
        return assemble(steps, self.pool, self.memory, wanted, checks=self.checks)

    def kernels(self, units: Sequence[Unit], known: Callable[[str], Array | None]) -> tuple[UnitKernel, ...]:
        """The kernel of each unit."""
        return build_kernels(units, self.target, self.options, known, self.settings, no_progress)


@dataclass(frozen=True, slots=True, eq=False)
class _Family:
    """The model's units at some sizes, ``points``, of those that are not fixed: all of one structure."""

    points: tuple[dict[str, int], ...]
    samples: tuple[tuple[Unit, ...], ...]


class OpenKernels:
    """The kernels of a model whose sizes have ``ranges``; ``units`` makes its units at some sizes.

    Each range of sizes has symbolic kernels, made when the first of its sizes is asked for.
    """

    def __init__(
        self,
        compiler: Compiler,
        sizes: NamedRanges,
        units: Callable[[Mapping[str, int]], GraphUnits],
    ) -> None:
        self._compiler, self._sizes, self._units = compiler, sizes, units
        self._families: dict[tuple[tuple[str, int], ...], _Family] = {}
        self.alone: OrderedDict[tuple[int, Program], UnitKernel] = OrderedDict()
        """Kernels of one size each, by place and program."""
        self.symbolic: dict[Ranges, dict[int, UnitKernel]] = {}
        """Kernels of each range, by unit."""

    def range_of(self, sizes: Sequence[int]) -> Ranges:
        """The range of sizes that share kernels with some."""
        return tuple(range_of(n, lo, hi) for n, (lo, hi) in zip(sizes, self._sizes.values(), strict=True))

    def family(self, sizes: Mapping[str, int], progress: Progress = no_progress) -> _Family:
        """The samples of sizes such as these: where one of them is 0 or 1, it is so in all of them."""
        fixed = {name: n for name, n in sizes.items() if n <= DEGENERATE}
        key = tuple(fixed.items())
        if key not in self._families:
            candidates = {
                name: sampled_sizes(lo, hi) for name, (lo, hi) in self._sizes.items() if name not in fixed
            }
            base = fixed | {name: found[0] for name, found in candidates.items()}
            points = [base, *({**base, name: n} for name, found in candidates.items() for n in found[1:])]
            samples: list[tuple[Unit, ...]] = []
            for at, point in enumerate(points):
                progress("sizes", at, len(points))
                samples.append(self._units(point).units)
            progress("sizes", len(points), len(points))
            alike = [at for at, units in enumerate(samples) if _alike(units, samples[0])]
            self._families[key] = _Family(
                tuple(points[at] for at in alike), tuple(samples[at] for at in alike)
            )
        return self._families[key]

    def at(
        self, units: Sequence[Unit], sizes: Mapping[str, int], known: Callable[[str], Array | None]
    ) -> list[UnitKernel]:
        """The kernel of each unit at some sizes: symbolic ones of their range, others made for them."""
        family = self.family(sizes)
        symbolic = self._symbolic(family, sizes, known) if _alike(units, family.samples[0]) else {}
        values = dict(zip(_names(self._sizes), sizes.values(), strict=True))
        at_sizes: dict[int, Program] = {}
        sized: dict[int, UnitKernel] = {}
        found: dict[int, UnitKernel] = {}
        for at, unit in enumerate(units):
            kernel = symbolic.get(at)
            if (at, unit.program) in self.alone:
                self.alone.move_to_end((at, unit.program))
                found[at] = self.alone[at, unit.program]
            elif kernel is not None:
                if id(kernel) not in at_sizes:
                    at_sizes[id(kernel)] = program_at(kernel.program, values)
                # affine on the samples is no proof: only the very program of this size will do
                if at_sizes[id(kernel)] == unit.program:
                    if id(kernel) not in sized:
                        sized[id(kernel)] = _at_sizes(kernel, unit.program, values)
                    found[at] = sized[id(kernel)]
        missing = [at for at in range(len(units)) if at not in found]
        made = self._compiler.kernels([units[at] for at in missing], known)
        for at, kernel in zip(missing, made, strict=True):
            found[at] = self.alone[at, units[at].program] = kernel
        while len(self.alone) > KERNELS_KEPT:
            self.alone.popitem(last=False)
        return [found[at] for at in range(len(units))]

    def _symbolic(
        self, family: _Family, sizes: Mapping[str, int], known: Callable[[str], Array | None]
    ) -> Mapping[int, UnitKernel]:
        """The symbolic kernels of the range of sizes that some are in, by unit; made when first needed."""
        ranges = self.range_of([sizes[name] for name in self._sizes])
        if ranges not in self.symbolic:
            self.symbolic[ranges] = self._compiled(family, ranges, known)
        return self.symbolic[ranges]

    def _compiled(
        self, family: _Family, ranges: Sequence[tuple[int, int]], known: Callable[[str], Array | None]
    ) -> dict[int, UnitKernel]:
        names = dict(zip(self._sizes, _names(self._sizes), strict=True))
        each = zip(names.values(), ranges, strict=True)
        params = [Param(name, lo, hi) for name, (lo, hi) in each if hi > DEGENERATE]
        points = [{names[name]: n for name, n in point.items()} for point in family.points]
        made: dict[tuple[Program, ...], Program | None] = {}
        wanted: dict[int, Unit] = {}
        for at, unit in enumerate(family.samples[0]):
            programs = tuple(units[at].program for units in family.samples)
            if programs not in made:
                made[programs] = generalise(programs, points, params)
            program = made[programs]
            if program is not None and program.params:
                wanted[at] = replace(unit, program=program)
        return dict(zip(wanted, self._compiler.kernels(list(wanted.values()), known), strict=True))


def _names(sizes: NamedRanges) -> list[str]:
    """Identifiers for sizes, whose names in a model may be anything."""
    return [f"size{at}" for at in range(len(sizes))]


def _alike(units: Sequence[Unit], others: Sequence[Unit]) -> bool:
    """Whether units compute the same values of a model."""
    return [tuple(u.outputs.values()) for u in units] == [tuple(u.outputs.values()) for u in others]


def _at_sizes(kernel: UnitKernel, program: Program, values: Mapping[str, int]) -> UnitKernel:
    """A symbolic kernel as the kernel of its program at some sizes."""
    params = kernel.program.params
    return replace(
        kernel,
        program=program,
        buffers=tuple(buffer_at(b, values) for b in kernel.buffers),
        sizes=tuple(values[p.name] for p in params),
        flops=flops(program),
    )
