"""From a program to its default plan on a GPU: reductions taken apart, products made, stages into nests."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.analysis import pointwise_reader
from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.catalog import RULES
from tilewright.plan.clusters import Cluster, Planned, carry_out
from tilewright.plan.gpu.elements import element_homes
from tilewright.plan.gpu.products import MadeProduct, make_products
from tilewright.plan.gpu.reductions import split_reductions
from tilewright.plan.gpu.rows import row_depth, row_members
from tilewright.plan.gpu.scans import split_scans
from tilewright.plan.gpu.updates import share_writes
from tilewright.plan.gpu.windows import window_border, window_of
from tilewright.plan.inlining import inline_stages, is_padding
from tilewright.plan.rule import Context, Nest
from tilewright.schedule import Schedule


def plan_on_gpu(program: Program, machine: Machine) -> Planned:
    """The default plan of a program on a device, carried out. Deterministic."""
    borders = [
        stage.name
        for stage in program.stages
        if window_border(program, stage) is not None and is_padding(program, stage)
    ]
    s = inline_stages(Schedule(program, operations=machine.gpu.operations), borders)
    windows = {st.name for st in s.require_program().stages if window_of(s.require_program(), st) is not None}
    s, ends = split_scans(share_writes(s), machine.gpu)
    s, parts = split_reductions(s, machine.gpu)
    s, products = make_products(s, machine.gpu)
    context = Context(s.require_program(), machine)
    return carry_out(s, context, _clusters(context, products, windows, parts | ends))


def groups_on_gpu(
    program: Program, machine: Machine, inlined: Sequence[str], groups: Sequence[Nest]
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
    before, after = s.require_program(), changed.require_program()
    known = {stage.name: stage for stage in after.stages}
    if any(known.get(name) != before.stage(name) for name in own):
        changed, parts, products = s, frozenset(), []
    context = Context(changed.require_program(), machine)
    return carry_out(changed, context, _clusters(context, products, (), parts, groups))


def _clusters(
    context: Context,
    products: Sequence[MadeProduct],
    over_windows: Collection[str],
    parts: Collection[str],
    groups: Sequence[Nest] = (),
) -> list[Cluster]:
    program = context.program
    found = {
        each.root: Cluster(
            each.rule,
            each.root,
            each.stages,
            tuple(Cluster("gpu_elements", name) for name in (*each.stages, each.root)),
        )
        for each in products
    }
    # a group's own plan is never refused; if it were, the whole program would be planned in another way
    found |= {nest.root: Cluster(nest.rule, nest.root, nest.stages, None, nest.plan) for nest in groups}
    free = {stage.name for stage in program.stages}
    free -= {name for nest in groups for name in (nest.root, *nest.stages)}
    free -= {name for each in products for name in (each.root, *each.stages)}
    windows = _windows(context, free, over_windows)
    found |= windows
    free -= {name for each in windows.values() for name in (each.root, *each.stages)}
    rows: dict[str, Cluster] = {}
    for stage in reversed(program.stages):
        depth = row_depth(program, stage) if stage.name in free else None
        if depth is None:
            continue
        members = row_members(program, stage, depth, free.difference(parts))
        alone = element_homes(program, [*members, stage.name])
        simpler = tuple(Cluster("gpu_elements", root, tuple(inside)) for root, inside in alone.items())
        if RULES["gpu_rows"].match(context, stage.name, members) is not None:
            rows[stage.name] = Cluster("gpu_rows", stage.name, members, simpler)
            free -= {stage.name, *members}
    found |= rows
    for root, inside in element_homes(
        program, [stage.name for stage in program.stages if stage.name in free]
    ).items():
        found[root] = Cluster("gpu_elements", root, tuple(inside))
    return [found[stage.name] for stage in program.stages if stage.name in found]


def _windows(context: Context, free: Collection[str], over_windows: Collection[str]) -> dict[str, Cluster]:
    """Reductions over windows, each with the borders before it and what alone takes its result."""
    program = context.program
    found: dict[str, Cluster] = {}
    for stage in program.stages:
        if stage.name not in free or stage.name not in over_windows:
            continue
        inside = [st.name for st in program.stages if st.name in free and window_border(program, st) is stage]
        reader = pointwise_reader(program, stage)
        results = {b.name for b in program.outputs}
        root = stage
        if reader is not None and reader.name in free and not results & set(stage.writes):
            inside.append(stage.name)
            root = reader
        if root.name in found or RULES["gpu_windows"].match(context, root.name, tuple(inside)) is None:
            continue
        alone = element_homes(program, [*inside, root.name])
        simpler = tuple(Cluster("gpu_elements", name, tuple(rest)) for name, rest in alone.items())
        found[root.name] = Cluster("gpu_windows", root.name, tuple(inside), simpler)
    return found
