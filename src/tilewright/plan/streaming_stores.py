"""Which results are stored past the caches: large ones that nobody reads soon."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from tilewright.analysis import Contraction
from tilewright.cost import buffer_bytes, goes_past_caches
from tilewright.ir import Buffer, For, Stmt, stmt_children, stmt_loads, stmt_writes
from tilewright.schedule import Schedule
from tilewright.target import Target


def streamed_results(s: Schedule, target: Target) -> tuple[str, ...]:
    """The results that are best stored past the caches: those larger than the last level.

    What is stored as usual is read before it is overwritten, and of such a result next to nothing is left in
    the caches for its readers. A result that its own program reads again stays as it is.
    """
    func = s.func
    outputs = [b for b in func.buffers if b.name in func.outputs]
    large = {b.name for b in outputs if goes_past_caches(buffer_bytes(b), target)}
    if not large:
        return ()
    read = {ld.buffer for ld in stmt_loads(func.body)}
    return tuple(sorted(large - read))


def store_past_caches(s: Schedule, names: Collection[str]) -> Schedule:
    """Annotate the outermost loops that write these results."""
    for loop, written in _writers(s.func.body, frozenset(names)) if names else ():
        s = s.annotate(loop, "nontemporal", ",".join(sorted(written)))
    return s


def _writers(s: Stmt, wanted: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """The outermost loops that write wanted buffers, with those."""
    if isinstance(s, For):
        names = wanted & {name for name, _ in stmt_writes(s)}
        return [(s.var, names)] if names else []
    return [found for k in stmt_children(s) for found in _writers(k, wanted)]


def is_mostly_stored(c: Contraction, result: Buffer, target: Target) -> bool:
    """Whether the ``result`` of a contraction goes past the caches and takes longer there than to compute.

    Memory wants its lines one after the other: 65536x1024x4 5.88 -> 3.47 ms (Zen 5; storing alone 3.4 to
    3.7), 16384x4096x4 4.07 -> 3.50; 64 and 128 steps were 7% slower so. Rows that are not whole vectors, some
    of which are stored as usual, 1.74 -> 1.89 (32768x1000x4).
    """
    if c.extent(c.vector) * result.dtype.bytes * 8 % target.vector_bits:
        return False
    steps = prod(c.extent(a) for a in c.axes("k", "window"))
    waits = steps / target.fma_per_cycle < target.vector_bits / 8 / target.memory[-1].bandwidth
    return waits and goes_past_caches(buffer_bytes(result), target)
