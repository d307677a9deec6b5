"""set_layout: choose where the elements of a buffer lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import Buffer, Index, LoopFunction, Span, buffers_of, find_alloc, map_buffers, var
from tilewright.schedule.common import refusal
from tilewright.schedule.footprint import Box
from tilewright.schedule.producer.nest import is_tile
from tilewright.schedule.producer.packing import packed_map
from tilewright.schedule.registry import primitive
from tilewright.support import known_names


def with_layout(buffer: Buffer, layout: Sequence[str]) -> Buffer:
    """A buffer stored as :func:`set_layout` would have it. Raises ScheduleError as that does."""
    names = [f"d{n}" for n in range(len(buffer.shape))]
    box = Box(tuple(Span(Index(0), extent) for extent in buffer.shape))
    return replace(buffer, layout=packed_map(tuple(layout), names, box))


@primitive("set_layout", phase="loop")
def set_layout(func: LoopFunction, buffer: str, layout: Sequence[str]) -> LoopFunction:
    """Store ``buffer`` as ``layout`` says, a string a physical dimension: ``("d1//32", "d0", "d1%32")``.

    Dimensions are called ``d0``, ``d1`` … Accesses stay as they are: they name logical indices. Of an
    argument it is the caller who provides the array in that layout (weights are packed at compile time, see
    ``pack_constants`` of the strategies); places that no element maps to must hold zeros. Of a tile, which
    stores a box of its buffer since ``compute_at``, the dimensions are counted from the box's origin.

    >>> from tilewright import lang
    >>> from tilewright.ir import print_function
    >>> from tilewright.schedule import Schedule
    >>> B = lang.placeholder((2, 8), name="B")
    >>> Y = lang.compute((2, 8), lambda k, j: B[k, j] * 2, name="Y")
    >>> s = Schedule(lang.program([B], [Y]))
    >>> print(print_function(s.func))
    function("main", outputs=[Y])
    B = f32[2, 8]
    Y = f32[2, 8]
    for k in range(2):
        for j in range(8):
            with block("Y"):
                k = par(0, 2, k)
                j = par(0, 8, j)
                Y[k, j] = B[k, j] * f32(2.0)
    >>> print(print_function(s.set_layout("B", ("d1//4", "d0", "d1%4")).func))
    function("main", outputs=[Y])
    B = buffer(f32[2, 8], layout=index_map([__0, __1], [__1//4, __0, __1%4], [2, 2, 4]))
    Y = f32[2, 8]
    for k in range(2):
        for j in range(8):
            with block("Y"):
                k = par(0, 2, k)
                j = par(0, 8, j)
                Y[k, j] = B[k, j] * f32(2.0)

    Raises ScheduleError for an unknown buffer, one that already has a layout, or a layout that would put two
    elements into one place.
    """
    known = buffers_of(func)
    if buffer not in known:
        raise refusal(
            func, f"there is no buffer {buffer!r}", hint=known_names(buffer, sorted(known), "the buffers")
        )
    old = known[buffer]
    if not is_tile(old):
        raise refusal(func, f"buffer {buffer!r} already has a layout: {old.layout}", buffers=[buffer])
    names = [f"d{n}" for n in range(len(old.shape))]
    if old.layout is None:
        box = Box(tuple(Span(Index(0), extent) for extent in old.shape))
    else:
        tile = zip(old.layout.dims, old.layout.exprs, old.layout.shape, strict=True)
        box = Box(tuple(Span(var(name) - at, extent) for name, at, extent in tile))
    new = replace(old, layout=packed_map(tuple(layout), names, box))

    def visit(b: Buffer) -> Buffer:
        return new if b.name == buffer else b

    if find_alloc(func.body, buffer) is not None:
        return func.with_body(map_buffers(func.body, visit))
    return replace(func, buffers=tuple(visit(b) for b in func.buffers))
