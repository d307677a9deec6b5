"""Layouts of a model's values by measured kernels: each under each layout of its arguments, the best sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, isfinite, prod
from typing import Final

from tilewright.analysis import find_operator
from tilewright.cost import Machine
from tilewright.driver.choices import chosen_precision
from tilewright.driver.fixed_sizes import import_settled
from tilewright.driver.kernel_prices import LEAST_GAIN, KernelPrices, Prices
from tilewright.driver.model import CompiledModel
from tilewright.driver.plans import ModelPlan
from tilewright.driver.retiming import timed_in_turns
from tilewright.driver.shared_copies import CopyTuning, tune_copies
from tilewright.driver.units import Unit, UnitMaker, flow_of, planned_unit
from tilewright.frontend import Shapes, Source
from tilewright.graph import Graph, fuse, simplify
from tilewright.ir import CONST, F32, Program
from tilewright.plan import (
    Cost,
    GraphPlan,
    Layouts,
    Texts,
    Variant,
    assign,
    propagated,
    tied_values,
    total_cost,
    value_layouts,
)
from tilewright.support import get_logger
from tilewright.target import CpuTarget

_log = get_logger(__name__)

#: Combinations of layouts of one kernel's arguments that are measured; of more those with few changes.
MOST_COMBINATIONS: Final = 64
#: Changes against the default layouts in the combinations of such kernels.
MOST_CHANGES: Final = 2


@dataclass(frozen=True, slots=True)
class LayoutTuning:
    """What tuning of layouts came to: ``plan``, and the sums of kernels' seconds by the default and by it.

    ``measured`` are the kernels that were measured; ``changed`` the values that lie elsewhere now.
    """

    plan: GraphPlan
    untuned: float
    best: float
    measured: int
    changed: tuple[str, ...]
    interrupted: bool = False


def tune_layouts(
    maker: UnitMaker, plan: GraphPlan, machine: Machine, prices: Prices, until: float = inf
) -> LayoutTuning:
    """The layouts of values under which the kernels' default plans take the least time in all.

    A global assignment: values that kernels pass on element by element share a layout, each such group has
    options (as it is, row by row, in blocks of one and two vectors of channels, channels last), each kernel a
    cost by the options of the groups that it touches. A complex operator may also convert its data first,
    where that is faster by measurement. Kernels under the default layouts are measured first,
    then those with one change, until ``until`` (of ``time.monotonic``); a combination that was not measured
    is not chosen. The default stays where others save less than noise.
    """
    problem = _Problem(maker, plan, machine)
    known = KernelPrices(prices, machine, until)
    tables: list[dict[tuple[int, ...], float]] = [{} for _ in problem.kernels]
    for changes in range(MOST_CHANGES + 2):
        for kernel, table in zip(problem.kernels, tables, strict=True):
            for at in kernel.combinations(problem.options, changes):
                seconds = known.of(problem.program(kernel, at), kernel.threads)
                if seconds is not None:
                    table[at] = seconds * kernel.calls
    costs = [Cost(kernel.scope, table) for kernel, table in zip(problem.kernels, tables, strict=True)]
    default = dict.fromkeys(problem.options, 0)
    untuned = total_cost(costs, default)
    ways = [
        _converted(problem, kernel, table, known)
        for kernel, table in zip(problem.kernels, tables, strict=True)
    ]
    if not isfinite(untuned):
        return LayoutTuning(plan, untuned, untuned, known.measured, (), known.interrupted)
    chosen = assign({group: len(found) for group, found in problem.options.items()}, costs)
    best = total_cost(costs, chosen)
    if best > untuned * (1 - LEAST_GAIN):
        return LayoutTuning(plan, untuned, untuned, known.measured, (), known.interrupted)
    converted = {
        kernel.reader: found[at]
        for kernel, found in zip(problem.kernels, ways, strict=True)
        if (at := tuple(chosen[group] for group in kernel.scope)) in found
    }
    made = replace(plan, layouts=problem.layouts(chosen, converted))
    changed = [v for group, n in chosen.items() if n for v in problem.groups[group]]
    changed += [value for found in converted.values() for value in found]
    return LayoutTuning(made, untuned, best, known.measured, tuple(changed), known.interrupted)


def _converted(
    problem: _Problem, kernel: _Kernel, table: dict[tuple[int, ...], float], known: KernelPrices
) -> dict[tuple[int, ...], Mapping[str, Texts]]:
    """What a kernel had better bring into another layout first, by options of its groups.

    The table has the seconds of that then. It is asked under the default and single changes.
    """
    found: dict[tuple[int, ...], Mapping[str, Texts]] = {}
    for at in sorted(table, key=lambda each: sum(n > 0 for n in each)):
        if sum(n > 0 for n in at) > 1:
            break
        for way in problem.conversions(kernel, at):
            seconds = known.of(problem.program(kernel, at, way), kernel.threads)
            if seconds is not None and seconds * kernel.calls < table[at] * (1 - LEAST_GAIN):
                table[at], found[at] = seconds * kernel.calls, way
    return found


def independent_layouts(
    maker: UnitMaker,
    plan: GraphPlan,
    machine: Machine,
    prices: Prices,
    variant: Variant = "full",
    *,
    backwards: bool = False,
    forwards: bool = False,
) -> GraphPlan:
    """Layouts as in ALT: each complex operator on its own, in order, then propagated (Sec. 4.2).

    Without the last two each operator takes the best layout of its result for operands row by row. With
    ``forwards`` operands lie as the operators before left them (ALT-FP), with ``backwards`` operators are
    asked in reverse, and the layout that one wants of its operand is forced on what makes it (ALT-BP).
    """
    problem = _Problem(maker, plan, machine)
    known = KernelPrices(prices, machine)
    chosen: dict[str, Texts] = {}
    order = [kernel for kernel in problem.kernels if kernel.complex]
    for kernel in reversed(order) if backwards else order:
        ends = kernel.unit.inputs if backwards else kernel.unit.outputs
        for value in ends.values():
            group = problem.group_of.get(value)
            if group is None or value in chosen:
                continue
            layouts: list[tuple[float, int, Texts]] = []
            for n, option in enumerate(problem.options[group]):
                texts = plan.layouts.values.get(value, ()) if option is None else option
                given = {**(chosen if forwards or backwards else {}), value: texts}
                program = planned_unit(kernel.unit, replace(plan, layouts=_kept(plan, given))).program
                layouts.append((known.of(program, kernel.threads) or inf, n, texts))
            chosen[value] = min(layouts)[2]
    flows = [flow_of(kernel.unit) for kernel in problem.kernels]
    made = propagated(flows, maker.fixed(), chosen, variant, plan.layouts.copied)
    return replace(plan, layouts=made)


def _kept(plan: GraphPlan, values: Mapping[str, Texts]) -> Layouts:
    return Layouts({v: texts for v, texts in values.items() if texts}, plan.layouts.copied)


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel:
    """A unit, the groups of values that it touches, and how often a run calls it, on how many threads.

    A ``whole`` one takes no parts of the batch.
    """

    unit: Unit
    scope: tuple[str, ...]
    calls: float
    threads: int
    complex: bool
    whole: bool

    @property
    def reader(self) -> str:
        """What names it where it converts what it reads."""
        return next(iter(self.unit.outputs.values()), "")

    def combinations(
        self, options: Mapping[str, Sequence[Texts | None]], changes: int
    ) -> Iterator[tuple[int, ...]]:
        """Options of its groups, of which so many are not the default; after the last all that are left."""
        sizes = [len(options[group]) for group in self.scope]
        few = prod(sizes) <= MOST_COMBINATIONS
        if changes > MOST_CHANGES and not few:
            return
        for at in product(*map(range, sizes)):
            count = sum(n > 0 for n in at)
            if count == changes or (changes > MOST_CHANGES and count > changes):
                yield at


class _Problem:
    """A model's kernels, its groups of values, and the layouts that each group may have."""

    def __init__(self, maker: UnitMaker, plan: GraphPlan, machine: Machine) -> None:
        self._plan = plan
        units = maker.units(plan.joins)
        flows = [flow_of(unit) for unit in units]
        shapes = {
            value: tuple(n.as_int() for n in unit.program.buffer(name).shape)
            for unit in units
            for name, value in (*unit.inputs.items(), *unit.outputs.items())
            if all(n.is_const for n in unit.program.buffer(name).shape)
        }
        touched = {
            v
            for unit in units
            if find_operator(unit.program) is not None
            for v in (*unit.inputs.values(), *unit.outputs.values())
        }
        constants = {
            unit.inputs[b.name]
            for unit in units
            for b in unit.program.inputs
            if b.scope == "const" and b.name in unit.inputs
        }
        self._lanes = lanes = machine.target.lanes(F32)
        self.groups: dict[str, tuple[str, ...]] = {}
        # the first: as the plan has it
        self.options: dict[str, tuple[Texts | None, ...]] = {}
        for group in tied_values(flows, {*maker.fixed(), *constants}):
            if not touched & set(group) or any(v not in shapes for v in group):
                continue
            own = {plan.layouts.values.get(v, ()) for v in group}
            found = value_layouts(shapes[group[0]], lanes)
            others = [texts for texts in found if own != {texts}]
            self.groups[group[0]], self.options[group[0]] = group, (None, *others)
        self.group_of = {v: name for name, group in self.groups.items() for v in group}
        self.kernels = [self._kernel(unit, machine) for unit in units]

    def _kernel(self, unit: Unit, machine: Machine) -> _Kernel:
        values = (*unit.inputs.values(), *unit.outputs.values())
        scope = tuple(dict.fromkeys(self.group_of[v] for v in values if v in self.group_of))
        parts = planned_unit(unit, self._plan).parts
        threads = 1 if parts > 1 else machine.threads
        # threads take different parts at the same time
        calls = parts / machine.threads if parts > 1 else float(unit.calls)
        return _Kernel(unit, scope, calls, threads, find_operator(unit.program) is not None, parts == 1)

    def layouts(
        self, chosen: Mapping[str, int], converted: Mapping[str, Mapping[str, Texts]] | None = None
    ) -> Layouts:
        """The layouts of all values, and what kernels convert."""
        values = dict(self._plan.layouts.values)
        for group, n in chosen.items():
            texts = self.options[group][n]
            if texts is not None:
                values.update(dict.fromkeys(self.groups[group], texts))
        return replace(_kept(self._plan, values), converted=converted or {})

    def program(
        self, kernel: _Kernel, at: tuple[int, ...], way: Mapping[str, Texts] | None = None
    ) -> Program:
        """A kernel's program under options of its groups, converting what it reads in some way."""
        chosen = dict(zip(kernel.scope, at, strict=True))
        layouts = self.layouts(chosen, {kernel.reader: way} if way else None)
        return planned_unit(kernel.unit, replace(self._plan, layouts=layouts)).program

    def conversions(self, kernel: _Kernel, at: tuple[int, ...]) -> Iterator[Mapping[str, Texts]]:
        """Ways in which a complex operator may convert its data, which lie as options of its groups say."""
        op = find_operator(kernel.unit.program)
        if op is None or not kernel.whole or kernel.unit.repeat is not None:
            return
        values = self.layouts(dict(zip(kernel.scope, at, strict=True))).values
        read = {op.data.tensor, *([op.source] if op.source else [])}
        for b in kernel.unit.program.inputs:
            value = kernel.unit.inputs.get(b.name)
            if b.name not in read or b.scope == CONST or value is None:
                continue
            if all(n.is_const for n in b.shape):
                for texts in value_layouts([n.as_int() for n in b.shape], self._lanes):
                    if texts != values.get(value, ()):
                        yield {value: texts}


