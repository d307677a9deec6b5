"""Plans of element-wise stages: along which axis vectors run, and what is known of a stage by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tilewright.analysis import flat_index, inside, period, physical, run_length
from tilewright.ir import Binary, If, Index, Load, Program, Stage, Store, iter_env, loads, stmt_loads
from tilewright.plan.threads import ITERATIONS_PER_THREAD

#: Elements from which on squares of vectors are transposed.
MIN_TILED_ELEMENTS: Final = 1 << 10
#: Elements of an axis that lie together, from which on vectors along it pay.
MIN_RUN: Final = 4
#: Steps after which a load repeats its way, and elements from step to step, up to which code picks lanes from
#: whole vectors.
MOST_PHASES: Final = 12
MOST_APART: Final = 4
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


def accumulates(stage: Stage) -> bool:
    """Whether a stage folds one value into one place, which lanes can do apart and join at the end."""
    body = stage.body.then if isinstance(stage.body, If) else stage.body
    return isinstance(body, Store) and len(body.writes) == 1 and isinstance(body.writes[0].value, Binary)


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
    env = iter_env(stage.iters)
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
                away = tuple(inside(i, it.name, env) for i in ld.indices)
                place = flat_index(program, ld.buffer, away)
                steps = None if place is None else period(place, it.name)
                run = run_length(physical(program, replace(ld, indices=away)), it.name)
                if steps == (1, 1):
                    run = None
                together = run is None or run >= MIN_RUN
                picked = steps is not None and (1 < steps[0] <= MOST_PHASES or 1 < steps[1] <= MOST_APART)
                score += weight if together else 0 if picked and ld is not written else -weight
                if together and run is not None:
                    runs.append(run)
        run = min(runs, default=None)
        score += min(it.extent.as_int() if run is None else run, 64) / 256 + n / 1000
        if best is None or score > best[0]:
            best = (score, n, None if run == it.extent.as_int() else run)
    return best[1:] if best is not None and best[0] > 0 else None
