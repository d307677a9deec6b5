"""From a program to its default plan: algorithms, stages into nests, and the rule for each nest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilewright.analysis import pointwise_reader
from tilewright.cost import Machine
from tilewright.ir import Program, Stage
from tilewright.plan.algorithms.accuracy import AUTO, Accuracy
from tilewright.plan.algorithms.methods import Asked, Choice, cheapest
from tilewright.plan.blocks import block_nests
from tilewright.plan.clusters import Cluster, Planned, carry_out
from tilewright.plan.contraction.gather import gather_operands
from tilewright.plan.contraction.gemv import split_streams
from tilewright.plan.contraction.instructions import select_instruction
from tilewright.plan.contraction.match import contraction_before, contraction_of, panels_before
from tilewright.plan.contraction.narrow_windows import find_planes
from tilewright.plan.contraction.output_order import find_in_order
from tilewright.plan.contraction.padding import pad_for_matrices
from tilewright.plan.contraction.precision import contraction_of as contraction_named
from tilewright.plan.contraction.precision import round_weights
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.plan.contraction.run_time_panels import store_in_groups
from tilewright.plan.contraction.split_k import split_deep
from tilewright.plan.fallback import fell_back
from tilewright.plan.fused.bands import find_band
from tilewright.plan.fused.chain import find_chain
from tilewright.plan.general.rule import gather_general, reduction_before
from tilewright.plan.gpu.assembly import groups_on_gpu, plan_on_gpu
from tilewright.plan.inlining import inline_stages
from tilewright.plan.pipeline.fusion import better_fusion
from tilewright.plan.pipeline.rule import pipeline_before
from tilewright.plan.pipeline.side_by_side import rows_side_by_side
from tilewright.plan.rows.match_rows import rows_before, shared_depth
from tilewright.plan.rows.merge_axes import merge_axes
from tilewright.plan.rows.reduction import LaneReduction, split_reductions
from tilewright.plan.rows.split_rows import share_rows
from tilewright.plan.rows.split_updates import share_updates
from tilewright.plan.rule import Context, Nest
from tilewright.plan.scans.match import find_stripes
from tilewright.plan.streaming_stores import store_past_caches, streamed_results
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, get_logger
from tilewright.target import GpuTarget, Target

Chosen: TypeAlias = tuple[str, Choice]
"""A rule, and the method whose nest it plans."""


def plan_unit(
    program: Program,
    machine: Machine,
    constants: Collection[str] = (),
    *,
    accuracy: Accuracy = AUTO,
) -> Planned:
    """The default plan of a program, carried out; the arguments are those of ``default_schedule``.

    Pipelines are fused as wholes where the fusion model says that this is faster than nest by nest.
    """
    if isinstance(machine.on, GpuTarget):
        return plan_on_gpu(program, machine)
    blocks = block_nests(Context(program, machine, frozenset(constants)))
    if blocks:
        try:
            return plan_groups(program, machine, constants, (), blocks)
        except ScheduleError as error:
            get_logger(__name__).info("no sums of blocks in registers: %s", error.what)
    planned = plan_stages(program, machine, constants, accuracy=accuracy)
    fused = better_fusion(program, machine, planned.plan)
    if fused is None:
        return planned
    try:
        return plan_groups(program, machine, constants, fused.inlined, fused.nests)
    except ScheduleError as error:
        return Planned(planned.plan, fell_back(planned.schedule, "nest by nest", error))


def plan_stages(
    program: Program,
    machine: Machine,
    constants: Collection[str] = (),
    *,
    accuracy: Accuracy = AUTO,
) -> Planned:
    """The plan of a program nest by nest, each by the default of its rule; arguments as of ``plan_unit``."""
    known = frozenset(constants)
    s = inline_stages(Schedule(program, operations=machine.target.operations))
    if accuracy.mode != "exact":
        try:
            changed, choices = apply_algorithms(s, machine, accuracy, known)
            if changed is not s:
                return _plan_clusters(changed, machine, known, choices)
        except ScheduleError as error:
            s = fell_back(s, "the direct method", error)
    return _plan_clusters(s, machine, known, {})


def plan_groups(
    program: Program,
    machine: Machine,
    constants: Collection[str],
    inlined: Sequence[str],
    groups: Sequence[Nest],
) -> Planned:
    """The plan with these stages inlined and these nests of groups; all others have their default plans.

    Rewrites that would change a stage of a group are left out. Raises ScheduleError where a step is refused.
    """
    if isinstance(machine.on, GpuTarget):
        return groups_on_gpu(program, machine, inlined, groups)
    s = Schedule(program, operations=machine.target.operations)
    for name in inlined:
        s = s.inline_stage(name)
    known, target = frozenset(constants), machine.target
    rewritten = round_weights(pad_for_matrices(s, target, known), target, known)
    rewritten, general = gather_general(rewritten, target)
    try:
        changed, along = split_reductions(rewritten, machine, known, general)
        _check_groups(s.require_program(), changed.require_program(), groups)
        return _plan_nests(changed, machine, known, {}, along, groups)
    except ScheduleError as error:
        s = fell_back(s, "no rewrites around groups", error)
    context = Context(s.require_program(), machine, known)
    return _carried_out(s, context, clusters(context, {}, {}, groups=groups))


def _check_groups(before: Program, after: Program, groups: Sequence[Nest]) -> None:
    """Raises ScheduleError where a stage of a group is not what it was."""
    now = {stage.name: stage for stage in after.stages}
    for name in [name for nest in groups for name in (*nest.stages, nest.root)]:
        if now.get(name) != before.stage(name):
            raise ScheduleError(f"a rewrite would change {name}")


def _plan_clusters(
    s: Schedule, machine: Machine, constants: frozenset[str], choices: Mapping[str, Chosen]
) -> Planned:
    target = machine.target
    s = round_weights(pad_for_matrices(s, target, constants), target, constants)
    try:
        chained = _plan_chain(s, machine, constants)
        if chained is not None:
            return chained
    except ScheduleError as error:
        s = fell_back(s, "no chain, step by step", error)
    s, general = gather_general(store_in_groups(merge_axes(s, target), target, constants), target)
    try:
        changed, along = split_reductions(s, machine, constants, general)
        if along:
            return _plan_nests(changed, machine, constants, choices, along)
    except ScheduleError as error:
        s = fell_back(s, "no vectors along reductions", error)
    return _plan_nests(s, machine, constants, choices, {})


def _plan_chain(s: Schedule, machine: Machine, constants: frozenset[str]) -> Planned | None:
    """The plan of a program that is a chain of contractions, ``None`` for others.

    Raises ScheduleError where a step is refused.
    """
    program, target = s.require_program(), machine.target
    if find_band(program, machine) is None:
        # without bands, whole rows in tiles
        gathered = gather_operands(s, target, constants)
        chain = find_chain(gathered.require_program(), target)
        if chain is None or not chain.has_rows:
            return None
    context = Context(program, machine, constants)
    return _carried_out(s, context, [Cluster("fused", program.stages[-1].name, (), None)])


def _plan_nests(
    s: Schedule,
    machine: Machine,
    constants: frozenset[str],
    choices: Mapping[str, Chosen],
    along: Mapping[str, LaneReduction],
    groups: Sequence[Nest] = (),
) -> Planned:
    target = machine.target
    given = s.require_program()
    s, parts = share_rows(share_updates(s, machine), machine)
    s = split_streams(s, machine, constants)
    s = split_deep(s, machine, constants)
    s = gather_operands(s, target, constants, {choice.partial for choice in along.values()})
    _check_groups(given, s.require_program(), groups)
    matches: dict[str, object] = dict(along)
    for root, (_, chosen) in choices.items():
        matches |= {root: chosen.match, f"{root}.plan": chosen.plan}
    context = Context(s.require_program(), machine, constants, matches)
    return _carried_out(s, context, clusters(context, choices, along, parts, groups))


def _carried_out(s: Schedule, context: Context, found: Sequence[Cluster]) -> Planned:
    """The clusters, each by the default plan of its rule, large results stored past the caches."""
    made = carry_out(s, context, found)
    streamed = streamed_results(made.schedule, context.machine.target)
    return Planned(replace(made.plan, streamed=streamed), store_past_caches(made.schedule, streamed))


def apply_algorithms(
    s: Schedule,
    machine: Machine,
    accuracy: Accuracy,
    constants: Collection[str] = (),
) -> tuple[Schedule, dict[str, Chosen]]:
    """Rewrite the stages for which another method than the direct one is chosen.

    The choices of those with a nest of their own are keyed by the stage that holds or consumes the result.
    """
    choices: dict[str, Chosen] = {}
    for stage in s.require_program().stages:
        now = s.require_program()
        last = pointwise_reader(now, stage)
        asked = Asked(s, now.stage(stage.name), machine, accuracy, constants)
        found = cheapest(asked)
        if found is None:
            continue
        method, choice = found
        s = choice.rewrite(s, last)
        if method.rule is not None:
            choices[stage.name if last is None else last.name] = (method.rule, choice)
    return s, choices


def clusters(
    context: Context,
    choices: Mapping[str, Chosen],
    along: Mapping[str, LaneReduction],
    parts: Collection[str] = (),
    groups: Sequence[Nest] = (),
) -> list[Cluster]:
    """Group the stages of a program into nests, and choose the rule for each.

    A contraction goes with the point-wise stage that alone consumes it; a stage that follows reductions over
    its own rows goes with those, unless threads share these: then ``parts`` are the stages that reduce parts.
    ``groups`` are nests that are decided already.
    """
    program, target = context.program, context.machine.target
    decided = {nest.root: Cluster(nest.rule, nest.root, nest.stages, None, nest.plan) for nest in groups}
    taken = {name for nest in groups for name in (*nest.stages, nest.root)}
    done = {name for nest in groups for name in nest.stages}
    out: list[Cluster] = []
    # after what reads them, whose threads they follow
    copies: list[Cluster] = []
    for stage in reversed(program.stages):
        if stage.name in done:
            continue
        done.add(stage.name)
        found = decided.get(stage.name)
        if found is None:
            found = _cluster_of(context, stage, {*done, *taken}, choices, along, parts)
            if not taken.isdisjoint(found.stages):
                found = Cluster("elementwise", stage.name)
        done.update(found.stages)
        copied = found.rule == "elementwise" and _is_for_matrices(program, stage, target)
        (copies if copied else out).append(found)
    return [*out[::-1], *copies]


def _cluster_of(
    context: Context,
    stage: Stage,
    done: Collection[str],
    choices: Mapping[str, Chosen],
    along: Mapping[str, LaneReduction],
    parts: Collection[str],
) -> Cluster:
    """The nest that a stage ends."""
    program, target = context.program, context.machine.target
    alone = Cluster("elementwise", stage.name)
    if stage.name in choices:
        # where a step is refused, the whole program takes the direct method
        rule, choice = choices[stage.name]
        return Cluster(rule, stage.name, _but(stage, choice.stages), None)
    if stage.name in along:
        # where a step is refused, the program is scheduled as it was
        return Cluster("lanes", stage.name, _but(stage, along[stage.name].stages), None)
    if stage.name in parts:
        return Cluster("row_parts", stage.name, (), (alone,))
    ordered = find_in_order(program, stage, target)
    if ordered is not None and not {ordered.last.name} & {*done, *choices, *along}:
        made = contraction_of(program, ordered.last, target)
        if made is not None:
            inner = _contraction(program, made.stage, ordered.last)
            return Cluster(
                "contraction", stage.name, _but(stage, (*inner.stages, inner.root)), (inner, alone)
            )
    if not stage.is_reduction:
        found = contraction_before(program, stage, target)
        if found is not None:
            return _contraction(program, found.stage, stage)
    if is_tileable(program, stage, target, packed=False) is not None:
        return _contraction(program, stage, stage)
    planes = find_planes(program, stage, target)
    if planes is not None:
        each = tuple(Cluster("elementwise", name) for name in dict.fromkeys((planes.stage.name, stage.name)))
        return Cluster("narrow_windows", stage.name, _but(stage, (planes.stage.name,)), each)
    general = reduction_before(program, stage, target)
    if general is not None and general.stage.name not in {*done, *choices, *along, *parts} - {stage.name}:
        # one nest for the reduction and its reader, else one each
        names = dict.fromkeys((*general.panels, general.stage.name, stage.name))
        each = tuple(Cluster("elementwise", name) for name in names)
        return Cluster("general", stage.name, _but(stage, tuple(names)), each)
    producers = pipeline_before(program, stage, {*done, *choices, *along, *parts}, context.machine)
    if producers:
        each = tuple(Cluster("elementwise", name) for name in (*producers, stage.name))
        return Cluster("pipeline", stage.name, producers, each)
    scans = find_stripes(program, stage, context.machine, {*done, *choices, *along, *parts} - {stage.name})
    if scans is not None:
        before = tuple(m.stage.name for m in scans.members)
        each = tuple(Cluster("elementwise", name) for name in (*before, stage.name))
        return Cluster("scans", stage.name, before, each)
    rows = rows_before(program, stage, {*done, *along}, target)
    if any(member.name in parts for member in rows) or not shared_depth(rows, stage):
        shared = rows_side_by_side(program, stage, context.machine) is not None
        return Cluster("pipeline", stage.name, (), (alone,)) if shared else alone
    return Cluster("rows", stage.name, tuple(member.name for member in rows))


def _contraction(program: Program, stage: Stage, last: Stage) -> Cluster:
    """The nest of a contraction and the stage that ends it; its operand's panels are made in it."""
    names = (panels_before(program, stage), stage.name)
    stages = [name for name in names if name is not None and name != last.name]
    each = (Cluster("elementwise", name) for name in dict.fromkeys((stage.name, last.name)))
    return Cluster("contraction", last.name, tuple(stages), tuple(each))


def _but(stage: Stage, names: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name != stage.name)


def _is_for_matrices(program: Program, stage: Stage, target: Target) -> bool:
    """Whether a stage makes what only contractions by instructions for whole matrices read."""
    readers = {r.name for made in stage.writes for r in program.consumers(made)} if target.tiles else ()
    found = [contraction_named(program, name, target) for name in readers]
    uses = [None if c is None else select_instruction(c, target) for c in found]
    return bool(uses) and all(use is not None and use.tile is not None for use in uses)
