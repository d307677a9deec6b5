"""Channels of pictures: interleaved, they are no axis for lanes; rows of columns and channels in one are.

::

    blur[y, x, c] = … image[y, x - 1, c]          ->     blur[y, x_c] = … image[y, x_c//3 - 1, x_c%3]

What moves by columns moves by three elements in memory then, clamped or not, and lanes lie together.
"""

from __future__ import annotations

from typing import Final

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
        if not _has_channels(program, stage, on.vector_bits // 8):
            continue
        *_, columns, channels = program.stage(stage.name).iters
        (made,) = stage.writes
        if made in {b.name for b in program.temps}:
            s = s.layout_fuse(made, len(program.buffer(made).shape) - 2, 2)
        else:
            s = s.fuse_iterators(stage.name, columns.name, channels.name)
    return s


def _has_channels(program: Program, stage: Stage, bytes_of_vector: int) -> bool:
    """Whether a stage makes pictures, interleaved, element by element, and neither it nor its readers add up.

    Pictures have many columns: others are what networks make of theirs.
    """
    its, body = stage.iters, stage.body
    if len(its) < 3 or not isinstance(body, Store) or len(body.writes) != 1:
        return False
    if any(it.kind != "par" or it.lo != ZERO or not it.extent.is_const for it in its):
        return False
    (write,), columns, channels = body.writes, its[-2].extent.as_int(), its[-1].extent.as_int()
    if channels > MOST_CHANNELS or columns < bytes_of_vector:
        return False
    if [i.as_var() for i in write.indices] != [it.name for it in its]:
        return False
    buffer, readers = program.buffer(write.buffer), program.consumers(write.buffer)
    if buffer.layout is not None or buffer.halo is not None:
        return False
    if tuple(it.extent for it in its) != buffer.shape:
        return False
    near = [*readers, *(p for name in stage.reads for p in program.producers(name))]
    return len(program.producers(write.buffer)) == 1 and not any(p.is_reduction for p in near)
