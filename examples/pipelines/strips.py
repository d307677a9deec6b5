"""Schedules by hand: strips of rows in parallel, with the stages that a strip needs computed where it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from tilewright.ir import Program
from tilewright.schedule import Schedule


def strips(
    program: Program,
    rows: int,
    inlined: Collection[str] = (),
    by_row: Collection[str] = (),
    sliding: Mapping[str, int] = MappingProxyType({}),
    lanes: int = 16,
) -> Schedule:
    """Strips of ``rows`` rows of the result in parallel, vectors of ``lanes`` pixels.

    Stages ``inlined`` are computed where they are read, those ``by_row`` for each row of the result; of those
    ``sliding``, producers first, each row is computed once and kept as long as it is read: for as many rows
    as given. All others are computed once a strip.
    """
    s = Schedule(program)
    for name in inlined:
        s = s.inline_stage(name)
    assert s.program is not None
    *producers, last = [stage.name for stage in s.program.stages]
    loops = s.loops(last)
    y = loops[-2]
    if len(loops) > 2:
        s = s.reorder(y, *loops[:-2])
    s = s.split(y, rows).parallel(f"{y}_o")
    for name in reversed(producers):
        s = s.compute_at(name, f"{y}_i" if name in by_row or name in sliding else f"{y}_o")
    for name in sliding:
        s = s.slide(name, f"{y}_i")
    for block in s.blocks():
        x = s.loops(block)[-1]
        s = s.split(x, lanes).vectorize(f"{x}_i")
    for name, kept in sliding.items():
        s = s.roll(name, 0, kept)
    return s
