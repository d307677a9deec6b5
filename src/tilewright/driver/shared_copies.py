"""Conversions that kernels share: what several want otherwise is brought there once (ALT, Sec. 4.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from tilewright.analysis import find_operator
from tilewright.cost import Machine
from tilewright.driver.choices import chosen_precision
from tilewright.driver.kernel_prices import LEAST_GAIN, KernelPrices, Prices
from tilewright.driver.units import Unit, UnitMaker, make_units
from tilewright.graph import Graph, ValueCopy, fuse, simplify
from tilewright.ir import CONST, F32, structural_hash
from tilewright.plan import GraphPlan, value_layouts
from tilewright.support import ArtefactError, get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CopyTuning:
    """What it came to: ``plan``, its ``copies``, and the sum of kernels' seconds that they ``saved``."""

    plan: GraphPlan
    copies: tuple[ValueCopy, ...] = ()
    saved: float = 0.0
    interrupted: bool = False


def tune_copies(
    graph: Graph, plan: GraphPlan, machine: Machine, prices: Prices, until: float = inf
) -> CopyTuning:
    """Give values that several complex operators read a copy in another layout, where that saves time.

    ``graph`` is the model as it was imported. Each copy is a kernel of its own. It is priced with those that
    change by it, by their default plans, against what they are without it; 2 % of them are to be saved. A
    reader that converts the value itself (`Layouts.converted`) no longer does. It ends at ``until`` (of
    ``time.monotonic``).
    """
    known = KernelPrices(prices, machine, until)
    units: Sequence[Unit] = planned_units(graph, plan)
    found, saved = list[ValueCopy](), 0.0
    for value, readers in _shared(units):
        best: tuple[float, GraphPlan, Sequence[Unit]] | None = None
        for other in _ways(value, readers, plan, machine):
            try:
                made = planned_units(graph, other)
            except ArtefactError as error:
                _log.info("a copy of %s: %s", value, error)
                continue
            keys, theirs = set(map(_key, units)), set(map(_key, made))
            old = known.total([unit for unit in units if _key(unit) not in theirs])
            new = known.total([unit for unit in made if _key(unit) not in keys])
            if old is None or new is None or new > old * (1 - LEAST_GAIN):
                continue
            if best is None or old - new > best[0]:
                best = old - new, other, made
        if best is not None:
            gain, plan, units = best
            saved += gain
            found.append(plan.passes.copies[-1])
    return CopyTuning(plan, tuple(found), saved, known.interrupted)


def planned_units(graph: Graph, plan: GraphPlan) -> tuple[Unit, ...]:
    """The units of a model as it was imported. Raises ArtefactError where the plan is none of it."""
    partition = fuse(simplify(graph, plan.passes.passes()), plan.fusion)
    return make_units(UnitMaker(partition, chosen_precision(plan.precision)), plan)


def _shared(units: Sequence[Unit]) -> Iterator[tuple[str, tuple[Unit, ...]]]:
    """Values, and the convolutions and products that read one as data, where they are several."""
    readers: dict[str, list[Unit]] = {}
    for unit in units:
        op = find_operator(unit.program)
        if op is None or unit.parts > 1 or unit.repeat is not None:
            continue
        data = {op.data.tensor, *([op.source] if op.source else [])}
        for b in unit.program.inputs:
            value = unit.inputs.get(b.name)
            # one that converts it itself reads it in a stage before the operator
            read = b.name in data or f"{b.name}_converted" in data
            if read and value is not None and b.scope != CONST and all(n.is_const for n in b.shape):
                readers.setdefault(value, []).append(unit)
    yield from ((value, tuple(found)) for value, found in readers.items() if len(found) > 1)


def _ways(value: str, readers: Sequence[Unit], plan: GraphPlan, machine: Machine) -> Iterator[GraphPlan]:
    """The plan with a copy of a value for its readers, in each layout that it may have."""
    nodes = [node.used_outputs[0] for unit in readers for node in unit.nodes if value in node.inputs]
    if len(nodes) < len(readers):
        # some read it under another shape
        return
    (name,) = {n for n, v in readers[0].inputs.items() if v == value}
    shape = [n.as_int() for n in readers[0].program.buffer(name).shape]
    copy = ValueCopy(value, f"{value}.copy", tuple(nodes))
    ends = {next(iter(unit.outputs.values()), "") for unit in readers}
    kept = {}
    for reader, asked in plan.layouts.converted.items():
        left = {v: texts for v, texts in asked.items() if reader not in ends or v != value}
        kept.update({reader: left} if left else {})
    for texts in value_layouts(shape, machine.target.lanes(F32)):
        if texts == plan.layouts.values.get(value, ()):
            continue
        values = {**plan.layouts.values, **({copy.name: texts} if texts else {})}
        yield replace(
            plan,
            passes=replace(plan.passes, copies=(*plan.passes.copies, copy)),
            layouts=replace(plan.layouts, values=values, converted=kept),
        )


def _key(unit: Unit) -> tuple[tuple[str, ...], int, str]:
    made = tuple(value for node in unit.nodes for value in node.outputs)
    return made, unit.parts, structural_hash(unit.program)
