"""Stages that change one buffer: they move together, and which instances of theirs a part of it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir import ZERO, Block, Buffer, Load, Span, var, walk_index
from tilewright.schedule.footprint import Box, touches
from tilewright.schedule.producer.nest import Site, Unsolvable


def group_of(all_sites: Sequence[Site], stage: str) -> tuple[list[Site], frozenset[str]]:
    """The blocks of all stages that write what ``stage`` writes, in order, and the buffers they write."""
    stages, made = {stage}, frozenset[str]()
    while True:
        group = [s for s in all_sites if s.block.stage in stages]
        made = frozenset(name for s in group for name in s.writes)
        more = {s.block.stage for s in all_sites if not made.isdisjoint(s.writes)}
        if more <= stages:
            return group, made
        stages |= more


def cut(block: Block, boxes: Mapping[str, Box], declared: Mapping[str, Buffer]) -> dict[str, Span]:
    """Ranges of the parallel iterators whose instances make the given boxes of buffers changed in order.

    Where a box is a part of a dimension, all accesses of the block to the buffer stand there at one parallel
    iterator plus a constant, the same one: instances of other values of it neither write the box nor read it.
    Raises :class:`Unsolvable` otherwise.
    """
    kinds = {it.name: it.kind for it in block.iters}
    ranges = [*block.bind, *(x for it in block.iters for x in (it.lo, it.hi))]
    if any(isinstance(e, Load) and e.buffer in declared for x in ranges for e in walk_index(x)):
        raise Unsolvable(f"the domain of {block.name!r} depends on what it changes")
    out: dict[str, Span] = {}
    touched = [t for t in touches(block) if t.buffer in declared]
    whole = {t.buffer for t in touched if t.buffer not in boxes}
    for name in sorted({t.buffer for t in touched} - whole):
        for d, (s, size) in enumerate(zip(boxes[name].spans, declared[name].shape, strict=True)):
            if s.lo == ZERO and s.extent == size:
                continue
            places = {t.indices[d] for t in touched if t.buffer == name}
            x = next(iter(places))
            it = next(iter(x.vars)) if len(x.vars) == 1 else ""
            plain = it and len(places) == 1 and x == var(it) + x.const and kinds.get(it) == "par"
            if not plain or any(t.extents is not None for t in touched):
                raise Unsolvable(
                    f"{block.name!r} changes {name!r} in order, and in dimension {d}, of which a part is"
                    f" needed ({s.lo}, +{s.extent}), it stands at {', '.join(sorted(map(str, places)))},"
                    " not at one parallel iterator"
                )
            new = Span(s.lo - x.const, s.extent)
            if out.setdefault(it, new) != new:
                raise Unsolvable(f"{block.name!r} indexes two dimensions of {name!r} by {it!r}")
    return {} if whole else out
