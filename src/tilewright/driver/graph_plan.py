"""What is decided about a model around its kernels: which of them are joined, parts of batches, layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

from tilewright.cost import Machine, is_fast
from tilewright.driver.units import Precision, Unit, UnitMaker, make_units, priced_flow
from tilewright.graph import (
    Array,
    BytesInBlocks,
    FillBlocks,
    FusionOptions,
    Graph,
    Group,
    MergeGroups,
    NarrowInputs,
    Partition,
    contraction_runs,
    fuse,
    simplify,
)
from tilewright.ir import BF16, F32, I8, I32, U8, Program, is_open
from tilewright.plan import (
    AUTO,
    MOST_ERROR,
    WINOGRAD_SIZES,
    Accuracy,
    Flow,
    GraphPlan,
    PassPlan,
    choose_joins,
    choose_layouts,
    choose_parts,
    fits_together,
    matrix_runs,
    row_chain_pays,
    with_layouts,
)
from tilewright.support import ArtefactError
from tilewright.target import Target


def choose_passes(machine: Target, precision: Precision, accuracy: Accuracy) -> PassPlan:
    """Values and sums of products in the shapes that the machine has registers and instructions for."""
    fast = [i for i in machine.contractions if is_fast(i, machine)]
    depth = {(i.a.dtype, i.b.dtype, i.result.dtype): i.together for i in fast}
    lanes = machine.lanes(F32)
    sums_bytes = (U8, I8, I32) in depth
    # vectors of half the width start as often as there are units, be these of the full width or of half
    fill = FillBlocks(
        lanes, min(1.0, 1 / machine.fma_per_cycle), any(map(accuracy.allows, WINOGRAD_SIZES)), sums_bytes
    )
    narrow, inputs = (BF16, BF16, F32), None
    if precision == "bf16" and narrow in depth:
        deepest = max(matrix_runs(BF16, machine), default=0)
        inputs = NarrowInputs(BF16.name, depth[narrow], deepest)
    # what `auto` accepts is less than the steps of bytes
    more = sums_bytes and accuracy.mode == "auto" and accuracy.most_error > MOST_ERROR
    held = BytesInBlocks(accuracy.most_error) if more else None
    return PassPlan(sums_bytes, fill, MergeGroups(lanes), inputs, bytes=held)


def choose_cuts(maker: UnitMaker, target: Target, threads: int) -> frozenset[str]:
    """The values at which chains with whole rows are cut: those of chains that are slower as one nest."""
    known: dict[Program, bool] = {}
    cuts: set[str] = set()
    for group, unit in zip(maker.partition.groups, maker.units(), strict=True):
        if not group.joints:
            continue
        program = priced_flow(unit).program
        if program not in known:
            known[program] = row_chain_pays(program, Machine(target, threads))
        if not known[program]:
            cuts.update(group.joints)
    return frozenset(cuts)


def choose_graph_plan(
    maker: UnitMaker,
    target: Target,
    threads: int = 1,
    *,
    exact: bool = False,
    passes: PassPlan | None = None,
    fusion: FusionOptions | None = None,
) -> GraphPlan:
    """The default decisions about a partitioned graph; ``passes`` and ``fusion`` are those that made it.

    The model's inputs and outputs, and values that are seen under several shapes, stay plain. Units for which
    that pays on ``threads`` threads take the batch in parts. ``exact`` says that kernels' products will be
    those of the model, not others that are faster.
    """
    partition, fixed = maker.partition, maker.fixed()
    flows = [priced_flow(unit) for unit in maker.units()]
    layouts = choose_layouts(flows, fixed, target)
    flows = [replace(flow, program=with_layouts(flow, layouts)) for flow in flows]
    parts = choose_parts(flows, _batch(partition), Machine(target, threads))
    joins: list[tuple[str, ...]] = []
    spans = _spans(partition, flows, parts, target, threads, exact)
    known: dict[Program, bool] = {}
    while spans:
        joins = [tuple(group.outputs[0] for group in span) for span in spans]
        joined = [priced_flow(unit) for unit in maker.units(joins)]
        layouts = choose_layouts(joined, fixed, target)
        made = {value: flow for flow in joined for value in flow.outputs.values()}
        apart: list[_Span] = []
        for span in spans:
            program = with_layouts(made[span[-1].outputs[0]], layouts)
            if program not in known:
                known[program] = fits_together(program, Machine(target, threads))
            if not known[program]:
                apart.append(span)
        if not apart:
            break
        spans = [span for span in spans if span not in apart]
    else:
        joins, layouts = [], choose_layouts([priced_flow(u) for u in maker.units()], fixed, target)
    divided = {group.outputs[0]: n for group, n in zip(partition.groups, parts, strict=True) if n > 1}
    return GraphPlan(
        maker.precision, passes or PassPlan(), fusion or FusionOptions(), tuple(joins), divided, layouts
    )


@dataclass(frozen=True, slots=True, eq=False)
class GraphUnits:
    """A graph after all passes in fusion groups, the units that they become, and what decided that."""

    partition: Partition
    units: tuple[Unit, ...]
    plan: GraphPlan


def graph_units(
    graph: Graph,
    target: Target,
    threads: int,
    precision: Precision = "f32",
    accuracy: Accuracy = AUTO,
    plan: GraphPlan | None = None,
) -> GraphUnits:
    """The units of a graph, as a plan says (by default: as is decided here).

    Raises ArtefactError where the plan is that of another model, or of another precision.
    """
    if plan is not None:
        if plan.precision != precision:
            raise ArtefactError(
                f"the plan is for the precision {plan.precision}, not {precision}",
                hint=f"compile with precision={plan.precision!r}",
            )
        maker = UnitMaker(fuse(simplify(graph, plan.passes.passes()), plan.fusion), precision)
        return GraphUnits(maker.partition, make_units(maker, plan), plan)
    passes = choose_passes(target, precision, accuracy)
    simplified = simplify(graph, passes.passes())
    maker = UnitMaker(fuse(simplified), precision)
    fusion = FusionOptions(cuts=choose_cuts(maker, target, threads))
    if fusion.cuts:
        maker = UnitMaker(fuse(simplified, fusion), precision)
    made = choose_graph_plan(
        maker, target, threads, exact=accuracy.mode != "auto", passes=passes, fusion=fusion
    )
    return GraphUnits(maker.partition, make_units(maker, made), made)


def constants_of(graph: Graph, views: Mapping[str, str]) -> Callable[[str], Array | None]:
    """The arrays of a graph's constants, also under the names of their views."""

    def find(value: str) -> Array | None:
        while value in views:
            value = views[value]
        return graph.constants.get(value)

    return find


