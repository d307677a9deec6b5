"""What passes memory beside a contraction: results stored past the caches, what is added to them."""

from __future__ import annotations

from math import prod

from tilewright.analysis import Contraction
from tilewright.cost import buffer_bytes, goes_past_caches, second_cache
from tilewright.ir import Buffer, Program, Stage, stmt_loads
from tilewright.target import Target


def streamed_results(program: Program, target: Target) -> tuple[str, ...]:
    """The results that are best stored past the caches: those larger than the last level.

    What is stored as usual is read before it is overwritten, and of such a result next to nothing is left in
    the caches for its readers. A result that its own program reads again stays as it is.
    """
    large = {b.name for b in program.outputs if goes_past_caches(buffer_bytes(b), target)}
    return tuple(sorted(large - {name for stage in program.stages for name in stage.reads}))


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


def reads_as_much(c: Contraction, last: Stage, target: Target) -> bool:
    """Whether ``last``, which takes a contraction's results, reads as much beside them from far away.

    That one's lines, too, are best read one after the other, and nothing waits for them as stores do: tiles
    below one another touch a page a row. Zen 4, two threads, ``1.5 A B + 0.5 C``, tiles below one another
    and side by side: 16384x1024x16 12.9 and 4.4 ms, x32 15.8 and 7.1, 2048x1024x32 (of the third level) 0.97
    and 0.70; products by blocks of many rows and of one tile: 65536x256x16 10.5 and 7.4, 16384x1024x128 30.3
    and 23.6. Without ``C`` both take the same.
    """
    wide = {it.name: it.extent.as_int() for it in last.iters if it.kind == "par" and it.extent.is_const}
    moving = {name for name, extent in wide.items() if extent > 1}
    nbytes = prod(wide.values()) * c.write.value.dtype.bytes
    own = {c.write.buffer, *(ld.buffer for ld in (c.a, c.b) if ld is not None)}
    return nbytes > second_cache(target) and any(
        moving <= ld.vars for ld in stmt_loads(last.body) if ld.buffer not in own
    )
