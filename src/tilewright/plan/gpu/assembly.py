"""From a program to its default plan on a GPU: reductions taken apart, products made, stages into nests."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.catalog import RULES
from tilewright.plan.clusters import Cluster, Planned, carry_out
from tilewright.plan.gpu.elements import element_homes
from tilewright.plan.gpu.products import MadeProduct, make_products
from tilewright.plan.gpu.reductions import split_reductions
from tilewright.plan.gpu.rows import row_depth, row_members
from tilewright.plan.inlining import inline_stages
from tilewright.plan.rule import Context
from tilewright.schedule import Schedule


def plan_on_gpu(program: Program, machine: Machine) -> Planned:
    """The default plan of a program on a device, carried out. Deterministic."""
    s = inline_stages(Schedule(program, operations=machine.gpu.operations))
    s = split_reductions(s, machine.gpu)
    s, products = make_products(s)
    context = Context(s.require_program(), machine)
    return carry_out(s, context, _clusters(context, products))


def _clusters(context: Context, products: Sequence[MadeProduct]) -> list[Cluster]:
    program = context.program
    found = {
        each.root: Cluster(
            "gpu_product",
            each.root,
            each.stages,
            tuple(Cluster("gpu_elements", name) for name in (*each.stages, each.root)),
        )
        for each in products
    }
    free = {stage.name for stage in program.stages}
    free -= {name for each in products for name in (each.root, *each.stages)}
    rows: dict[str, Cluster] = {}
    for stage in reversed(program.stages):
        depth = row_depth(program, stage) if stage.name in free else None
        if depth is None:
            continue
        members = row_members(program, stage, depth, free)
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
