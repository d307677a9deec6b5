"""Channels of pictures: interleaved, they are no axis for lanes; rows of columns and channels in one are.

::

    blur[y, x, c] = … image[y, x - 1, c]          ->     blur[y, x_c] = … image[y, x_c//3 - 1, x_c%3]

What moves by columns moves by three elements in memory then, clamped or not, and lanes lie together.
"""

from __future__ import annotations

from typing import Final

from tilewright.analysis import extent_of
from tilewright.ir import ZERO, Program, Stage, Store
from tilewright.schedule import Schedule
from tilewright.target import Target

#: Channels of a picture, at most: grey, two, three, and one for transparency.
MOST_CHANNELS: Final = 4


def join_channels(s: Schedule, on: Target) -> Schedule:
    """The program in which columns and channels are one axis, and one dimension of what is kept between.

    Arguments stay as they are.
    """
    for stage in s.require_program().stages:
        program = s.require_program()
        if not _has_channels(program, stage, on):
            continue
        *_, columns, channels = program.stage(stage.name).iters
        (made,) = stage.writes
        if made in {b.name for b in program.temps}:
            s = s.layout_fuse(made, len(program.buffer(made).shape) - 2, 2)
        else:
            s = s.fuse_iterators(stage.name, columns.name, channels.name)
    return s


def has_rows(stage: Stage, on: Target) -> bool:
    """Whether a stage has rows as pictures have: of many columns, unlike what networks make of theirs."""
    extents = [extent_of(it.extent) for it in stage.iters if it.kind == "par"]
    long = [n for n in extents[-2:] if n > MOST_CHANNELS]
    return bool(long) and long[-1] >= on.vector_bits // 8


def _has_channels(program: Program, stage: Stage, on: Target) -> bool:
    """Whether a stage makes pictures, interleaved, element by element, of no sums and for none."""
    its, body = stage.iters, stage.body
    if len(its) < 3 or not isinstance(body, Store) or len(body.writes) != 1:
        return False
    if any(it.kind != "par" or it.lo != ZERO for it in its) or not its[-1].extent.is_const:
        return False
    (write,) = body.writes
    if not 0 < its[-1].extent.as_int() <= MOST_CHANNELS or not has_rows(stage, on):
        return False
    if [i.as_var() for i in write.indices] != [it.name for it in its]:
        return False
    buffer, readers = program.buffer(write.buffer), program.consumers(write.buffer)
    if buffer.layout is not None or buffer.halo is not None:
        return False
    if tuple(it.extent for it in its) != buffer.shape:
        return False
    # what sums for each element, or adds the elements up, has a rule of its own, which knows these axes
    alike = [name for name in stage.reads if program.buffer(name).shape == buffer.shape]
    near = [*readers, *(p for name in alike for p in program.producers(name))]
    return len(program.producers(write.buffer)) == 1 and not any(p.is_reduction for p in near)