_Span: TypeAlias = tuple[Group, ...]
"""Groups that follow one another, as one kernel."""


def _spans(
    partition: Partition,
    flows: Sequence[Flow],
    parts: Sequence[int],
    target: Target,
    threads: int,
    exact: bool,
) -> list[_Span]:
    """Runs of contractions for which one nest each is faster.

    Kernels that take the batch in parts stay as they are: values stay with their thread there as well.
    """
    flow = dict(zip(partition.groups, flows, strict=True))
    whole = {group for group, count in zip(partition.groups, parts, strict=True) if count == 1}
    runs = [run for run in contraction_runs(partition) if whole.issuperset(run)]
    spans: list[_Span] = []
    counted = choose_joins([[flow[g] for g in run] for run in runs], Machine(target, threads), exact=exact)
    for run, counts in zip(runs, counted, strict=True):
        ends = list(accumulate(counts))
        spans += [run[end - count : end] for count, end in zip(counts, ends, strict=True) if count > 1]
    return spans


def _batch(partition: Partition) -> int:
    """The size of the outermost dimension that all inputs of the model have; 1 where they differ, or a run
    alone knows it.
    """
    graph = partition.graph
    sizes = {graph.types[value].sizes[:1] for value in graph.inputs}
    batch = next(iter(sizes))[0] if len(sizes) == 1 and () not in sizes else 1
    return 1 if any(map(is_open, (n for value in graph.inputs for n in graph.types[value].sizes))) else batch
