"""Default schedules of element-wise stages and of chains of reductions over rows (softmax, layer norm)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis import away_from_borders, flat_index, physical, run_length
from tilewright.cost import KEPT_SHARE, Machine, buffer_bytes, goes_past_caches, last_cache
from tilewright.ir import (
    CONST,
    F32,
    Binary,
    If,
    Index,
    Load,
    Program,
    Stage,
    Store,
    blocks,
    loads,
    stmt_loads,
    var,
)
from tilewright.plan.contraction.microkernel import fed_by, loops_below
from tilewright.plan.elementwise.blocked_transpose import square_of, transpose_in_squares
from tilewright.plan.elementwise.index_breaks import folds, split_by_divisors
from tilewright.plan.elementwise.readers import threads_of_reader
from tilewright.plan.fallback import fell_back
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError
from tilewright.target import Target

#: Elements below which a loop stays on one thread: less than the cost of starting the others.
MIN_PARALLEL_ELEMENTS: Final = 16_384
#: Parallel iterations wanted for each thread, so that uneven ones even out.
ITERATIONS_PER_THREAD: Final = 4
#: Vectors of an innermost loop that are worth unrolling by this factor.
UNROLL: Final = 4
#: Elements from which on squares of vectors are transposed.
MIN_TILED_ELEMENTS: Final = 1 << 10
#: Elements of an axis that lie together, from which on vectors along it pay.
MIN_RUN: Final = 4
#: Elements that a row is asked for ahead of its use, at least: while main memory answers.
MIN_AHEAD: Final = 2048
#: Vectors of a row up to which several rows are computed at once; and how many.
SHORT_ROW: Final = 16
ROWS_AT_ONCE: Final = (2, 4, 8)
#: Elements of an axis along which no operand moves, for its loop to be expanded.
CHOICES: Final = (Index(2), Index(3), Index(4))


@dataclass(frozen=True, slots=True)
class ElementwisePlan:
    """How an element-wise stage is done: vectors along the axis number ``vector`` (``None``: no vectors).

    Where its elements lie together in runs only, vectors are such ``run`` elements. With ``transpose`` an
    operand that lies across the vectors is read in squares, transposed in registers. ``share`` are the
    iterations that each of the threads should have at least.
    """

    vector: int | None = None
    run: int | None = None
    transpose: bool = True
    share: int = ITERATIONS_PER_THREAD


def default_elementwise(program: Program, stage: Stage) -> ElementwisePlan:
    """Vectors along the axis that moves most accesses by single elements."""
    found = best_vector_axis(program, stage)
    return ElementwisePlan() if found is None else ElementwisePlan(*found)


def schedule_elementwise(
    s: Schedule,
    program: Program,
    stage: Stage,
    machine: Machine,
    plan: ElementwisePlan | None = None,
) -> Schedule:
    """Parallel outer loops, the last one in vectors. Loops are those of the unscheduled program.

    Ordered loops come after the parallel ones, and before the vectors.
    """
    loops = list(s.loops(stage.name))
    if not loops:
        return s
    total = elements(stage)
    plan = default_elementwise(program, stage) if plan is None else plan
    found = None if plan.vector is None else (plan.vector, plan.run)
    if found is not None and not stage.is_reduction and found[1] is None and plan.transpose:
        square = square_of(program, stage, found[0], machine.target) if total >= MIN_TILED_ELEMENTS else None
        if square is not None:
            s, outer = transpose_in_squares(s, loops, square, stage, total, machine)
            return parallelise(s, outer, total, machine, plan.share)
    inner = "" if found is None else loops[found[0]]
    shared = threads_of_reader(s, stage)
    s, parts = split_by_divisors(s, stage, loops, inner)
    chosen = choosing_axes(stage)
    choosing = [
        loop for loop, it in zip(loops, stage.iters, strict=True) if it.name in chosen and loop != inner
    ]
    pars = [
        part
        for loop, it in zip(loops, stage.iters, strict=True)
        if it.kind == "par" and loop not in choosing
        for part in parts[loop]
    ]
    loops = [part for loop in loops for part in parts[loop]]
    if found is not None:
        vector, run = loops.index(inner), found[1]
        if run is not None:
            blocks_of, lanes = f"{inner}_block", f"{inner}_lane"
            s = s.split(inner, run, names=[blocks_of, lanes])
            loops[vector] = blocks_of
            pars = [blocks_of if loop == inner else loop for loop in pars]
            inner = lanes
        pars = [loop for loop in pars if loop != inner]
        ordered = any(it.kind == "ord" for it in stage.iters)
        # each part takes all the ordered steps: as few parts as threads
        share = 1 if ordered else plan.share
        own = own_parts(s, pars, inner, total, machine, share) if run is None else None
        if own is not None:
            # nothing else for threads to share
            part = f"{inner}_part"
            s = s.split(inner, own, names=[part, f"{inner}_own"])
            inner = f"{inner}_own"
            loops[vector : vector + 1] = [part, inner]
            pars.append(part)
        outer = [*pars, *(loop for loop in loops if loop not in pars and loop != inner)]
        if not ordered:
            outer = [loop for loop in loops if loop != inner]
            first = next((loop for loop in parts.get(shared or "", ()) if loop in pars), None)
            if first is not None:
                outer, pars = ([first, *(loop for loop in some if loop != first)] for some in (outer, pars))
            outer = [*(loop for loop in outer if loop not in choosing), *choosing]
        if [*outer, inner] != loops or run is not None:
            s = s.reorder(*outer, inner)
        for loop in choosing:
            s = s.unroll(loop)
        if run is None and own is None:
            cuts = folds(stage, stage.iters[found[0]].name)
            if cuts:
                pieces = [inner, *(f"{inner}_{n}" for n in range(1, len(cuts) + 1))]
                s = s.partition(inner, cuts, names=pieces[1:])
                for piece in pieces[1:]:
                    s = s.vectorize(piece)
        s = s.vectorize(inner)
    elif choosing:
        s = s.reorder(*(loop for loop in loops if loop not in choosing), *choosing)
        for loop in choosing:
            s = s.unroll(loop)
    return parallelise(s, pars, total, machine, plan.share)


def schedule_copy_at(s: Schedule, program: Program, stage: Stage, loop: str) -> Schedule:
    """Compute an element-wise stage where the loop ``loop`` uses it, in vectors.

    Raises ScheduleError where a primitive refuses.
    """
    s = s.compute_at(stage.name, loop, keep_storage=True)
    loops = loops_below(s, stage.name, loop)
    of = {axis: fed for fed, axis in fed_by(s, stage.name, loops).items()}
    chosen = [of[axis] for axis in choosing_axes(stage) if axis in of]
    found = best_vector_axis(program, stage)
    if found is None or stage.iters[found[0]].name not in of:
        return s
    axis, run = found
    inner = of[stage.iters[axis].name]
    if run is not None:
        s = s.split(inner, run, names=[f"{inner}_block", f"{inner}_lane"])
        loops[loops.index(inner)] = f"{inner}_block"
        inner = f"{inner}_lane"
    outer = [other for other in loops if other != inner and other not in chosen]
    s = s.reorder(*outer, *chosen, inner)
    for each in chosen:
        s = s.unroll(each)
    return s.vectorize(inner)


def choosing_axes(stage: Stage) -> frozenset[str]:
    """Short axes of the result along which no operand moves: what is read is used for all their elements.

    What a stage reads of its own result moves as that does.
    """
    if stage.is_reduction:
        return frozenset()
    others = (ld for ld in stmt_loads(stage.body) if ld.buffer not in stage.writes)
    moved = {v for ld in others for i in ld.indices for v in i.vars}
    return frozenset(
        it.name for it in stage.iters if it.kind == "par" and it.name not in moved and it.extent in CHOICES
    )


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


def schedule_rows(
    s: Schedule,
    program: Program,
    stages: Sequence[Stage],
    last: Stage,
    plan: RowsPlan,
    machine: Machine,
) -> Schedule:
    """Compute ``stages`` (producers before consumers) inside the row loop of ``last``.

    Each row then stays in the first cache level; all innermost loops become vectors.
    """
    loops, depth = list(s.loops(last.name)), plan.depth
    if depth == 0:
        return s
    row = loops[depth - 1]
    together = plan.rows
    if together > 1:
        s = s.split(row, together, names=[f"{row}_block", f"{row}_own"])
        row = loops[depth - 1] = f"{row}_block"
    for stage in reversed(stages):
        s = s.compute_at(stage.name, row)
    folded: set[str] = set()
    for reduction, producer in folded_at_once(stages).items() if together == 1 and plan.fold else ():
        loop = s.loops(producer)[-1]
        try:
            s = s.reverse_compute_at(reduction, loop).decompose_init(reduction, loop)
            folded.add(reduction)
        except ScheduleError as error:
            s = fell_back(s, f"{reduction} takes a pass of its own", error)
    if plan.across:
        s = _across_rows(s, (*stages, last), depth - 1, row)
    else:
        s = schedule_inner_rows(s, [st for st in (*stages, last) if st.name not in folded], row)
    if plan.ahead:
        s = _ask_for_next_rows(s, program, [*stages, last], depth, machine.target)
    s = _keep_in_place(s, program, stages, last, machine.target)
    rows = last.iters[depth - 1].extent
    if rows.is_const and rows.as_int() % together:
        # rows that are left over, apart
        s = s.partition(row, -1)
    total = elements(last) * (1 + len(stages))
    return parallelise(s, loops[:depth], total, machine, plan.share)


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


def _across_rows(s: Schedule, stages: Sequence[Stage], row_axis: int, within: str) -> Schedule:
    """Vectors across the rows inside the loop ``within``: each lane computes one of them.

    Sums are in registers, several of a row side by side where the program has them so.
    """
    for stage in stages:
        block = s.block(stage.name)
        own = list(s.loops(stage.name))
        below = own[own.index(within) + 1 :]
        across = next(v for v in below if v in block.bind[row_axis].vars)
        reds = {v for it, i in zip(block.iters, block.bind, strict=True) if it.kind == "red" for v in i.vars}
        rest = sorted((loop for loop in below if loop != across), key=lambda loop: loop not in reds)
        s = s.reorder(*rest, across)
        if stage.init is not None:
            s = s.decompose_init(stage.name, _first_reduction(s, stage, rest))
            *around, last = s.loops(f"{stage.name}_init")
            s = s.vectorize(last)
            for loop in (*around[around.index(within) + 1 :], *(loop for loop in rest if loop not in reds)):
                s = s.unroll(loop)
        s = s.vectorize(across)
    for stage in stages:
        if stage.init is not None:
            s = _in_registers(s, stage, within)
    return s


def _in_registers(s: Schedule, stage: Stage, within: str) -> Schedule:
    """Keep the sums of a stage in registers, where all that reads them is expanded."""
    (made,) = stage.writes
    try:
        return s.set_scope(made, "register")
    except ScheduleError as error:
        return fell_back(s, f"the sums of {stage.name} stay in memory", error)


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


def _ask_for_next_rows(
    s: Schedule, program: Program, stages: Sequence[Stage], depth: int, target: Target
) -> Schedule:
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
            return s.annotate(s.loops(stage.name)[-1], "prefetch", hint)
    return s


def _keep_in_place(
    s: Schedule, program: Program, stages: Sequence[Stage], last: Stage, target: Target
) -> Schedule:
    """Have what the last stage makes its rows of, element by element, kept in these rows themselves.

    A buffer less competes for the caches. Results that are stored past the caches are not read again.
    """
    if not isinstance(last.body, Store) or len(last.body.writes) != 1:
        return s
    (w,) = last.body.writes
    result = program.buffer(w.buffer)
    if result not in program.outputs or goes_past_caches(buffer_bytes(result), target):
        return s
    made = {st.writes[0]: st for st in stages if not st.is_reduction and isinstance(st.body, Store)}
    for ld in stmt_loads(last.body):
        kept = made.get(ld.buffer)
        if kept is None or ld.indices != w.indices:
            continue
        b = program.buffer(ld.buffer)
        if (b.shape, b.dtype) == (result.shape, result.dtype):
            return s.annotate(s.loops(last.name)[-1], "in_place", b.name)
    return s


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


def schedule_inner_rows(s: Schedule, stages: Sequence[Stage], within: str) -> Schedule:
    """Vectors for stages whose nests are inside the loop ``within``."""
    for stage in stages:
        own = list(s.loops(stage.name))
        below = own[own.index(within) + 1 :]
        if stage.init is not None:
            s = s.decompose_init(stage.name, _first_reduction(s, stage, below))
        s = _vectorize_last(s, stage, below)
    return s


def _first_reduction(s: Schedule, stage: Stage, below: list[str]) -> str:
    block = s.block(stage.name)
    reds = [b for it, b in zip(block.iters, block.bind, strict=True) if it.kind == "red"]
    return next(loop for loop in below if any(loop in b.vars for b in reds))


def accumulates(stage: Stage) -> bool:
    """Whether a stage folds one value into one place, which lanes can do apart and join at the end."""
    body = stage.body.then if isinstance(stage.body, If) else stage.body
    return isinstance(body, Store) and len(body.writes) == 1 and isinstance(body.writes[0].value, Binary)


def _vectorize_last(s: Schedule, stage: Stage, below: list[str]) -> Schedule:
    reds = [b for it, b in zip(stage.iters, s.block(stage.name).bind, strict=True) if it.kind == "red"]
    folded = {v for b in reds for v in b.vars}
    for loop in reversed(below):
        if loop in folded and not accumulates(stage):
            # an extremum with its index: lanes would all write one pair
            continue
        node = next(f for place in blocks(s.func.body) for f in place.loops if f.var == loop)
        if node.extent.is_const and node.extent.as_int() > 1:
            return s.vectorize(loop)
    return s


def elements(stage: Stage) -> int:
    """Instances of a stage; symbolic extents count as 64."""
    n = 1
    for it in stage.iters:
        n *= it.extent.as_int() if it.extent.is_const else 64
    return n


def best_vector_axis(program: Program, stage: Stage) -> tuple[int, int | None] | None:
    """The axis that moves most accesses by single elements in memory, if it is long enough.

    Its position, and how many steps do so: ``None`` for all of them, the block's size where a layout has
    blocks of the axis last.
    """
    if not isinstance(stage.body, Store):
        return None
    best: tuple[float, int, int | None] | None = None
    for n, it in enumerate(stage.iters):
        if it.kind != "par" or not it.extent.is_const or it.extent.as_int() < MIN_RUN:
            continue
        score, runs = 0.0, []
        for w in stage.body.writes:
            written = Load(w.buffer, w.indices, w.value.dtype)
            for ld, weight in ((written, 2), *((ld, 1) for ld in loads(w.value))):
                if not any(it.name in i.vars for i in ld.indices):
                    score += 0 if ld is written else 0.25
                    continue
                run = run_length(away_from_borders(physical(program, ld), it.name), it.name)
                together = run is None or run >= MIN_RUN
                score += weight if together else -weight
                if together and run is not None:
                    runs.append(run)
        run = min(runs, default=None)
        score += min(it.extent.as_int() if run is None else run, 64) / 256 + n / 1000
        if best is None or score > best[0]:
            best = (score, n, None if run == it.extent.as_int() else run)
    return best[1:] if best is not None and best[0] > 0 else None


def parallelise(
    s: Schedule, loops: list[str], total: int, machine: Machine, share: int = ITERATIONS_PER_THREAD
) -> Schedule:
    """Fuse leading loops until each thread has so many iterations to ``share``, and run them in parallel."""
    if machine.threads == 1 or not loops or total < MIN_PARALLEL_ELEMENTS:
        return s
    wanted = machine.threads * share
    extents = {
        f.var: f.extent.as_int() if f.extent.is_const else wanted
        for place in blocks(s.func.body)
        for f in place.loops
    }
    name, count = loops[0], extents[loops[0]]
    for inner in loops[1:]:
        if count >= wanted and count % machine.threads == 0:
            break
        if not _directly_inside(s, name, inner):
            break
        outer, extent = inner, extents[inner]
        parts = parts_of(count, extent, wanted, machine) if inner == loops[-1] else None
        if parts is not None:
            # runs of iterations: no division an iteration
            outer = f"{inner}_part"
            s = s.split(inner, extent // parts, names=[outer, f"{inner}_own"])
        fused = f"{name}_{outer}"[:60]
        s = s.fuse(name, outer, names=[fused])
        name, count = fused, count * (parts or extent)
    return s.parallel(name) if count > 1 else s


def own_parts(
    s: Schedule, pars: list[str], inner: str, total: int, machine: Machine, share: int
) -> int | None:
    """Elements of a thread's part of the vectors' loop, where the loops around it are too short for all."""
    extents = [s.loop(loop).extent for loop in (*pars, inner)]
    if machine.threads == 1 or total < MIN_PARALLEL_ELEMENTS or not all(e.is_const for e in extents):
        return None
    *outer, extent = (e.as_int() for e in extents)
    if prod(outer) >= machine.threads:
        return None
    parts = parts_of(prod(outer), extent, machine.threads * share, machine)
    return extent // parts if parts is not None else -(-extent // machine.threads)


def parts_of(count: int, extent: int, wanted: int, machine: Machine) -> int | None:
    """Equal parts of a loop that make enough iterations with those around it; ``None`` without a few such."""
    least = -(-wanted // count)
    fits = (p for p in range(least, min(8 * least, extent - 1) + 1) if extent % p == 0)
    return next((p for p in fits if count * p % machine.threads == 0), None)


def _directly_inside(s: Schedule, outer: str, inner: str) -> bool:
    for place in blocks(s.func.body):
        names = [f.var for f in place.loops]
        if outer in names and inner in names:
            if names.index(inner) != names.index(outer) + 1:
                return False
            a, b = place.loops[names.index(outer)], place.loops[names.index(inner)]
            return a.body is b and b.extent.is_const
    return False
