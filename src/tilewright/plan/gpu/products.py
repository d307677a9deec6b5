"""Which sums are done as products of matrices on GPUs, and the rewrite that makes them."""

from __future__ import annotations

from math import prod
from typing import Final

from tilewright.analysis import Roles, pointwise_reader, roles_of
from tilewright.cost import ProductSize
from tilewright.ir import Program, Stage, loads, stmt_loads
from tilewright.plan.fallback import fell_back
from tilewright.plan.gpu.group import group_problem
from tilewright.plan.gpu.matrix import best_warps, depth_of, unit_of
from tilewright.plan.gpu.product import MULTIPLES, best_tiles, over_windows
from tilewright.plan.gpu.updates import joined_at_once
from tilewright.plan.rule import Cluster
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import GpuTarget, Instruction

#: Rows, columns and terms from which on tiles pay; below, threads read what they need by themselves.
LEAST: Final = (2, 8, 8)


def matrices_of(program: Program, stage: Stage) -> Roles | None:
    """The roles of a sum that is worth tiles; ``None`` for others."""
    roles = roles_of(stage)
    if isinstance(roles, str):
        return None
    _, rows, columns, sums = roles.extents
    fewer, more = sorted((rows, columns))
    if fewer < LEAST[0] or more < LEAST[1] or sums < LEAST[2]:
        return None
    return roles


def product_size(program: Program, stage: Stage, target: GpuTarget, parts: int = 1) -> ProductSize:
    """The size of the product that a sum becomes, its sums in so many parts."""
    roles = roles_of(stage)
    assert isinstance(roles, Roles)  # matrices_of has found them
    batch, rows, columns, sums = roles.extents
    read = {ld.buffer for ld in stmt_loads(stage.body)} - set(stage.writes)
    nbytes = sum(
        prod(e.as_int() for e in program.buffer(name).shape) * program.buffer(name).dtype.bytes
        for name in sorted(read)
    )
    unit = unit_of(roles, target)
    multiple = MULTIPLES[2] if unit is None else depth_of(unit)
    element = roles.a.dtype.bytes if unit is None else unit.operands[1].dtype.bytes
    filled = -(-sums // parts // multiple) * multiple
    summed = {it.name for it in stage.iters if it.kind == "red"}
    windows = tuple(over_windows(loads(factor), summed) for factor in (roles.a, roles.b))
    return ProductSize(batch * parts, rows, columns, filled, element, nbytes, (windows[0], windows[1]))


def least_seconds(program: Program, stage: Stage, target: GpuTarget, parts: int = 1) -> float:
    """Seconds of the product that a sum becomes by the best tiles, its sums in so many parts."""
    size, unit = product_size(program, stage, target, parts), matrix_unit(program, stage, target)
    found = None if unit is None else best_warps(size, target, unit)
    return best_tiles(size, target)[1] if found is None else found[1]


def matrix_unit(program: Program, stage: Stage, target: GpuTarget) -> Instruction | None:
    """The instruction by which a device does a sum: where it has one, and tiles for it that fit."""
    roles = roles_of(stage)
    unit = None if isinstance(roles, str) else unit_of(roles, target)
    if unit is None or best_warps(product_size(program, stage, target), target, unit) is None:
        return None
    return unit


def make_products(s: Schedule, target: GpuTarget) -> tuple[Schedule, list[Cluster]]:
    """Rewrite all sums that are worth tiles.

    A stage that alone takes a result does so in registers; parts of sums of integers are joined by the blocks
    that have them, at once.
    """
    made: list[Cluster] = []
    for stage in s.require_program().stages:
        if matrices_of(s.require_program(), stage) is None:
            continue
        try:
            s, product = _make(s, stage, target)
            made.append(product)
        except ScheduleError as error:
            s = fell_back(s, f"{stage.name} is no product of matrices", error)
    return s, made


def _make(s: Schedule, stage: Stage, target: GpuTarget) -> tuple[Schedule, Cluster]:
    program = s.require_program()
    roles = roles_of(stage)
    assert isinstance(roles, Roles)  # as above
    reader = pointwise_reader(program, stage)
    temps = {b.name for b in program.temps}
    name = f"{stage.name}_product"
    unit = matrix_unit(program, stage, target)
    if unit is None:
        s = s.as_matrices(stage.name, MULTIPLES, name)
    else:
        s = s.as_matrices(stage.name, (*MULTIPLES[:2], depth_of(unit)), name, narrow=True)
    root = stage.name
    names = {it.name: it.name for it in stage.iters}
    shared = joined_at_once(program, stage, target) if len(roles.batch) == 1 else None
    pars = [it.name for it in stage.iters if it.kind == "par"]
    if reader is not None and stage.writes[0] in temps and len(reader.iters) == len(pars):
        s = s.inline_stage(stage.name)
        root = reader.name
        names = dict(zip(pars, (it.name for it in reader.iters), strict=True))
    elif shared is not None and pars[:1] == [it.name for it in roles.batch]:
        joined, read = shared
        s = s.inline_stage(stage.name)
        root = joined.name
        names = dict(zip(pars, (i.as_var() or "" for i in read.indices), strict=True))
    for group in (roles.batch, roles.rows, roles.columns):
        axes = [names[it.name] for it in group]
        while len(axes) > 1:
            before = {it.name for it in s.require_program().stage(root).iters}
            s = s.fuse_iterators(root, axes[0], axes[1])
            axes[:2] = {it.name for it in s.require_program().stage(root).iters} - before
    rule, stages = "gpu_product" if unit is None else "gpu_matrix", (f"{name}_a", f"{name}_b", name)
    simpler = tuple(Cluster("gpu_elements", each) for each in (*stages, root))
    made = Cluster(rule, root, stages, simpler)
    if group_problem(s.require_program(), target, root, stages) is not None:
        made = Cluster("gpu_group_product", root, stages, (made,))
    return s, made
