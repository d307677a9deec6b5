"""The loop trees of element-wise stages and of chains over rows, from their plans alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.cost import Machine, Node, Place, Term
from tilewright.ir import FloorDiv, Mod, Program, Stage, stmt_loads
from tilewright.plan.elementwise.blocked_transpose import square_of
from tilewright.plan.elementwise.plan import (
    MIN_TILED_ELEMENTS,
    ElementwisePlan,
    accumulates,
    choosing_axes,
    elements,
)
from tilewright.plan.rows.nest import RowsPlan, folded_at_once
from tilewright.plan.threads import MIN_PARALLEL_ELEMENTS, parts_of
from tilewright.plan.trees import Bodies, Body, around, body_of, one, placed, started

Loops = list[tuple[str, int, str]]


@dataclass(slots=True)
class _Outer:
    """Loops around a nest, and where the axes are in them."""

    loops: Loops
    binding: dict[str, Place]


def shared_loops(
    loops: Sequence[tuple[str, int]], nested: int, total: int, machine: Machine, share: int
) -> _Outer:
    """Leading loops fused until each thread has its ``share`` of iterations, as ``parallelise`` does.

    The first ``nested`` of them are directly inside one another.
    """
    serial = [(name, n, "serial") for name, n in loops]
    if machine.threads == 1 or not loops or total < MIN_PARALLEL_ELEMENTS:
        return _Outer(serial, {name: one(name) for name, _ in loops})
    wanted, count, taken = machine.threads * share, loops[0][1], 1
    parts: int | None = None
    for name, extent in loops[1:nested]:
        if count >= wanted and count % machine.threads == 0:
            break
        parts = parts_of(count, extent, wanted, machine) if name == loops[-1][0] else None
        count *= parts or extent
        taken += 1
        if parts is not None:
            break
    binding = {name: one(name) for name, _ in loops[taken:]}
    below = count
    own: Loops = []
    for n, (name, extent) in enumerate(loops[:taken]):
        first = below == count
        last = n == taken - 1
        size = parts if last and parts is not None else extent
        below //= size
        step = extent // size
        term = Term(step, ((1, "fused"),), below, 0 if first else size)
        binding[name] = (term,) if size > 1 else ()
        if step > 1:
            own.append((f"{name}_own", step, "serial"))
            binding[name] = (*binding[name], *one(f"{name}_own"))
    kind = "parallel" if count > 1 else "serial"
    return _Outer([("fused", count, kind), *own, *serial[taken:]], binding)


@dataclass(frozen=True, slots=True)
class ElementwiseLoops:
    """The loops of one stage's nest, and where its axes go; not yet what is computed in them."""

    loops: Loops
    binding: Mapping[str, Place]

    def around(self, body: Body) -> tuple[Node, ...]:
        """The nest of the stage: of its body as it stands, or with other stages in its expression."""
        return around(self.loops, [placed(body, self.binding, {n: e for n, e, _ in self.loops})])


def elementwise_tree(
    program: Program, stage: Stage, plan: ElementwisePlan, machine: Machine
) -> tuple[Node, ...] | None:
    """The nest of one stage; ``None`` where squares, runs, divisors or readers decide about its loops."""
    body, loops = body_of(program, stage), elementwise_loops(program, stage, plan, machine)
    return None if body is None or loops is None else loops.around(body)


def elementwise_loops(
    program: Program, stage: Stage, plan: ElementwisePlan, machine: Machine
) -> ElementwiseLoops | None:
    """The loops of that nest; ``None`` as there."""
    known = all(it.extent.is_const and it.kind != "ord" for it in stage.iters)
    divided = any(
        isinstance(atom, FloorDiv | Mod)
        for ld in stmt_loads(stage.body)
        for i in ld.indices
        for atom, _ in i.terms
    )
    if not known or divided or plan.run is not None or not stage.iters or stage.is_reduction:
        return None
    total = elements(stage)
    vector = None if plan.vector is None else stage.iters[plan.vector].name
    if plan.vector is not None and plan.transpose and total >= MIN_TILED_ELEMENTS:
        if square_of(program, stage, plan.vector, machine.target) is not None:
            return None
    chosen = [n for n in choosing_axes(stage) if n != vector]
    sizes = {it.name: it.extent.as_int() for it in stage.iters}
    outer = [n for n in sizes if n != vector and n not in chosen]
    if machine.threads > 1 and total >= MIN_PARALLEL_ELEMENTS and vector is not None:
        if prod(sizes[n] for n in outer) < machine.threads:
            return None
    shared = shared_loops([(n, sizes[n]) for n in outer], len(outer), total, machine, plan.share)
    if vector is not None and not outer and shared.loops:
        return None
    inner: Loops = [(n, sizes[n], "unroll") for n in sizes if n in chosen]
    if vector is not None:
        inner.append((vector, sizes[vector], "vector"))
    loops = [*shared.loops, *inner]
    binding = {**shared.binding, **{n: one(n) for n, _, _ in inner}}
    binding = {n: place if sizes[n] > 1 else () for n, place in binding.items()}
    return ElementwiseLoops(loops, binding)


