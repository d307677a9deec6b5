"""Default schedules of element-wise stages and of chains of reductions over rows (softmax, layer norm)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.ir import Binary, If, Iter, Program, Stage, Store, blocks, loads
from tilewright.schedule import Schedule
from tilewright.strategies.roles import run_length
from tilewright.target import Target

#: Elements below which a loop stays on one thread: less than the cost of starting the others.
MIN_PARALLEL_ELEMENTS: Final = 16_384
#: Parallel iterations wanted for each thread, so that uneven ones even out.
ITERATIONS_PER_THREAD: Final = 4
#: Vectors of an innermost loop that are worth unrolling by this factor.
UNROLL: Final = 4
#: Elements from which on it matters that operands lie across vectors: less fits into the first cache level.
MIN_TILED_ELEMENTS: Final = 1 << 14
#: Elements of a tile along the operand's lines, and along the vectors.
LINE: Final = 32
TILE_VECTORS: Final = 64


def schedule_elementwise(
    s: Schedule, program: Program, stage: Stage, target: Target, threads: int
) -> Schedule:
    """Parallel outer loops, the last one in vectors. Loops are those of the unscheduled program."""
    loops = list(s.loops(stage.name))
    if not loops or any(it.kind == "ord" for it in stage.iters):
        return s
    total = elements(stage)
    vector = best_vector_axis(stage, target)
    pars = [loop for loop, it in zip(loops, stage.iters, strict=True) if it.kind == "par"]
    if vector is not None:
        inner = loops[vector]
        outer = [loop for loop in loops if loop != inner]
        across = across_axis(program, stage, vector)
        if across is not None and not stage.is_reduction:
            return _tiled(s, loops, vector, *across, total, threads)
        if inner != loops[-1]:
            s = s.reorder(*outer, inner)
        s = s.vectorize(inner)
        pars = [loop for loop in pars if loop != inner]
    return parallelise(s, pars, total, threads)


def across_axis(program: Program, stage: Stage, vector: int) -> tuple[int, str] | None:
    """The position of the axis along which an operand lies together that vectors must gather from; its name.

    ``None`` where there is no such operand, it is small, or one of both axes is short.
    """
    v = stage.iters[vector]
    if not isinstance(stage.body, Store) or elements(stage) < MIN_TILED_ELEMENTS:
        return None
    for w in stage.body.writes:
        for ld in loads(w.value):
            if run_length(ld, v.name) != 0 or not any(v.name in i.vars for i in ld.indices):
                continue
            for n, it in enumerate(stage.iters):
                together = n != vector and it.kind == "par" and run_length(ld, it.name) is None
                if together and _long(it) and _long(v):
                    return n, ld.buffer
    return None


def _long(it: Iter) -> bool:
    return it.extent.is_const and it.extent.as_int() >= LINE


def _tiled(
    s: Schedule, loops: list[str], vector: int, across: int, operand: str, total: int, threads: int
) -> Schedule:
    """Tiles whose lines are used as a whole on both sides, vectors along one side.

    A tile is copied first: its lines may all fall into one set of the cache where they are.
    """
    v, u = loops[vector], loops[across]
    others = [loop for loop in loops if loop not in (v, u)]
    ragged = s.loop(v).extent.as_int() % TILE_VECTORS != 0
    s = s.split(u, LINE, names=[f"{u}_tile", f"{u}_line"])
    s = s.split(v, TILE_VECTORS, names=[f"{v}_tile", f"{v}_vector"])
    s = s.reorder(*others, f"{u}_tile", f"{v}_tile", f"{u}_line", f"{v}_vector").vectorize(f"{v}_vector")
    copy = f"{operand}_tile"
    s = s.stage(operand, at=f"{v}_tile", name=copy)
    s = s.vectorize(s.loops(copy)[-1])
    if ragged:
        s = s.partition(f"{v}_tile", -1)
    return parallelise(s, [*others, f"{u}_tile"], total, threads)


def schedule_rows(
    s: Schedule, stages: list[Stage], last: Stage, depth: int, target: Target, threads: int
) -> Schedule:
    """Compute ``stages`` (producers before consumers) inside loop number ``depth - 1`` of ``last``.

    Each row then stays in the first cache level; all innermost loops become vectors.
    """
    loops = list(s.loops(last.name))
    if depth == 0:
        return s
    row = loops[depth - 1]
    for stage in reversed(stages):
        s = s.compute_at(stage.name, row)
    s = schedule_inner_rows(s, [*stages, last], row)
    total = elements(last) * (1 + len(stages))
    return parallelise(s, loops[:depth], total, threads)


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


def _accumulates(stage: Stage) -> bool:
    """Whether a stage folds one value into one place, which lanes can do apart and join at the end."""
    body = stage.body.then if isinstance(stage.body, If) else stage.body
    return isinstance(body, Store) and len(body.writes) == 1 and isinstance(body.writes[0].value, Binary)


def _vectorize_last(s: Schedule, stage: Stage, below: list[str]) -> Schedule:
    reds = [b for it, b in zip(stage.iters, s.block(stage.name).bind, strict=True) if it.kind == "red"]
    folded = {v for b in reds for v in b.vars}
    for loop in reversed(below):
        if loop in folded and not _accumulates(stage):
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


def best_vector_axis(stage: Stage, target: Target) -> int | None:
    """The position of the axis that moves most accesses by single elements, if it is long enough."""
    if not isinstance(stage.body, Store):
        return None
    best: tuple[float, int] | None = None
    for n, it in enumerate(stage.iters):
        if it.kind != "par" or not it.extent.is_const or it.extent.as_int() < 4:
            continue
        score = 0.0
        for w in stage.body.writes:
            if w.indices and w.indices[-1].coefficient(it.name) == 1:
                score += 2
            elif any(it.name in i.vars for i in w.indices):
                score -= 2
            for ld in loads(w.value):
                if not any(it.name in i.vars for i in ld.indices):
                    score += 0.25
                elif run_length(ld, it.name) != 0:
                    score += 1
                else:
                    score -= 1
        score += min(it.extent.as_int(), 64) / 256 + n / 1000
        if best is None or score > best[0]:
            best = (score, n)
    return best[1] if best is not None and best[0] > 0 else None


def parallelise(s: Schedule, loops: list[str], total: int, threads: int) -> Schedule:
    """Fuse leading loops until there are enough iterations for all threads, and run them in parallel."""
    if threads == 1 or not loops or total < MIN_PARALLEL_ELEMENTS:
        return s
    wanted = threads * ITERATIONS_PER_THREAD
    extents = {
        f.var: f.extent.as_int() if f.extent.is_const else wanted
        for place in blocks(s.func.body)
        for f in place.loops
    }
    name, count = loops[0], extents[loops[0]]
    for inner in loops[1:]:
        if count >= wanted and count % threads == 0:
            break
        if not _directly_inside(s, name, inner):
            break
        fused = f"{name}_{inner}"[:60]
        s = s.fuse(name, inner, names=[fused])
        name, count = fused, count * extents[inner]
    return s.parallel(name) if count > 1 else s


def _directly_inside(s: Schedule, outer: str, inner: str) -> bool:
    for place in blocks(s.func.body):
        names = [f.var for f in place.loops]
        if outer in names and inner in names:
            if names.index(inner) != names.index(outer) + 1:
                return False
            a, b = place.loops[names.index(outer)], place.loops[names.index(inner)]
            return a.body is b and b.extent.is_const
    return False
