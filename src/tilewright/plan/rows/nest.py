"""The trees of chains of reductions over rows: softmax, normalisations, and their like.

Each row stays in the first cache level while all stages of the chain pass over it; all innermost loops are
vectors, along the row or across rows that lie together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis import flat_index, physical, run_length
from tilewright.cost import KEPT_SHARE, Machine, buffer_bytes, goes_past_caches, last_cache
from tilewright.ir import CONST, F32, If, Index, Iter, Program, Stage, Store, stmt_loads, var
from tilewright.plan.elementwise.plan import MIN_RUN, accumulates, elements
from tilewright.plan.threads import ITERATIONS_PER_THREAD, share_steps
from tilewright.target import Target
from tilewright.tiling import Body, Cut, Leaf, Nest, Place, Step, chain, guarded, sequence, shared_chain

#: Elements that a row is asked for ahead of its use, at least: while main memory answers.
MIN_AHEAD: Final = 2048
#: Vectors of a row up to which several rows are computed at once; and how many.
SHORT_ROW: Final = 16
ROWS_AT_ONCE: Final = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """How a chain of stages over rows is done: ``rows`` at once, the loops up to ``depth`` around them.

    With ``across`` vectors run across these rows, else along each. ``share`` are the iterations that each of
    the threads should have at least; ``fold`` says whether reductions of what has just been stored go along
    with it, ``ahead`` whether rows that come from afar are asked for.
    """

    depth: int
    rows: int = 1
    across: bool = False
    fold: bool = True
    ahead: bool = True
    share: int = ITERATIONS_PER_THREAD


def default_rows(
    program: Program, stages: Sequence[Stage], last: Stage, depth: int, machine: Machine
) -> RowsPlan:
    """Vectors across rows that lie side by side; else along them, several short ones at once."""
    side_by_side = _rows_side_by_side(program, [*stages, last], depth)
    if side_by_side:
        return RowsPlan(depth, side_by_side, across=True)
    return RowsPlan(depth, _rows_at_once(last, depth, machine))


def rows_nest(
    program: Program, stages: Sequence[Stage], last: Stage, plan: RowsPlan, machine: Machine
) -> Nest:
    """The nest of ``stages`` (producers before consumers) inside of the row loop of ``last``."""
    depth, together = plan.depth, plan.rows
    folded = folded_at_once(stages) if together == 1 and plan.fold else {}
    hints: dict[str, dict[str, str]] = {}
    if plan.ahead:
        _request_rows(hints, program, [*stages, last], depth, machine.target)
    _keep_in_place(hints, program, stages, last, machine.target)

    def nest(stage: Stage) -> Body:
        leaves = [Leaf(stage.name), *(Leaf(name) for name, maker in folded.items() if maker == stage.name)]
        if plan.across:
            return _across_rows(stage, depth - 1, hints.get(stage.name, {}), sequence(*leaves))
        own = stage.iters[depth - 1 :] if together > 1 else stage.iters[depth:]
        return row_body(stage, own, hints.get(stage.name), sequence(*leaves), together)

    places = [
        Place(stage.name, "make", _scope(stage, stages, last, plan), nest(stage))
        for stage in stages
        if stage.name not in folded
    ]
    own = nest(last)
    core = sequence(*places, own)
    total = elements(last) * (1 + len(stages))
    outer = [
        Step(it.name, 1, count=it.extent.as_int() if it.extent.is_const else 0) for it in last.iters[:depth]
    ]
    extent, row = outer[-1].count, outer[-1]
    row.size, row.count = together, -(-extent // together)
    if extent % together == 0:
        steps, shared = share_steps(outer, total, machine, plan.share)
        return Nest(last.name, shared_chain(steps, shared, core))
    # rows that are left over, apart: they have the loops of whole ones, with conditions
    whole = extent // together * together
    rest = chain([row], sequence(*places, guarded(own)))
    alone = share_steps([row], total, machine, plan.share)[1] if depth == 1 and whole else 0
    body: Body = Cut(row.axis, (whole,), (shared_chain([row], alone, core), rest)) if whole else rest
    steps, shared = share_steps(outer[:-1], total, machine, plan.share, parts=False)
    return Nest(last.name, shared_chain(steps, shared, body))


def row_body(
    stage: Stage,
    axes: Sequence[Iter],
    hints: Mapping[str, str] | None = None,
    leaf: Body | None = None,
    rows: int = 0,
) -> Body:
    """A stage's own nest over a row: its last axis of several iterations in lanes.

    Of several ``rows`` at once the first axis has so many elements. ``hints`` are the innermost loop's.
    """
    steps = [Step(it.name, 1) for it in axes]
    for n, it in reversed(list(enumerate(axes))):
        extent = Index(rows) if rows > 1 and n == 0 else it.extent
        if it.kind == "red" and not accumulates(stage):
            # an extremum with its index: lanes would all write one pair
            continue
        if extent.is_const and extent.as_int() > 1:
            steps[n].bind = "vector"
            break
    if steps:
        steps[-1].hints |= hints or {}
    return chain(steps, Leaf(stage.name) if leaf is None else leaf)


def _across_rows(stage: Stage, row: int, hints: Mapping[str, str], leaf: Body) -> Body:
    """Vectors across rows: each lane computes one of them; several results of a row are expanded."""
    across, *rest = stage.iters[row:]
    rest = sorted(rest, key=lambda it: it.kind != "red")
    sums = stage.init is not None
    steps = [Step(it.name, 1, "unroll" if sums and it.kind != "red" else "serial") for it in rest]
    return chain([*steps, Step(across.name, 1, "vector", hints=dict(hints))], leaf)


def _scope(stage: Stage, stages: Sequence[Stage], last: Stage, plan: RowsPlan) -> str:
    """Where a stage's result is: sums across rows in registers, where all that reads them is expanded."""
    if not plan.across or stage.init is None:
        return "local"
    row = plan.depth - 1
    for reader in (*stages, last):
        if not set(stage.writes) & set(reader.reads):
            continue
        kept = {it.name for it in reader.iters[row + 1 :] if reader.init is None or it.kind == "red"}
        moved = {
            v
            for ld in stmt_loads(reader.body)
            if ld.buffer in stage.writes
            for i in ld.indices
            for v in i.vars
        }
        if kept & moved:
            return "local"
    return "register"


