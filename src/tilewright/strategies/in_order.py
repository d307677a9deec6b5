"""Results computed in blocks of channels, put in order part by part where they are made.

A result that must be plain is computed in blocks of a temporary buffer (``layouts.through_blocks``). Copied
at the end, that buffer makes the way to the caches and back, and threads copy what others have written. So
each part of the contraction's nest is copied as soon as it is there::

    parallel for (batch, rows, panels of channels):
        for tiles: y_blocks[...] = ...            # the micro-kernel; a part that stays in the first caches
        y[c, h, w] = y_blocks[h, w, c]            # squares transposed in registers
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.ir import Program, Stage, Store, stmt_loads
from tilewright.schedule import Schedule
from tilewright.strategies.readers import reads_in_place
from tilewright.target import Target

#: Part of the second cache level that a part of the result may take.
PART: Final = 0.125
#: Elements along the vectors of a tile of the copy.
COPIED: Final = 64
#: Parts for each thread from which on a remainder does not matter.
BALANCED_PARTS: Final = 16


@dataclass(frozen=True, slots=True)
class InOrder:
    """The stage ``copy`` puts in order what ``last`` stores, dimension ``channel`` in blocks of ``size``."""

    copy: Stage
    last: Stage
    source: str
    channel: int
    size: int


def find_in_order(program: Program, copy: Stage) -> InOrder | None:
    """What ``copy`` puts in order, if it does nothing else, and all of a blocked buffer."""
    if copy.is_reduction or not isinstance(copy.body, Store) or len(copy.body.writes) != 1:
        return None
    read = stmt_loads(copy.body)
    write = copy.body.writes[0]
    if len(read) != 1 or write.value != read[0] or not reads_in_place(copy, read[0].buffer):
        return None
    if [i.as_var() for i in write.indices] != [it.name for it in copy.iters]:
        return None
    source = read[0].buffer
    makers = program.producers(source)
    if len(makers) != 1 or program.consumers(source) != (copy,) or program.buffer(write.buffer).layout:
        return None
    layout = program.buffer(source).layout
    if source not in {t.name for t in program.temps} or layout is None or len(layout.exprs) < 2:
        return None
    size = layout.shape[-1]
    split = [n for n, d in enumerate(layout.dims) if d in layout.exprs[-1].vars]
    if len(split) != 1 or len(layout.exprs) != len(layout.dims) + 1 or not size.is_const:
        return None
    return InOrder(copy, makers[0], source, split[0], size.as_int())


def part_loop(
    s: Schedule, o: InOrder, outer: tuple[str, ...], shared: bool, threads: int, target: Target
) -> str | None:
    """The outermost of the loops around the tiles whose iterations make parts that are small enough."""
    buffer = s.buffers()[o.source]
    size = prod(e.as_int() for e in buffer.physical_shape) * buffer.dtype.bytes
    count = 1
    for loop in outer:
        count *= s.loop(loop).extent.as_int()
        balanced = shared or count % threads == 0 or count >= BALANCED_PARTS * threads
        if balanced and size <= count * PART * (target.level("l2").size or 0):
            return loop
    return None


def shares_lines(o: InOrder, axis: int, threads: int, target: Target) -> bool:
    """Whether threads that take equal parts of a dimension would write to the same lines of every channel."""
    assert isinstance(o.copy.body, Store)
    elements = prod(it.extent.as_int() for it in o.copy.iters[axis:])
    part = elements // threads * o.copy.body.writes[0].value.dtype.bytes
    return axis > o.channel and part % target.level("l2").line != 0


def keep_part(s: Schedule, o: InOrder, loop: str) -> Schedule:
    """Keep what one iteration of ``loop`` makes in a buffer of its own, blocked alike. The copy is there."""
    dims = [f"d{n}" for n in range(len(o.copy.iters))]
    layout = [f"{d}//{o.size}" if n == o.channel else d for n, d in enumerate(dims)]
    layout.append(f"d{o.channel}%{o.size}")
    return s.stage(o.source, at=loop, mode="write", name=f"{o.source}_part", layout=layout, keep=False)


def transpose_parts(s: Schedule, o: InOrder) -> Schedule:
    """Squares of vectors in all copies of the copying nest: transposed in registers.

    Raises ScheduleError where a primitive refuses a step.
    """
    for name in [name for name in s.blocks() if s.block(name).stage == o.copy.name]:
        loops = s.loops(name)[-len(o.copy.iters) :]
        before, channel, plane = loops[: o.channel], loops[o.channel], list(loops[o.channel + 1 :])
        whole = f"{name}_plane"
        for inner in plane[1:]:
            s, plane[0] = s.fuse(plane[0], inner, names=[whole]), whole
        line, square = f"{channel}_line", f"{channel}_square"
        s = s.split(channel, o.size, names=[square, line])
        places, tile, vector = plane[0], f"{plane[0]}_tile", f"{plane[0]}_vector"
        extent = s.loop(places).extent.as_int()
        if extent <= COPIED:
            s = s.reorder(*before, square, places, line).unroll(line).vectorize(places)
            continue
        s = s.split(places, COPIED, names=[tile, vector]).reorder(*before, square, tile, vector, line)
        s = s.unroll(line).vectorize(vector)
        s = s.partition(tile, -1) if extent % COPIED else s
    return s