def rows_tree(
    known: Bodies, stages: Sequence[Stage], last: Stage, plan: RowsPlan, machine: Machine
) -> tuple[Node, ...] | None:
    """The nest of a chain over rows; ``None`` for vectors across rows, and for rows of sizes not known."""
    chain = (*stages, last)
    if plan.across or not all(it.extent.is_const for st in chain for it in st.iters):
        return None
    bodies = {st.name: known.of(st) for st in chain}
    if any(b is None for b in bodies.values()):
        return None
    depth = plan.depth
    sizes = [it.extent.as_int() for it in last.iters[:depth]]
    for st in stages:
        if [it.extent.as_int() for it in st.iters[:depth]] != sizes or any(
            it.kind != "par" for it in st.iters[:depth]
        ):
            return None
    own_rows = plan.rows
    outer = [(str(n), size) for n, size in enumerate(sizes)]
    outer[-1] = (outer[-1][0], sizes[-1] // own_rows)
    total = elements(last) * (1 + len(stages))
    shared = shared_loops(outer, len(outer), total, machine, plan.share)
    made = {st.writes[0] for st in stages}
    folded = folded_at_once(stages) if own_rows == 1 and plan.fold else {}
    extents = {n: e for n, e, _ in shared.loops}

    def nest(st: Stage, with_it: Sequence[Stage] = ()) -> tuple[Node, ...]:
        body = bodies[st.name]
        assert body is not None
        binding: dict[str, Place] = {}
        for n, it in enumerate(st.iters[:depth]):
            place = shared.binding[str(n)] if outer[n][1] > 1 else ()
            if n == depth - 1 and own_rows > 1:
                place = tuple(Term(t.stride * own_rows, t.inner, t.quotient, t.modulus) for t in place)
                place = (*place, *one(f"{st.name}.row"))
            binding[it.name] = place
        loops: Loops = [(f"{st.name}.row", own_rows, "serial")]
        for it in st.iters[depth:]:
            name, size = f"{st.name}.{it.name}", it.extent.as_int()
            loops.append((name, size, "serial"))
            binding[it.name] = one(name) if size > 1 else ()
        reds = {f"{st.name}.{it.name}" for it in st.iters if it.kind == "red"}
        # the innermost loop of several iterations whose lanes need no order
        for at in range(len(loops) - 1, -1, -1):
            name, size, _ = loops[at]
            if size > 1 and (name not in reds or accumulates(st)):
                loops[at] = (name, size, "vector")
                break
        below = frozenset(n for n, _, _ in loops)
        inside = dict.fromkeys(made, below)
        now = {**extents, **{n: e for n, e, _ in loops}}
        work = placed(body, binding, now, inside=inside)
        if not reds:
            joined: list[Node] = [work]
            before: list[Node] = []
            for each in with_it:
                other = bodies[each.name]
                assert other is not None
                theirs = {
                    it.name: binding[mine.name]
                    for it, mine in zip(each.iters[:depth], st.iters, strict=False)
                }
                (red,) = (it.name for it in each.iters if it.kind == "red")
                before.append(started(other, theirs, now, inside=inside))
                joined.append(placed(other, {**theirs, red: binding[st.iters[-1].name]}, now, inside=inside))
            return (*around(loops[:-1], [*before, *around(loops[-1:], joined)]),)
        first = next(n for n, (name, _, _) in enumerate(loops) if name in reds)
        then = [(n, e, "serial") for n, e, _ in loops[first:] if n not in reds]
        start = around(then, [started(body, binding, now, inside=inside)])
        return around(loops[:first], [*start, *around(loops[first:], [work])])

    nodes: list[Node] = []
    for st in chain:
        if st.name not in folded:
            nodes += nest(st, [other for other in stages if folded.get(other.name) == st.name])
    return around(shared.loops, nodes)
