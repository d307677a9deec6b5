"""Sharing loops between threads: how many iterations there must be, which loops become one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tilewright.cost import Machine
from tilewright.tiling import Step

#: Parallel iterations for each thread from which on a remainder does not matter.
BALANCED_ITERATIONS: Final = 16
#: Elements below which a loop stays on one thread: less than the cost of starting the others.
MIN_PARALLEL_ELEMENTS: Final = 16_384
#: Parallel iterations wanted for each thread, so that uneven ones even out.
ITERATIONS_PER_THREAD: Final = 4


def is_balanced(iterations: int, threads: int) -> bool:
    """Whether threads have about as many of parallel iterations each."""
    return iterations % threads == 0 or iterations >= BALANCED_ITERATIONS * threads


def parts_of(count: int, extent: int, wanted: int, machine: Machine) -> int | None:
    """Equal parts of a loop that make enough iterations with those around it; ``None`` without a few such."""
    least = -(-wanted // count)
    fits = (p for p in range(least, min(8 * least, extent - 1) + 1) if extent % p == 0)
    return next((p for p in fits if count * p % machine.threads == 0), None)


def share_steps(
    steps: Sequence[Step],
    total: int,
    machine: Machine,
    share: int = ITERATIONS_PER_THREAD,
    *,
    parts: bool = True,
) -> tuple[list[Step], int]:
    """The loops that threads should share as one: the steps, and how many of the first ones; 0: none.

    As many as give each thread ``share`` iterations of ``total`` elements' work. The last one may be cut in
    ``parts``: runs of iterations, no division an iteration. A loop of 0 iterations has a symbolic extent:
    it is taken for long enough, and for no inner part of a fused loop.
    """
    found = list(steps)
    if machine.threads == 1 or not found or total < MIN_PARALLEL_ELEMENTS:
        return found, 0
    wanted, count, n = machine.threads * share, 0, 1
    count = found[0].count or wanted
    while n < len(found) and found[n].count and not (count >= wanted and count % machine.threads == 0):
        step, cut = found[n], None
        if parts and n == len(found) - 1:
            cut = parts_of(count, step.count, wanted, machine)
        if cut is not None:
            own = step.count // cut
            found[n : n + 1] = [Step(step.axis, step.size * own, count=cut), step]
            step.count = own
            return found, n + 1 if count * cut > 1 else 0
        count, n = count * step.count, n + 1
    return found, n if count > 1 else 0


def own_part(
    counts: Sequence[int], extent: int, total: int, machine: Machine, share: int = ITERATIONS_PER_THREAD
) -> int | None:
    """Elements of a thread's part of the vectors' loop, where the loops around it are too short for all."""
    if machine.threads == 1 or total < MIN_PARALLEL_ELEMENTS or prod(counts) >= machine.threads:
        return None
    parts = parts_of(prod(counts), extent, machine.threads * share, machine)
    return extent // parts if parts is not None else -(-extent // machine.threads)
