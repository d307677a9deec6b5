"""Rows that are fewer than the threads: each reduces parts of every row, and the parts are reduced again.

Normalised over an image of one block of channels, or over all there is, such rows leave all threads but one
without work::

    parallel for parts of the row:
        sums[part] = 0
        for elements of the part: sums[part] += x[...]
    sum = the sum over the parts
    ...                                                   # the same for what is reduced next, from sum
    parallel for elements: y[...] = f(x[...], sum, ...)
"""

from __future__ import annotations

from math import prod
from typing import Final

from tilewright.analysis import physical, run_length
from tilewright.cost import Machine
from tilewright.ir import Program, Stage, Store, condition_of, stmt_loads
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.plan.elementwise.plan import MIN_RUN, accumulates, elements
from tilewright.plan.rows.nest import default_rows, rows_nest
from tilewright.plan.threads import share_steps
from tilewright.schedule import Schedule
from tilewright.tiling import Leaf, Nest, Place, Step, chain, sequence, shared_chain

#: Elements of all rows from which on threads are worth starting for each pass over them.
MIN_ELEMENTS: Final = 1 << 15
#: Parts of a row for each thread, so that uneven ones even out.
PARTS_PER_THREAD: Final = 4
#: Parts whose sums one thread makes at the same time, where they are single vectors: each addition waits for
#: the one before.
SUMS_AT_ONCE: Final = (4, 2, 1)
#: Elements that a part is a multiple of, where it is cut from a line: several vectors.
GRAIN: Final = 256


def share_rows(s: Schedule, machine: Machine) -> tuple[Schedule, frozenset[str]]:
    """Cut the reductions of few rows into parts; the stages that reduce parts.

    Only where other stages of the program read what is reduced, and none is a contraction of two operands.
    """
    program = s.require_program()
    found = [is_tileable(program, stage, machine.target, packed=False) for stage in program.stages]
    if machine.threads < 2 or any(c is not None and c.b is not None for c in found):
        return s, frozenset()
    parts: set[str] = set()
    for stage in program.stages:
        cut = _cut(program, stage, machine)
        if cut is not None:
            name = f"{stage.name}_part"
            s = s.rfactor(stage.name, *cut, name=name)
            parts.add(name)
    return s, frozenset(parts)


def _cut(program: Program, stage: Stage, machine: Machine) -> tuple[str, int] | None:
    """The reduction axis to cut, and its steps in a part; ``None`` where the reduction stays whole."""
    _, body = condition_of(stage.body)
    outputs = {b.name for b in program.outputs}
    if not stage.is_reduction or not accumulates(stage) or not isinstance(body, Store):
        return None
    if outputs & set(stage.writes) or not all(it.extent.is_const for it in stage.iters):
        return None
    pars = prod(it.extent.as_int() for it in stage.iters if it.kind == "par")
    reds = {it.name: it.extent.as_int() for it in stage.iters if it.kind == "red"}
    beside = _beside(program, stage)
    rows = pars if beside is None else pars // beside[1]
    if pars * prod(reds.values()) < MIN_ELEMENTS or rows >= machine.threads:
        return None
    wanted = PARTS_PER_THREAD * machine.threads
    axis = next((name for name, extent in reds.items() if extent >= wanted), None)
    if axis is None:
        return None
    steps = -(-reds[axis] // wanted)
    if axis == [*reds][-1] and beside is None:
        steps = -(-steps // GRAIN) * GRAIN
    return (axis, steps) if steps < reds[axis] else None


def _beside(program: Program, stage: Stage) -> tuple[str, int] | None:
    """The axis of rows whose elements lie side by side in blocks, and how many one vector takes together."""
    found = [
        (run, it.name)
        for ld in stmt_loads(stage.body)
        if ld.buffer not in stage.writes
        for it in stage.iters
        if it.kind == "par" and (run := run_length(physical(program, ld), it.name)) and run >= MIN_RUN
    ]
    return min(found)[::-1] if found else None


def parts_nest(program: Program, stage: Stage, machine: Machine) -> Nest:
    """The nest of a stage that reduces parts of rows.

    Of rows side by side the sums of several parts are in registers.
    """
    beside = _beside(program, stage)
    if beside is None:
        long = [n for n, it in enumerate(stage.iters) if it.kind == "par" and it.extent.as_int() > 1]
        plan = default_rows(program, [], stage, long[-1] + 1, machine)
        return rows_nest(program, [], stage, plan, machine)
    across, run = beside
    first, count = stage.iters[0].name, stage.iters[0].extent.as_int()
    together = next(n for n in SUMS_AT_ONCE if count % n == 0 and (count // n >= machine.threads or n == 1))
    pars = [it for it in stage.iters if it.kind == "par" and it.name not in (first, across)]
    outer = [Step(first, together, count=count // together)]
    outer += [Step(it.name, 1, count=it.extent.as_int()) for it in pars]
    outer.append(Step(across, run, count=-(-stage.extent(across) // run)))
    tile = [Step(first, 1, "unroll"), Step(across, 1, "vector")]
    sums = [Step(it.name, 1) for it in stage.iters if it.kind == "red"]
    drain = chain(tile, Leaf(stage.name))
    kept = Place(stage.writes[0], "keep", "register", chain([*sums, *tile], Leaf(stage.name)), drain)
    steps, shared = share_steps(outer, elements(stage), machine)
    return Nest(stage.name, shared_chain(steps, shared, sequence(kept)))
