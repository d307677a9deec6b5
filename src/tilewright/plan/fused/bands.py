"""Bands of rows of a chain: how many rows, and whether one nest beats a kernel for each contraction.

A band computes rows of the contractions before that its neighbours compute as well, and bands of whole rows
may leave threads unequal. Against that stand what kernels of their own cost on several threads: starting and
joining them, and lines of values that another core has written. On one thread there is nothing to gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final

from tilewright.cost import HELD_SHARE, Machine, bandwidth, line_bytes, second_cache
from tilewright.ir import Program
from tilewright.plan.algorithms.accuracy import Accuracy
from tilewright.plan.algorithms.choice import choose_winograd
from tilewright.plan.contraction.register_tiling import choose_tile, vector_width
from tilewright.plan.contraction.sharing import shared_axis, sharing
from tilewright.plan.fused.chain import Chain, Link, Window, find_chain, treats_channels_apart, window
from tilewright.target import LINE_SECONDS, Target

# The prices of what passes between cores are means of two states of the machine that they were measured on
# (decision 0052), on MobileNet-V2's kernels: what two threads take longer than half of the time of one. On
# other machines they are as much more or less as a line of another core is (`crossing`).
#: Cycles to start the threads of one more kernel and to wait for the slowest.
JOIN_CYCLES: Final = 15000.0
#: Cycles to wait for a line that another core has written, of a few short rows that are not fetched ahead.
ROW_LINE_CYCLES: Final = 75.0
#: The same where many lines next to each other are read.
LINE_CYCLES: Final = 30.0
#: The same for partial sums, which one thread reads and adds up while the others wait.
SUM_LINE_CYCLES: Final = 45.0
#: The least part of the cycles of computing that must be saved.
LEAST_GAIN: Final = 0.02
#: The largest part of them that is computed again by bands next to each other or lost as threads are unequal:
#: that is certain, while the price of a line from another core depends on where the cores are.
MOST_AGAIN: Final = 0.08
#: Bands of an image, at most: where more are needed, too little of it fits the cache.
MOST_BANDS: Final = 64


@dataclass(frozen=True, slots=True)
class Band:
    """Rows of the last result that one nest computes at a time, and the cycles that it saves.

    With several ``parts`` threads share what the last contraction sums over: each computes its part of the
    channels before, and of the sums, which are added up at the end.
    """

    rows: int
    saved: float
    parts: int = 1


def find_band(program: Program, machine: Machine) -> tuple[Chain, Band] | None:
    """The chain that a whole program is, and its bands; ``None`` for other programs.

    Both the decision to join kernels and the schedule of what was joined go by this.
    """
    chain = find_chain(program, machine.target)
    band = None if chain is None or chain.has_rows else choose_band(chain, machine)
    return None if chain is None or band is None else (chain, band)


def choose_band(chain: Chain, machine: Machine) -> Band | None:
    """The best number of rows for a chain; ``None`` where kernels of their own are as fast."""
    target = machine.target
    links = chain.links
    machine = max((sharing(link.stage, machine) for link in links), key=lambda each: each.threads)
    if machine.threads == 1 or any(_has_better_method(link, machine) for link in links):
        return None
    outer = prod(links[-1].c.extent(axis) for axis in chain.outer)
    work = [_cycles(link, target) for link in links]
    shared = sum(work) / machine.threads
    waits = crossing(machine, JOIN_CYCLES) * (len(links) - 1)
    waits += sum(_crossing(chain, pair, machine) for pair in pairwise(links))
    if outer == 1:
        # several images are computed in parts, whose values are near
        waits += _passing(links, work, machine)
    room = second_cache(target) * HELD_SHARE
    blocks = [channel_block(link, target) for link in links]
    best = _in_parts(chain, waits, room, blocks, machine)
    height = links[-1].c.extent(links[-1].axis)
    sizes = {-(-height // bands) for bands in range(1, min(height, MOST_BANDS) + 1)}
    for rows in sorted(sizes, reverse=True):
        again = _busiest(links, work, rows, outer, machine) - shared
        if _stored(links, blocks, rows, 1) > room or again > MOST_AGAIN * shared:
            continue
        saved = waits - again - _weights_again(links, rows, outer, machine)
        if best is None or saved > best.saved:
            best = Band(rows, saved)
    return best if best is not None and best.saved > LEAST_GAIN * shared else None


def crossing(machine: Machine, cycles: float) -> float:
    """Cycles of what passes between cores and took ``cycles`` where a line takes ``LINE_SECONDS``.

    In proportion to what a line of another core costs here (decision 0408).
    """
    return cycles * machine.target.line_seconds / LINE_SECONDS


def summed_axis(link: Link) -> str | None:
    """The axis along which a link sums up channels of the link before, if it is one of them alone."""
    assert link.reads is not None
    sums = [i.as_var() for i in link.reads.indices if i.vars & set(link.c.axes("k"))]
    return sums[0] if len(sums) == 1 else None


def _in_parts(
    chain: Chain, waits: float, room: float, blocks: Sequence[int], machine: Machine
) -> Band | None:
    """What is saved where threads share the channels that the last link sums up; ``None`` if they cannot."""
    *before, tail = chain.links
    outer = prod(tail.c.extent(axis) for axis in chain.outer)
    axis = summed_axis(tail)
    if axis is None or outer % machine.threads == 0 or not all(map(treats_channels_apart, before[1:])):
        return None
    if tail.c.extent(axis) % (machine.threads * max(blocks[: len(before)])):
        return None
    height = tail.c.extent(tail.axis)
    if _stored(chain.links, blocks, height, machine.threads) > room:
        return None
    dtype = tail.c.write.value.dtype
    results = prod(it.extent.as_int() for it in tail.stage.iters if it.kind == "par")
    # one thread adds them up: what it reads comes from the others
    lines = results * dtype.bytes * (machine.threads - 1) / line_bytes(machine.target)
    sums = results * (machine.threads + 1) / machine.target.lanes(dtype)
    saved = waits - lines * crossing(machine, SUM_LINE_CYCLES) - sums
    return Band(height, saved, machine.threads)


def channel_block(link: Link, target: Target) -> int:
    """Channels of a link that its reader takes at a time: as many as its register tile has."""
    return choose_tile(link.c, target).vectors * vector_width(link.c, target)


def _has_better_method(link: Link, machine: Machine) -> bool:
    """Whether Winograd's method may compute a contraction, which is a nest of its own."""
    return choose_winograd(link.program, link.stage, machine, Accuracy("f4")) is not None


