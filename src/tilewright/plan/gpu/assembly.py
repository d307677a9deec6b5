"""From a program to its default plan on a GPU: reductions taken apart, products made, stages into nests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.clusters import Planned, carry_out, clusters
from tilewright.plan.gpu.products import make_products
from tilewright.plan.gpu.reductions import split_reductions
from tilewright.plan.gpu.scans import split_scans
from tilewright.plan.gpu.updates import share_writes
from tilewright.plan.gpu.windows import Window, window_border, window_of
from tilewright.plan.inlining import inline_stages, is_padding
from tilewright.plan.rule import Cluster, Context
from tilewright.schedule import Schedule


def plan_on_gpu(program: Program, machine: Machine) -> Planned:
    """The default plan of a program on a device, carried out. Deterministic."""
    borders = [
        stage.name
        for stage in program.stages
        if window_border(program, stage) is not None and is_padding(program, stage)
    ]
    s = inline_stages(Schedule(program, operations=machine.gpu.operations), borders)
    before = s.require_program()
    windows = {st.name: found for st in before.stages if (found := window_of(before, st)) is not None}
    s, ends = split_scans(share_writes(s), machine.gpu)
    s, parts = split_reductions(s, machine.gpu)
    s, products = make_products(s, machine.gpu)
    return _plan(s, machine, parts | ends, products, windows)


def groups_on_gpu(
    program: Program, machine: Machine, inlined: Sequence[str], groups: Sequence[Cluster]
) -> Planned:
    """The plan with these stages inlined and these kernels of groups; all others have their default plans.

    Raises ScheduleError where a step is refused.
    """
    s = Schedule(program, operations=machine.gpu.operations)
    for name in inlined:
        s = s.inline_stage(name)
    own = {name for nest in groups for name in (*nest.stages, nest.root)}
    changed, ends = split_scans(share_writes(s), machine.gpu)
    changed, parts = split_reductions(changed, machine.gpu)
    parts |= ends
    changed, products = make_products(changed, machine.gpu)
    # a group's own plan is never refused; if it were, the whole program would be planned in another way
    before, after = s.require_program(), changed.require_program()
    known = {stage.name: stage for stage in after.stages}
    if any(known.get(name) != before.stage(name) for name in own):
        return _plan(s, machine, frozenset(), groups)
    return _plan(changed, machine, parts, [*products, *groups])


def _plan(
    s: Schedule,
    machine: Machine,
    ends: frozenset[str],
    decided: Iterable[Cluster],
    windows: Mapping[str, Window] = MappingProxyType({}),
) -> Planned:
    context = Context(s.require_program(), machine, matches=windows)
    return carry_out(s, context, clusters(context, {c.root: c for c in decided}, ends))
