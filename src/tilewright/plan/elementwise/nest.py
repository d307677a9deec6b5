"""The tree of an element-wise stage: outer loops shared by threads, the last one in vectors."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.cost import Machine
from tilewright.ir import FloorDiv, Mod, Program, Stage, stmt_loads
from tilewright.plan.elementwise.blocked_transpose import blocked_transpose, square_of
from tilewright.plan.elementwise.flat import lies_flat
from tilewright.plan.elementwise.plan import (
    MIN_TILED_ELEMENTS,
    ElementwisePlan,
    best_vector_axis,
    choosing_axes,
    default_elementwise,
    elements,
)
from tilewright.plan.threads import own_part, share_steps
from tilewright.tiling import Body, Leaf, Nest, Place, Step, chain, shared_chain


def elementwise_nest(
    program: Program,
    stage: Stage,
    machine: Machine,
    plan: ElementwisePlan | None = None,
    reader: str | None = None,
) -> Nest | None:
    """The nest of a stage by itself; ``None`` for one without axes.

    ``reader`` is the axis along which threads share what reads the result: a thread that makes what it reads
    itself finds it in its own caches. Ordered loops come after the parallel ones, and before the vectors.
    """
    if not stage.iters:
        return None
    plan = default_elementwise(program, stage) if plan is None else plan
    return Nest(stage.name, _body(program, stage, machine, plan, reader))


def copied_at(program: Program, stage: Stage) -> Place:
    """An element-wise stage made where a loop uses it, in vectors; its storage stays where it was."""
    found = best_vector_axis(program, stage)
    axes, chosen = [it.name for it in stage.iters], choosing_axes(stage)
    if found is None:
        return Place(stage.name, "make", "whole", chain([Step(a, 1) for a in axes], Leaf(stage.name)))
    inner, run = axes[found[0]], found[1]
    outer = [Step(a, 1) for a in axes if a not in chosen and a != inner]
    if run is not None:
        outer = [Step(a, run if a == inner else 1) for a in axes if a not in chosen or a == inner]
    rest = [Step(a, 1, "unroll") for a in axes if a in chosen and a != inner]
    return Place(
        stage.name, "make", "whole", chain([*outer, *rest, Step(inner, 1, "vector")], Leaf(stage.name))
    )


def _body(
    program: Program, stage: Stage, machine: Machine, plan: ElementwisePlan, reader: str | None
) -> Body:
    total = elements(stage)
    extents = {it.name: it.extent.as_int() if it.extent.is_const else 0 for it in stage.iters}
    if plan.vector is not None and not stage.is_reduction and plan.run is None and plan.transpose:
        square = (
            square_of(program, stage, plan.vector, machine.target) if total >= MIN_TILED_ELEMENTS else None
        )
        if square is not None:
            return blocked_transpose(stage, square, total, machine, plan.share)
    if lies_flat(program, stage, plan):
        return _flat(stage, total, machine, plan.share)
    inner = None if plan.vector is None else stage.iters[plan.vector].name
    chosen = choosing_axes(stage)
    choosing = [it.name for it in stage.iters if it.name in chosen and it.name != inner]
    pars = [
        s
        for it in stage.iters
        if it.kind == "par" and it.name not in choosing and it.name != inner
        for s in _parts(stage, it.name, extents)
    ]
    others = [it.name for it in stage.iters if it.kind != "par" and it.name != inner]
    ordered = any(it.kind == "ord" for it in stage.iters)
    rank = [it.name for it in stage.iters]
    lanes: Body = Leaf(stage.name)
    if inner is not None:
        own = None
        if plan.run is not None:
            pars.append(Step(inner, plan.run, count=extents[inner] // plan.run))
        else:
            # each part takes all the ordered steps: as few parts as threads
            share = 1 if ordered else plan.share
            fixed = all(extents[s.axis] for s in (*pars, Step(inner, 1)))
            own = own_part([s.count for s in pars], extents[inner], total, machine, share) if fixed else None
            if own is not None:
                # nothing else for threads to share
                pars.append(Step(inner, own, count=-(-extents[inner] // own)))
        if not ordered:
            pars.sort(key=lambda s: rank.index(s.axis))
        lanes = chain([Step(inner, 1, "vector")], lanes)
    if reader is not None and not ordered and inner is not None:
        first = next((s for s in pars if s.axis == reader), None)
        pars = [s for s in (first, *(x for x in pars if x is not first)) if s is not None]
    rest = [*(Step(a, 1) for a in others), *(Step(a, 1, "unroll") for a in choosing)]
    if ordered and inner is not None:
        rest.sort(key=lambda s: rank.index(s.axis))
    steps, shared = share_steps(pars, total, machine, plan.share)
    return shared_chain(steps, shared, chain(rest, lanes))


def _parts(stage: Stage, axis: str, extents: Mapping[str, int]) -> list[Step]:
    """The loop of an axis, split where loads take quotients and remainders of it by one divisor.

    So there is a division for each turn of the outer loop, not each element. Symbolic extents are 0.
    """
    atoms = [atom for ld in stmt_loads(stage.body) for i in ld.indices for atom, _ in i.terms]
    divisors = {a.divisor for a in atoms if isinstance(a, FloorDiv | Mod) and a.arg.as_var() == axis}
    (divisor,) = divisors if len(divisors) == 1 else (0,)
    extent = extents[axis]
    if divisor and extent % divisor == 0 and extent > divisor:
        return [Step(axis, divisor, count=extent // divisor), Step(axis, 1, count=divisor)]
    return [Step(axis, 1, count=extent)]


def _flat(stage: Stage, total: int, machine: Machine, share: int) -> Body:
    """All axes of a stage as one loop in vectors, whose parts threads share."""
    axes = "*".join(it.name for it in stage.iters)
    own = own_part([], total, total, machine, share)
    lanes = chain([Step(axes, 1, "vector")], Leaf(stage.name))
    if own is None:
        return lanes
    steps, shared = share_steps([Step(axes, own, count=-(-total // own))], total, machine, share)
    return shared_chain(steps, shared, lanes)
