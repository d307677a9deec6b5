"""Dead stores: leaving out a nest that stores what nobody reads afterwards."""

from __future__ import annotations

from tilewright.ir import For, LoopFunction, buffers_of, find_alloc, loop_env
from tilewright.schedule.carried import conflicts
from tilewright.schedule.common import find_block, refusal
from tilewright.schedule.footprint import touches
from tilewright.schedule.producer.nest import Site, sites, without


def without_dead_store(func: LoopFunction, block: str) -> LoopFunction:
    """The function without ``block``, which writes one buffer, and without the loops around it alone.

    Raises ScheduleError where the buffer is an argument, or a block may read what is stored: one that comes
    later in the text, or one before it in a later iteration of a loop around both.
    """
    place, node = find_block(func, block)
    name = node.writes[0][0]
    storage = find_alloc(func.body, name)
    if storage is None or storage.node.buffer.alias is not None:
        raise refusal(
            func,
            f"what {block!r} stores in {name!r} is not for this function alone",
            at=[block],
            buffers=[name],
        )
    for site in sites(func):
        if site.block.name != block and name in site.reads:
            shared = _shared(place.loops, site.place.loops)[len(storage.loops) :]
            later = site.path > place.path or not any(t.buffer == name for t in touches(site.block, "r"))
            if later or _meet(func, name, node.name, site, shared, storage.loops):
                raise refusal(
                    func,
                    f"{site.block.name!r} may read what {block!r} stores in {name!r}",
                    hint="keep the store",
                    at=[block, site.block.name],
                    buffers=[name],
                )
    return func.with_body(without(func.body, frozenset((block,))))


def _shared(a: tuple[For, ...], b: tuple[For, ...]) -> tuple[For, ...]:
    """The loops around both of two places."""
    return tuple(f for f, g in zip(a, b, strict=False) if f is g)


def _meet(
    func: LoopFunction, name: str, writer: str, reader: Site, shared: tuple[For, ...], outer: tuple[For, ...]
) -> bool:
    """Whether a block before ``writer`` may meet its stores in another iteration of shared loops."""
    if not shared:
        return False
    candidates = frozenset(f.var for f in shared)
    return any(
        c.buffer == name and {c.first.name, c.second.name} == {writer, reader.block.name}
        for c in conflicts(shared[0], loop_env(outer), buffers_of(func), candidates)
    )