def _rows_side_by_side(program: Program, stages: Sequence[Stage], depth: int) -> int:
    """Rows whose elements lie together where vectors along a row would find theirs apart; 0 for none.

    So are channels in blocks: what is normalised over an image has its rows' elements a block apart.
    """
    count = 0
    for stage in stages:
        if len(stage.iters) < depth or not isinstance(stage.body, Store) or len(stage.body.writes) != 1:
            return 0
        row = stage.iters[depth - 1]
        if row.kind != "par" or not row.extent.is_const or row.extent != stages[-1].iters[depth - 1].extent:
            return 0
        for ld in stmt_loads(stage.body):
            place = physical(program, ld)
            others = [it.name for it in stage.iters[depth:]]
            if ld.buffer in stage.writes or not any(name in i.vars for i in place.indices for name in others):
                continue
            run = run_length(place, row.name)
            if any(run_length(place, name) != 0 for name in others):
                return 0
            if run is not None and run >= MIN_RUN and row.extent.as_int() % run == 0 and count in (0, run):
                count = run
            else:
                return 0
    return count


def folded_at_once(stages: Sequence[Stage]) -> dict[str, str]:
    """Reductions of what a point-wise stage has just stored, each with that stage: one pass, not two."""
    found: dict[str, str] = {}
    makers = {st.writes[0]: st for st in stages if not st.is_reduction and isinstance(st.body, Store)}
    for stage in stages:
        reds = [it for it in stage.iters if it.kind == "red"]
        if len(reds) != 1 or not accumulates(stage):
            continue
        terms = stage.operands
        maker = makers.get(terms[0].buffer) if len(terms) == 1 else None
        if maker is None or maker.name in found.values() or isinstance(stage.body, If):
            continue
        along = maker.iters[-1]
        if terms[0].indices[-1] == var(reds[0].name) and along.extent == reds[0].extent:
            found[stage.name] = maker.name
    return found


def _request_rows(
    hints: dict[str, dict[str, str]], program: Program, stages: Sequence[Stage], depth: int, target: Target
) -> None:
    """Have rows that come from afar brought to the second cache level while the ones before are computed.

    Otherwise they are waited for in the first stage that reads them, which has little to do meanwhile. The
    last point-wise stage that reads a row asks for the next one.
    """
    for stage in reversed(stages):
        if stage.is_reduction or not isinstance(stage.body, Store) or len(stage.iters) < depth:
            continue
        wanted: dict[str, int] = {}
        for ld in stmt_loads(stage.body):
            b = program.buffer(ld.buffer)
            place = flat_index(program, ld.buffer, ld.indices) if b in program.inputs else None
            if place is None or b.scope == CONST or place.coefficient(stage.iters[-1].name) != 1:
                continue
            row = place.coefficient(stage.iters[depth - 1].name)
            if row > 0 and buffer_bytes(b) > KEPT_SHARE * last_cache(target):
                wanted[ld.buffer] = row * -(-MIN_AHEAD // row)
        if wanted:
            hint = ",".join(f"{name}+{further}" for name, further in wanted.items())
            hints.setdefault(stage.name, {})["prefetch"] = hint
            return


def _keep_in_place(
    hints: dict[str, dict[str, str]], program: Program, stages: Sequence[Stage], last: Stage, target: Target
) -> None:
    """Have what the last stage makes its rows of, element by element, kept in these rows themselves.

    A buffer less competes for the caches. Results that are stored past the caches are not read again.
    """
    if not isinstance(last.body, Store) or len(last.body.writes) != 1:
        return
    (w,) = last.body.writes
    result = program.buffer(w.buffer)
    if result not in program.outputs or goes_past_caches(buffer_bytes(result), target):
        return
    made = {st.writes[0]: st for st in stages if not st.is_reduction and isinstance(st.body, Store)}
    for ld in stmt_loads(last.body):
        kept = made.get(ld.buffer)
        if kept is None or ld.indices != w.indices:
            continue
        b = program.buffer(ld.buffer)
        if (b.shape, b.dtype) == (result.shape, result.dtype):
            hints.setdefault(last.name, {})["in_place"] = b.name
            return


def _rows_at_once(last: Stage, depth: int, machine: Machine) -> int:
    """Rows that are computed together: several short ones, as each stage of a row waits for the last one."""
    row, inner = last.iters[depth - 1], last.iters[depth:]
    if not all(it.extent.is_const for it in (row, *inner)):
        return 1
    if prod(it.extent.as_int() for it in inner) > SHORT_ROW * machine.target.lanes(F32):
        return 1
    count = row.extent.as_int()
    # rows of one result each: these make a vector, or half of one
    least = machine.target.lanes(F32) // 2 if all(it.extent == Index(1) for it in inner) else 1
    fits = [
        n
        for n in ROWS_AT_ONCE
        if n >= least and count % n == 0 and count // n >= machine.threads * ITERATIONS_PER_THREAD
    ]
    return max(fits, default=1)