def _cycles(link: Link, target: Target) -> float:
    """Cycles of all multiply-adds of a link on one thread."""
    products = prod(it.extent.as_int() for it in link.stage.iters)
    return products / (target.lanes(link.c.write.value.dtype) * target.fma_per_cycle)


def _heights(windows: Sequence[tuple[Window, int]], first: int, last: int) -> list[int]:
    """Rows that each link computes for rows ``first`` up to ``last`` of the result: those that there are."""
    out = [last - first]
    for seen, extent in reversed(windows):
        low = seen.step * first + seen.start
        first, last = max(0, low), min(extent, low + seen.step * (last - first) + seen.overlap)
        out.append(last - first)
    return out[::-1]


def _busiest(links: Sequence[Link], work: Sequence[float], rows: int, outer: int, machine: Machine) -> float:
    """Cycles of the thread with most to compute, each with bands next to each other."""
    height = links[-1].c.extent(links[-1].axis)
    price = [all_of / (outer * link.c.extent(link.axis)) for all_of, link in zip(work, links, strict=True)]
    windows = [(window(after), link.c.extent(link.axis)) for link, after in pairwise(links)]
    cycles = [
        sum(p * n for p, n in zip(price, _heights(windows, low, min(height, low + rows)), strict=True))
        for low in range(0, height, rows)
    ]
    bands = cycles * outer
    share = -(-len(bands) // machine.threads)
    return max(sum(bands[at : at + share]) for at in range(0, len(bands), share))


def _stored(links: Sequence[Link], blocks: Sequence[int], rows: int, parts: int) -> int:
    """Bytes of what lies between the links of a band, of one of so many parts of the last link's channels.

    ``blocks`` are the channels that a reader may take.
    """
    total = 0
    for (link, after), block in reversed(list(zip(pairwise(links), blocks, strict=False))):
        seen = window(after)
        rows = min(seen.step * rows + seen.overlap, link.c.extent(link.axis))
        sizes = {it.name: it.extent.as_int() for it in link.stage.iters if it.kind == "par"}
        sizes[link.axis] = rows
        if treats_channels_apart(after):
            sizes[link.c.vector] = min(sizes[link.c.vector], block)
        elif after is links[-1]:
            sizes[link.c.vector] //= parts
        total += prod(sizes.values()) * link.c.write.value.dtype.bytes
    return total


def _weights_again(links: Sequence[Link], rows: int, outer: int, machine: Machine) -> float:
    """Cycles in which all but a thread's first band read the weights again."""
    bands = -(-links[-1].c.extent(links[-1].axis) // rows) * outer
    nbytes = 0
    for link in links:
        axes = link.c.axes("n", "k", "window") + link.c.axes("batch")
        nbytes += prod(link.c.extent(a) for a in axes) * link.c.write.value.dtype.bytes
    room = second_cache(machine.target) * (1 - HELD_SHARE)
    again = -(-bands // machine.threads) - 1
    return 0.0 if nbytes <= room else again * nbytes / machine.target.level("l3").bandwidth


def _passing(links: Sequence[Link], work: Sequence[float], machine: Machine) -> float:
    """Cycles in which kernels of their own only pass values between links on, beyond their products."""
    passed = []
    for link in links[:-1]:
        sizes = [it.extent.as_int() for it in link.stage.iters if it.kind == "par"]
        share = prod(sizes) * link.c.write.value.dtype.bytes / machine.threads
        passed.append(share / bandwidth(machine, share))
    each = zip([0.0, *passed], [*passed, 0.0], work, strict=True)
    return sum(max(0.0, taken + given - cycles / machine.threads) for taken, given, cycles in each)


def _crossing(chain: Chain, pair: tuple[Link, Link], machine: Machine) -> float:
    """Cycles in which kernels of their own wait for lines of the value between two links from other cores."""
    if prod(chain.links[-1].c.extent(axis) for axis in chain.outer) > 1:
        # of several images a thread mostly reads those that it wrote
        return 0.0
    link, after = pair
    line = line_bytes(machine.target)
    sizes = {it.name: it.extent.as_int() for it in link.stage.iters if it.kind == "par"}
    nbytes = prod(sizes.values()) * link.c.write.value.dtype.bytes
    cuts = [shared_axis(each.c, choose_tile(each.c, machine.target), machine) for each in pair]
    if cuts == [link.axis, after.axis]:
        # rows at the border of two threads' parts; their short pieces are not fetched ahead
        overlap = max(0, window(after).overlap) / 2
        return overlap * nbytes / sizes[link.axis] / line * crossing(machine, ROW_LINE_CYCLES)
    return nbytes / line * (1 - 1 / machine.threads) * crossing(machine, LINE_CYCLES)
