"""set_layout: choose where the elements of a buffer lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import Alloc, Buffer, Index, LoopFunction, Span, buffers_of, locate, map_buffers
from tilewright.schedule.common import refusal
from tilewright.schedule.footprint import Box
from tilewright.schedule.producer.packing import packed_map
from tilewright.schedule.registry import primitive
from tilewright.support import suggestion


@primitive("set_layout", phase="loop")
def set_layout(func: LoopFunction, buffer: str, layout: Sequence[str]) -> LoopFunction:
    """Store ``buffer`` as ``layout`` says, a string a physical dimension: ``("d1//32", "d0", "d1%32")``.

    Dimensions are called ``d0``, ``d1`` … Accesses stay as they are: they name logical indices. Of an
    argument it is the caller who provides the array in that layout (weights are packed at compile time, see
    ``pack_constants`` of the strategies); places that no element maps to must hold zeros.

    Before and after ``set_layout(func, "B", ("d1//4", "d0", "d1%4"))``::

        arguments B: f32[8, 12]                arguments B: f32[8, 12]      # stored as f32[3, 8, 4]
        for k in 0:8:                          for k in 0:8:
            ... B[k, j] ...                        ... B[k, j] ...

    Raises ScheduleError for an unknown buffer, one that already has a layout, or a layout that would put two
    elements into one place.
    """
    known = buffers_of(func)
    if buffer not in known:
        raise refusal(func, f"there is no buffer {buffer!r}", hint=suggestion(buffer, known) or None)
    old = known[buffer]
    if old.layout is not None:
        raise refusal(func, f"buffer {buffer!r} already has a layout: {old.layout}")
    names = [f"d{n}" for n in range(len(old.shape))]
    box = Box(tuple(Span(Index(0), extent) for extent in old.shape))
    new = replace(old, layout=packed_map(tuple(layout), names, box))

    def visit(b: Buffer) -> Buffer:
        return new if b.name == buffer else b

    if any(loc.node.buffer.name == buffer for loc in locate(func.body, lambda s: isinstance(s, Alloc))):  # type: ignore[union-attr]
        return func.with_body(map_buffers(func.body, visit))
    return replace(func, buffers=tuple(visit(b) for b in func.buffers))
