"""Element-wise stages whose operands lie across the result: tiles of squares, transposed in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis import flat_index, physical, run_length
from tilewright.cost import KEPT_SHARE, SWEPT_SHARE, Machine, last_cache, second_cache, walks_slowly
from tilewright.ir import Index, Program, Stage, Store, stmt_loads, var
from tilewright.plan.threads import share_steps
from tilewright.target import Target
from tilewright.tiling import Body, Cut, Leaf, Step, chain, shared_chain

#: Elements of an axis, and distance of lanes, from which on that pays.
SHORTEST: Final = 8
#: Squares of a tile along the operand's lines, where the last cache level keeps all, and elsewhere; elements
#: along the vectors. Zen 5, us, 4 and 64, 2 and 32, 4 and 32: 700x700 30.6, 28.9, 31.1; 960x960 46.0, 41.7,
#: 47.8; 1000x1000 49.9, 47.2, 52.4; 1500x1500 136, 123, 124; 4096x4096 3580, 3310, 3020.
SQUARES, SQUARES_FAR, TILE_VECTORS = 2, 4, 32
#: Elements along the vectors up to which a tile has all of them (16x64x56x56 to channels last 0.43 ms, in
#: halves 0.52).
WHOLE_VECTORS: Final = 64
#: Elements of the result that are asked for ahead along its lines, where the target wants that.
LINES_AHEAD: Final = 64


@dataclass(frozen=True, slots=True)
class Square:
    """Vectors run along the axis ``vector`` of the result, an operand lies together along another one.

    ``before`` are positions of axes that continue the vectors' one, outermost first; ``across`` is that of
    the operand's axis, along which it has runs of ``run`` elements.
    """

    vector: int
    before: tuple[int, ...]
    across: int
    run: int


def square_of(program: Program, stage: Stage, vector: int, target: Target) -> Square | None:
    """How vectors along axis ``vector`` would read an operand across; ``None`` where none does.

    Short axes do not count.
    """
    v = stage.iters[vector]
    if not isinstance(stage.body, Store):
        return None
    lanes = target.lanes(stage.body.writes[0].value.dtype)
    places = [flat_index(program, w.buffer, w.indices) for w in stage.body.writes]
    places += [flat_index(program, ld.buffer, ld.indices) for ld in stmt_loads(stage.body)]
    if any(place is None for place in places):
        return None
    linear = [place for place in places if place is not None]
    before: list[int] = []
    length = v.extent.as_int()
    for n in range(vector - 1, -1, -1):
        it = stage.iters[n]
        alike = all(i.coefficient(it.name) == length * i.coefficient(v.name) for i in linear)
        if it.kind != "par" or not it.extent.is_const or not alike or not _alone(it.name, linear):
            break
        before.insert(0, n)
        length *= it.extent.as_int()
    if length < SHORTEST or not _alone(v.name, linear):
        return None
    for ld in stmt_loads(stage.body):
        moved = physical(program, ld)
        place = flat_index(program, ld.buffer, ld.indices)
        if place is None or abs(place.coefficient(v.name)) < SHORTEST:
            continue
        for n, it in enumerate(stage.iters):
            if n == vector or n in before or it.kind != "par" or not it.extent.is_const:
                continue
            run = run_length(moved, it.name)
            run = it.extent.as_int() if run is None else min(run, it.extent.as_int())
            if run >= SHORTEST and (run == it.extent.as_int() or run % lanes == 0):
                return Square(vector, tuple(before), n, run)
    return None


def _alone(name: str, places: Sequence[Index]) -> bool:
    """Whether an axis enters all places as a multiple of itself alone."""
    return not any(name in (i - var(name) * i.coefficient(name)).vars for i in places)


def blocked_transpose(stage: Stage, square: Square, total: int, machine: Machine, share: int) -> Body:
    """Tiles whose lines are used as a whole on both sides; blocks of vectors are transposed in registers.

    ``total`` is how many elements the stage computes, ``share`` the iterations that each thread should have.
    """
    target = machine.target
    assert isinstance(stage.body, Store)
    names = [it.name for it in stage.iters]
    count = {it.name: it.extent.as_int() for it in stage.iters}
    element = stage.body.writes[0].value.dtype
    lanes, nbytes = target.lanes(element), total * element.bytes
    along = [*(names[n] for n in square.before), names[square.vector]]
    u, v = names[square.across], "*".join(along)
    across, length = count[u], prod(count[a] for a in along)
    side = min(lanes, across)
    squares = min(SQUARES if 2 * nbytes <= KEPT_SHARE * last_cache(target) else SQUARES_FAR, across // side)
    lines = side * next((n for n in range(squares, 0, -1) if across % (n * side) == 0), squares)
    whole = -(-length // lanes) * lanes
    width = whole if whole <= WHOLE_VECTORS else TILE_VECTORS
    near = SWEPT_SHARE * machine.threads * second_cache(target)
    hints: dict[str, str] = {}
    if walks_slowly(target) and near < 2 * nbytes and nbytes < last_cache(target):
        hints = {"prefetch": f"{stage.writes[0]}+{LINES_AHEAD}:1"}
    # partial tiles have the blocks of whole ones, with conditions
    lane = [Step(v, 1, "vector"), Step(u, 1, "unroll")]
    inside = chain([Step(u, side, tail="guard"), *lane], Leaf(stage.name))
    others = [Step(a, 1, count=count[a]) for a in names if a != u and a not in along]
    rows = Step(u, lines, count=-(-across // lines))
    columns = Step(v, width, count=-(-length // width), hints=hints)

    def cut(step: Step, extent: int, body: Body) -> Body:
        """The loop, with what its tiles do not divide in a part of its own."""
        end = extent // step.size * step.size
        tiles = chain([step], body)
        return Cut(step.axis, (end,), (tiles, tiles)) if 0 < end < extent else tiles

    if across % lines == 0 and length % width == 0:
        steps, shared = share_steps([*others, rows, columns], total, machine, share)
        return shared_chain(steps, shared, inside)
    # threads share the loops that nest perfectly, of cut rows those of the first part
    body = cut(columns, length, inside) if length % width else chain([columns], inside)
    nested = [*others, *([] if across % lines else [rows])]
    if nested:
        steps, shared = share_steps(nested, total, machine, share, parts=False)
        return shared_chain(steps, shared, cut(rows, across, body) if across % lines else body)
    free = [Step(u, lines, count=across // lines), *([] if length % width else [columns])]
    steps, shared = share_steps(free, total, machine, share)
    first = shared_chain(steps, shared, body if length % width else inside)
    rest = chain([rows], body)
    end = across // lines * lines
    return Cut(u, (end,), (first, rest)) if end else rest
