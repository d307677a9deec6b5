"""Element-wise stages whose operands lie across the result: tiles of squares, transposed in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.analysis import flat_index, physical, run_length
from tilewright.cost import KEPT_SHARE, SWEPT_SHARE, Machine, last_cache, second_cache, walks_slowly
from tilewright.ir import Index, Program, Stage, Store, blocks, stmt_loads, var
from tilewright.schedule import Schedule
from tilewright.target import Target

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


def transpose_in_squares(
    s: Schedule, loops: list[str], square: Square, stage: Stage, elements: int, machine: Machine
) -> tuple[Schedule, list[str]]:
    """Tiles whose lines are used as a whole on both sides; squares of vectors are transposed in registers.

    ``elements`` is how many the stage computes. Returns the loops over the tiles, too.
    """
    target = machine.target
    assert isinstance(stage.body, Store)
    v, u = loops[square.vector], loops[square.across]
    lanes = target.lanes(stage.body.writes[0].value.dtype)
    others = [loop for n, loop in enumerate(loops) if n not in (square.vector, square.across, *square.before)]
    s = s.reorder(*others, u, *[loops[n] for n in square.before], v)
    for n in reversed(square.before):
        s, v = s.fuse(loops[n], v, names=[f"{loops[n]}_{v}"[:60]]), f"{loops[n]}_{v}"[:60]
    extent = s.loop(u).extent.as_int()
    side = min(lanes, extent)
    nbytes = elements * stage.body.writes[0].value.dtype.bytes
    squares = min(SQUARES if 2 * nbytes <= KEPT_SHARE * last_cache(target) else SQUARES_FAR, extent // side)
    lines = side * next((n for n in range(squares, 0, -1) if extent % (n * side) == 0), squares)
    whole = -(-s.loop(v).extent.as_int() // lanes) * lanes
    width = whole if whole <= WHOLE_VECTORS else TILE_VECTORS
    ragged = [loop for loop, size in ((u, lines), (v, width)) if s.loop(loop).extent.as_int() % size]
    s = s.split(u, [lines // side, side], names=[f"{u}_tile", f"{u}_square", f"{u}_line"])
    s = s.split(v, width, names=[f"{v}_tile", f"{v}_vector"])
    s = s.reorder(*others, f"{u}_tile", f"{v}_tile", f"{u}_square", f"{v}_vector", f"{u}_line")
    s = s.unroll(f"{u}_line").vectorize(f"{v}_vector")
    near = SWEPT_SHARE * machine.threads * second_cache(target)
    if walks_slowly(target) and near < 2 * nbytes and nbytes < last_cache(target):
        s = s.annotate(f"{v}_tile", "prefetch", f"{stage.writes[0]}+{LINES_AHEAD}:1")
    for loop in ragged:
        for copy in [f.var for place in blocks(s.func.body) for f in place.loops]:
            if copy == f"{loop}_tile" or copy.startswith(f"{loop}_tile_"):
                s = s.partition(copy, -1)
    return s, [*others, f"{u}_tile", f"{v}_tile"]
