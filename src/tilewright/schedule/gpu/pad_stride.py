"""pad_stride: rows of a tile further apart than they are long, so that columns lie in different banks."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import IndexMap, LoopFunction, identity_map
from tilewright.schedule.common import refusal
from tilewright.schedule.gpu.tiles import allocated, with_storage
from tilewright.schedule.registry import primitive


@primitive("pad_stride", phase="loop")
def pad_stride(func: LoopFunction, buffer: str, elements: int) -> LoopFunction:
    """Leave ``elements`` places free after every row of an allocated ``buffer``; nothing is stored there.

    Rows of 32 four-byte elements put each column into one bank of shared memory: threads that read a column
    take turns. With rows one element longer neighbours of a column are in neighbouring banks.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((8, 4), name="X")
    >>> Y = lang.compute((4, 8), lambda i, j: X[j, i] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y])).cache("X", scope="shared", name="T")
    >>> print(s)
    func main:
        alloc T: f32[8, 4] shared
        for T_j in 0:8:
            for T_i in 0:4:
                block T(par j=T_j, par i=T_i):
                    T[j, i] = X[j, i]
        for i in 0:4:
            for j in 0:8:
                block Y(par i=i, par j=j):
                    Y[i, j] = (T[j, i] * f32(2.0))
    >>> print(s.pad_stride("T", 1))
    func main:
        alloc T: f32[8, 5] shared
        for T_j in 0:8:
            for T_i in 0:4:
                block T(par j=T_j, par i=T_i):
                    T[j, i] = X[j, i]
        for i in 0:4:
            for j in 0:8:
                block Y(par i=i, par j=j):
                    Y[i, j] = (T[j, i] * f32(2.0))

    Raises ScheduleError for arguments, buffers of one dimension, and fewer than one element.
    """
    buf = allocated(func, buffer)
    if elements < 1:
        raise refusal(
            func, f"rows cannot be {elements} elements longer", hint="give 1 or more", buffers=[buffer]
        )
    if len(buf.physical_shape) < 2:
        raise refusal(
            func,
            f"{buffer!r} has one dimension: there are no rows to keep apart",
            hint="pad tiles of two dimensions or more",
            buffers=[buffer],
        )
    layout = buf.layout or identity_map(buf.shape)
    shape = (*layout.shape[:-1], layout.shape[-1] + elements)
    return with_storage(func, replace(buf, layout=IndexMap(layout.dims, layout.exprs, shape)))
