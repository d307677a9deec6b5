"""What one kernel computes, and what takes the batch in parts, by measured kernels: change after change."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isfinite
from typing import Final, Literal, TypeAlias

from tilewright.cost import Machine
from tilewright.driver.fixed_sizes import import_settled
from tilewright.driver.kernel_prices import LEAST_GAIN, KernelPrices, Prices
from tilewright.driver.layout_tuning import maker_of
from tilewright.driver.model import CompiledModel
from tilewright.driver.plans import ModelPlan
from tilewright.driver.retiming import compared
from tilewright.driver.units import Unit, UnitMaker, flow_of, make_units
from tilewright.frontend import Shapes, Source
from tilewright.graph import Graph, Group, Kind, contraction_runs
from tilewright.ir import Program, structural_hash
from tilewright.plan import GraphPlan, Layouts, fits_together, slice_program, with_layouts
from tilewright.support import ArtefactError, get_logger
from tilewright.target import CpuTarget

_log = get_logger(__name__)

#: Values of one kernel at which it is cut in two, at most.
MOST_CUTS: Final = 4
#: Parts of a batch that are tried, at most.
MOST_PARTS: Final = 64
#: Times that all changes are tried on what the ones before have come to, at most.
SWEEPS: Final = 2

ChangeKind: TypeAlias = Literal["cut", "together", "join", "apart", "parts"]


@dataclass(frozen=True, slots=True)
class Change:
    """One decision that a plan of a model might have otherwise, for all kernels that are alike.

    ``runs`` are values, one run a kernel. ``cut``: the kernel that makes the value inside of itself stores
    it, another reads it there; ``together``: it no longer does. ``join``: the kernels that make a run's
    values become one; ``apart``: those are joined no longer. ``parts``: the kernels that make the values
    take the batch in ``count`` parts.
    """

    kind: ChangeKind
    runs: tuple[tuple[str, ...], ...]
    count: int = 1

    @property
    def values(self) -> frozenset[str]:
        """The values of all runs."""
        return frozenset(value for run in self.runs for value in run)

    def applied(self, plan: GraphPlan) -> GraphPlan:
        """The plan with this change; what others say of values that no longer are stays in it."""
        match self.kind:
            case "cut" | "together":
                cuts = plan.fusion.cuts
                cuts = cuts | self.values if self.kind == "cut" else cuts - self.values
                return replace(plan, fusion=replace(plan.fusion, cuts=cuts))
            case "join":
                kept = tuple(run for run in plan.joins if not {*run} & self.values)
                return replace(plan, joins=(*kept, *self.runs))
            case "apart":
                return replace(plan, joins=tuple(run for run in plan.joins if run not in self.runs))
            case "parts":
                rest = {value: n for value, n in plan.parts.items() if value not in self.values}
                parts = dict.fromkeys(sorted(self.values), self.count) if self.count > 1 else {}
                return replace(plan, parts={**rest, **parts})

    def __str__(self) -> str:
        more = f" and {len(self.runs) - 1} more" if len(self.runs) > 1 else ""
        shown = ", ".join(self.runs[0]) + more
        return f"{self.kind} {shown}" + (f" in {self.count} parts" if self.kind == "parts" else "")


@dataclass(frozen=True, slots=True)
class GraphTuning:
    """What tuning of decisions around kernels came to: ``plan``, and sums of kernels' seconds.

    ``untuned`` is the sum by the plan that it began with, ``best`` that by ``plan``, ``tried`` how many
    changes were priced, ``changes`` those that the plan has.
    """

    plan: GraphPlan
    untuned: float
    best: float
    tried: int
    changes: tuple[Change, ...] = ()
    interrupted: bool = False


def tune_graph(
    graph: Graph, plan: GraphPlan, machine: Machine, prices: Prices, until: float = inf
) -> GraphTuning:
    """Other decisions about which stages one kernel computes, which kernels are joined, and batches in parts.

    ``graph`` is the model as it was imported. From the plan on, each change is priced by the kernels that it
    touches, those before it against those after it, by their default plans; one that saves 2 % of them is
    kept, and the next ones are priced on top of it. Kernels of the plan are measured first. It ends at
    ``until`` (of ``time.monotonic``): what was not priced is not changed.
    """
    known = KernelPrices(prices, machine, until)
    made = _Model.of(graph, plan)
    first = known.total(made.units)
    if first is None or not isfinite(first):
        return GraphTuning(plan, inf, inf, 0, (), known.interrupted)
    best, kept, tried = first, list[Change](), set[Change]()
    for _ in range(SWEEPS):
        count = len(kept)
        for change in made.changes(machine):
            if change in tried or time.monotonic() >= until or known.interrupted:
                continue
            tried.add(change)
            found = _better(made, change, known, machine)
            if found is not None:
                made, saved = found
                best -= saved
                kept.append(change)
        if len(kept) == count:
            break
    return GraphTuning(made.plan, first, best, len(tried), tuple(kept), known.interrupted)


def _better(
    made: _Model, change: Change, known: KernelPrices, machine: Machine
) -> tuple[_Model, float] | None:
    """The model with a change, and the seconds that it saves; ``None`` where it does not."""
    try:
        other = made.changed(change)
    except ArtefactError as error:
        _log.info("%s: %s", change, error)
        return None
    before, after = made.apart_from(other), other.apart_from(made)
    old, new = known.total(before), known.total(after)
    if old is None or new is None or not after or new > old * (1 - LEAST_GAIN):
        return None
    return other, old - new


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """A model's units under a plan; ``makers`` are its partitions by where they are cut."""

    graph: Graph
    plan: GraphPlan
    makers: dict[frozenset[str], UnitMaker]
    units: tuple[Unit, ...]

    @classmethod
    def of(
        cls, graph: Graph, plan: GraphPlan, makers: dict[frozenset[str], UnitMaker] | None = None
    ) -> _Model:
        """The units of a plan. Raises ArtefactError where it is none of this model."""
        makers = {} if makers is None else makers
        maker = makers.get(plan.fusion.cuts)
        if maker is None:
            maker = makers[plan.fusion.cuts] = maker_of(graph, plan)
        return cls(graph, plan, makers, make_units(maker, plan))

    @property
    def maker(self) -> UnitMaker:
        """The groups that the plan's cuts leave."""
        return self.makers[self.plan.fusion.cuts]

    def apart_from(self, other: _Model) -> list[Unit]:
        """The units whose nodes another plan has in other units, or in other parts."""
        theirs = {_key(unit) for unit in other.units}
        return [unit for unit in self.units if _key(unit) not in theirs]

    def changed(self, change: Change) -> _Model:
        """The model with a change. Raises ArtefactError where that is none of it."""
        plan = change.applied(self.plan)
        if change.kind == "parts":
            return _Model.of(self.graph, plan, self.makers)
        bare = replace(plan, layouts=Layouts(), parts={})
        passed = {v for unit in _Model.of(self.graph, bare, self.makers).units for v in unit.outputs.values()}
        layouts = plan.layouts
        values = {v: texts for v, texts in layouts.values.items() if v in passed}
        if change.kind == "cut":
            values |= self._inherited(change.values)
        copied = {v: texts for v, texts in layouts.copied.items() if v in passed}
        parts = {v: n for v, n in plan.parts.items() if v in passed}
        fitted = Layouts(values, copied, {v: t for v, t in layouts.converted.items() if v in passed})
        return _Model.of(self.graph, replace(plan, layouts=fitted, parts=parts), self.makers)

    def _inherited(self, cuts: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Layouts of values that are stored now: those of the results of one shape that they were part of."""
        types, values = self.maker.partition.graph.types, self.plan.layouts.values
        found = {}
        for group in self.maker.partition.groups:
            inside = {value for node in group.nodes for value in node.outputs}
            for cut in sorted(inside & {*cuts}):
                texts = values.get(group.outputs[0])
                if texts is not None and types[cut].shape == types[group.outputs[0]].shape:
                    found[cut] = texts
        return found

    def changes(self, machine: Machine) -> Iterator[Change]:
        """All single changes of the plan: those of what is joined by default come first."""
        makes = {value: unit for unit in self.units for node in unit.nodes for value in node.used_outputs}
        yield from _alike("apart", self.plan.joins, makes)
        yield from _alike("together", [(value,) for value in sorted(self.plan.fusion.cuts)], makes)
        yield from self._joins(machine, makes)
        yield from self._parts(machine.threads)
        inner = [_inner(group)[:MOST_CUTS] for group in self.maker.partition.groups]
        for n in range(MOST_CUTS):
            yield from _alike("cut", [(values[n],) for values in inner if n < len(values)], makes)

    def _joins(self, machine: Machine, makes: Mapping[str, Unit]) -> Iterator[Change]:
        """Kernels that follow one another, and that one nest can compute."""
        joined = {value for run in self.plan.joins for value in run}
        pairs: list[tuple[str, ...]] = []
        for run in contraction_runs(self.maker.partition):
            for a, b in pairwise(run):
                names = (a.outputs[0], b.outputs[0])
                if not joined & {*names} and not (pairs and names[0] == pairs[-1][-1]):
                    pairs.append(names)
        yield from (c for c in _alike("join", pairs, makes) if self._fits(c.runs[0], machine))

    def _fits(self, names: tuple[str, ...], machine: Machine) -> bool:
        units = self.maker.units([*self.plan.joins, names])
        unit = next(unit for unit in units if names[-1] in unit.outputs.values())
        program = with_layouts(flow_of(unit), self.plan.layouts)
        return fits_together(program, Machine(machine.target, machine.threads))

    def _parts(self, threads: int) -> Iterator[Change]:
        """All kernels that can be, or those that are, in as many parts as give threads even work; or none."""
        graph = self.maker.partition.graph
        sizes = {graph.types[value].sizes[:1] for value in graph.inputs}
        (batch,) = sizes if len(sizes) == 1 and () not in sizes else ((1,),)
        own = tuple(sorted(self.plan.parts))
        plain = self.maker.units(self.plan.joins)
        most = min(batch[0], MOST_PARTS)
        for count in (n for n in range(2, most + 1) if batch[0] % n == 0 and n % threads == 0):
            possible = tuple(
                next(iter(unit.outputs.values()))
                for unit in plain
                if unit.outputs and unit.repeat is None and _in_parts(unit.program, count)
            )
            for values in dict.fromkeys((own, possible)):
                if values and any(self.plan.parts.get(v, 1) != count for v in values):
                    yield Change("parts", (values,), count)
        if own:
            yield Change("parts", (own,))


def _alike(kind: ChangeKind, runs: Sequence[tuple[str, ...]], makes: Mapping[str, Unit]) -> Iterator[Change]:
    """One change for the runs of kernels that are alike: layers of one network."""
    found: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    hashes: dict[int, str] = {}
    for run in runs:
        units = [makes[value] for value in run if value in makes]
        key = tuple(hashes.setdefault(id(u), structural_hash(u.program)) for u in units)
        found.setdefault(key, []).append(run)
    yield from (Change(kind, tuple(each)) for each in found.values())


def _key(unit: Unit) -> tuple[tuple[str, ...], int]:
    return tuple(value for node in unit.nodes for value in node.outputs), unit.parts


def _in_parts(program: Program, count: int) -> bool:
    try:
        slice_program(program, count)
    except ValueError:
        return False
    return True


def _inner(group: Group) -> list[str]:
    """The values that a group keeps to itself: between those that were joined first, then after products."""
    if len(group.outputs) != 1:
        return []
    made = [value for node in group.nodes for value in node.used_outputs if value not in group.outputs]
    if group.kind in (Kind.CONTRACTION, Kind.WINDOW) and not group.joints:
        return made[:1]
    return [*group.joints, *(value for value in made if value not in group.joints)]


def with_tuned_graph(
    compiled: CompiledModel,
    source: Source,
    recompile: Callable[[ModelPlan], CompiledModel],
    prices: Prices,
    until: float,
    shapes: Shapes | None = None,
) -> tuple[CompiledModel, GraphTuning | None]:
    """A model with other kernels, where the whole of it is faster in a fresh process; else as it is.

    ``source`` is what it was compiled from, ``recompile`` compiles it again by a plan. Raises what importing
    and compiling raise.
    """
    plan = compiled.plan().graph
    if plan is None or not isinstance(compiled.target, CpuTarget):
        return compiled, None
    machine = Machine(compiled.target, compiled.threads)
    found = tune_graph(import_settled(source, shapes=shapes), plan, machine, prices, until)
    if not found.changes:
        return compiled, found
    other = recompile(ModelPlan(compiled.target.fingerprint, {}, found.plan))
    if compared(compiled, other).faster:
        return other, found
    return compiled, replace(found, plan=plan, changes=())
