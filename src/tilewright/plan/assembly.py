"""From a program to its default plan: algorithms, stages into nests, and the rule for each nest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilewright import tiling
from tilewright.analysis import pointwise_reader
from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.algorithms.accuracy import AUTO, Accuracy
from tilewright.plan.algorithms.methods import Asked, Choice, cheapest
from tilewright.plan.beginning import begin
from tilewright.plan.blocks import block_nests
from tilewright.plan.clusters import Planned, carry_out, clusters
from tilewright.plan.contraction.gather import gather_operands
from tilewright.plan.contraction.gemv import split_streams
from tilewright.plan.contraction.instructions import select_instruction
from tilewright.plan.contraction.padding import pad_for_matrices
from tilewright.plan.contraction.precision import contraction_of as contraction_named, round_weights
from tilewright.plan.contraction.run_time_panels import store_in_groups
from tilewright.plan.contraction.split_k import split_deep
from tilewright.plan.fallback import fell_back
from tilewright.plan.fused.bands import find_band
from tilewright.plan.fused.chain import find_chain
from tilewright.plan.general.rule import gather_general
from tilewright.plan.gpu.assembly import groups_on_gpu, plan_on_gpu
from tilewright.plan.inlining import inline_stages
from tilewright.plan.pipeline.fusion import better_fusion
from tilewright.plan.rows.merge_axes import merge_axes
from tilewright.plan.rows.reduction import LaneReduction, split_reductions
from tilewright.plan.rows.split_rows import share_rows
from tilewright.plan.rows.split_updates import share_updates
from tilewright.plan.rule import Cluster, Context
from tilewright.plan.streaming_stores import streamed_results
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
    s = Schedule(program, operations=machine.target.operations)
    s = inline_stages(begin(s, machine.target))
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
    groups: Sequence[Cluster],
) -> Planned:
    """The plan with these stages inlined and these nests of groups; all others have their default plans.

    Rewrites that would change a stage of a group are left out. Raises ScheduleError where a step is refused.
    """
    if isinstance(machine.on, GpuTarget):
        return groups_on_gpu(program, machine, inlined, groups)
    s = begin(Schedule(program, operations=machine.target.operations), machine.target)
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
    return _carried_out(s, context, _nests(context, _decided(groups)))


def _check_groups(before: Program, after: Program, groups: Sequence[Cluster]) -> None:
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
    groups: Sequence[Cluster] = (),
) -> Planned:
    target = machine.target
    given = s.require_program()
    s, parts = share_rows(share_updates(s, machine), machine)
    s = split_streams(s, machine, constants)
    s = split_deep(s, machine, constants)
    s = gather_operands(s, target, constants, {choice.partial for choice in along.values()})
    _check_groups(given, s.require_program(), groups)
    matches: dict[str, object] = dict(along)
    # where a step of a rewritten nest is refused, the whole program is planned without the rewrite
    decided = {name: Cluster("row_parts", name, (), (Cluster("elementwise", name),)) for name in parts}
    decided |= {root: _cluster("lanes", root, choice.stages) for root, choice in along.items()}
    for root, (rule, chosen) in choices.items():
        matches |= {root: chosen.match, f"{root}.plan": chosen.plan}
        decided[root] = _cluster(rule, root, chosen.stages)
    context = Context(s.require_program(), machine, constants, matches)
    return _carried_out(s, context, _nests(context, decided | _decided(groups)))


def _cluster(rule: str, root: str, stages: Collection[str]) -> Cluster:
    return Cluster(rule, root, tuple(name for name in stages if name != root), None)


def _decided(groups: Sequence[Cluster]) -> dict[str, Cluster]:
    return {group.root: group for group in groups}


def _nests(context: Context, decided: Mapping[str, Cluster]) -> list[Cluster]:
    """The nests in order; copies for matrices after what reads them, whose threads they follow."""
    found, program, target = clusters(context, decided), context.program, context.machine.target
    copies = [c for c in found if c.rule == "elementwise" and _is_for_matrices(program, c.root, target)]
    return [*(c for c in found if c not in copies), *copies]


def _carried_out(s: Schedule, context: Context, found: Sequence[Cluster]) -> Planned:
    """The nests, each by the default plan of its rule, large results stored past the caches."""
    made = carry_out(s, context, found)
    streamed = streamed_results(context.program, context.machine.target)
    return Planned(replace(made.plan, streamed=streamed), tiling.store_past_caches(made.schedule, streamed))


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


def _is_for_matrices(program: Program, name: str, target: Target) -> bool:
    """Whether a stage makes what only contractions by instructions for whole matrices read."""
    made = program.stage(name).writes if target.tiles else ()
    readers = {reader.name for each in made for reader in program.consumers(each)}
    found = [contraction_named(program, name, target) for name in readers]
    uses = [None if c is None else select_instruction(c, target) for c in found]
    return bool(uses) and all(use is not None and use.tile is not None for use in uses)