def maker_of(graph: Graph, plan: GraphPlan) -> UnitMaker:
    """The units of a model's graph as it was imported, all values plain: what layouts are tuned of."""
    return UnitMaker(
        fuse(simplify(graph, plan.passes.passes()), plan.fusion), chosen_precision(plan.precision)
    )


def with_tuned_layouts(
    compiled: CompiledModel,
    source: Source,
    recompile: Callable[[ModelPlan], CompiledModel],
    prices: Prices,
    until: float,
    shapes: Shapes | None = None,
) -> tuple[CompiledModel, LayoutTuning | None]:
    """A model with tuned layouts of its values, where the whole of it is faster so; else as it is.

    ``source`` is what it was compiled from, ``recompile`` compiles it again by a plan. Both models are timed
    in turns. Raises what importing and compiling raise.
    """
    plan = compiled.plan().graph
    if plan is None or not isinstance(compiled.target, CpuTarget):
        return compiled, None
    graph, machine = import_settled(source, shapes=shapes), Machine(compiled.target, compiled.threads)
    found = tune_layouts(maker_of(graph, plan), plan, machine, prices, until)
    if not found.interrupted:
        found = _with_copies(found, tune_copies(graph, found.plan, machine, prices, until))
    if not found.changed:
        return compiled, found
    other = recompile(ModelPlan(compiled.target.fingerprint, {}, found.plan))
    feeds = compiled.sample_feeds()
    old, new = timed_in_turns([model.bind(feeds).run for model in (compiled, other)])
    return (other, found) if new < old * (1 - LEAST_GAIN) else (compiled, replace(found, changed=()))


def _with_copies(found: LayoutTuning, copies: CopyTuning) -> LayoutTuning:
    """Layouts, and the copies that several kernels share then."""
    return replace(
        found,
        plan=copies.plan,
        best=found.best - copies.saved,
        changed=(*found.changed, *(copy.name for copy in copies.copies)),
        interrupted=copies.interrupted,
    )
