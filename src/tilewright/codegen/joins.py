"""Sums of the lanes of many registers at once: each result in a lane, with about three instructions a result.

A vector loop over results, each of which adds up the lanes of a register of its own::

    vector for j: for l: c[j] += sums[j, l]

Pairs of registers become one of half as many terms for each result, until one register is left: half of the
terms of both lie in one vector, the other half in another, and these are added. Register by register the same
takes eleven instructions each (4x4 results of 512x4x512: 7% of the whole).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.codegen.llvm.builder import Builder
from tilewright.codegen.llvm.values import Val
from tilewright.codegen.operations import binary

#: Bytes within which instructions move single elements cheaply.
_PART: Final = 16


def can_join(results: int, lanes: int, element_bytes: int) -> bool:
    """Whether so many registers of so many lanes can be joined."""
    part = max(1, _PART // element_bytes)
    powers = all(n > 0 and n & (n - 1) == 0 for n in (results, lanes))
    return powers and max(2, part) <= results <= lanes


def join(b: Builder, op: str, rows: Sequence[Val]) -> Val:
    """A vector whose lane ``n`` is ``op`` of all lanes of ``rows[n]``. Their numbers fit `can_join`."""
    results, lanes = len(rows), rows[0].lanes
    part = max(1, _PART // rows[0].dtype.bytes)
    now, unit = list(rows), 1
    while len(now) > 1:
        # within parts units of both in turns, then whole parts of the one before those of the other
        halves = _in_turns(lanes, part, unit) if unit < part else _whole(lanes, part, (0, lanes))
        now = [_fold(b, op, x, y, halves) for x, y in zip(now[::2], now[1::2], strict=True)]
        unit *= 2
    (total,) = now
    while total.lanes > results:
        total = _fold(b, op, total, total, _whole(total.lanes, part, (0,)))
    return total


def _fold(b: Builder, op: str, x: Val, y: Val, halves: tuple[list[int], list[int]]) -> Val:
    first, second = halves
    return binary(b, op, b.pick(x, y, first), b.pick(x, y, second))


def _in_turns(lanes: int, part: int, unit: int) -> tuple[list[int], list[int]]:
    """Units of two vectors in turns: of the first half of each part, of the second half."""
    halves: tuple[list[int], list[int]] = ([], [])
    for start in range(0, lanes, part):
        for k, half in enumerate(halves):
            for at in range(start + k * part // 2, start + (k + 1) * part // 2, unit):
                half += [*range(at, at + unit), *range(lanes + at, lanes + at + unit)]
    return halves


def _whole(lanes: int, part: int, sources: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Even parts of all sources, odd parts of all."""
    halves: tuple[list[int], list[int]] = ([], [])
    for source in sources:
        for k, half in enumerate(halves):
            for at in range(source + k * part, source + lanes, 2 * part):
                half += range(at, at + part)
    return halves
