"""Schedules by hand: strips of rows in parallel, with the stages that a strip needs computed where it is.

``strips`` does a whole pipeline; ``strip`` one stage of it with its producers, ``vectors`` what remains.
"""

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
    columns: int | None = None,
) -> Schedule:
    """Strips of ``rows`` rows of the result in parallel, cut into tiles of ``columns`` where that is given.

    Stages ``inlined`` are computed where they are read, those ``by_row`` for each row of the result; of those
    ``sliding``, producers first, each row is computed once and kept as long as it is read: for as many rows
    as given. All others are computed once a strip, or once a tile.
    """
    s = Schedule(program)
    for name in inlined:
        s = s.inline_stage(name)
    assert s.program is not None
    *producers, last = [stage.name for stage in s.program.stages]
    *others, y, x = s.loops(last)
    s = s.split(y, rows)
    tile = [f"{y}_o"]
    if columns is not None:
        s = s.split(x, columns)
        tile, x = [f"{y}_o", f"{x}_o"], f"{x}_i"
    s = s.reorder(*tile, f"{y}_i", *others, x).parallel(f"{y}_o")
    s = s.annotate(f"{y}_o", "nontemporal", last)  # nobody reads the result soon
    for name in reversed(producers):
        s = s.compute_at(name, f"{y}_i" if name in by_row or name in sliding else tile[-1])
    for name in sliding:
        s = s.slide(name, f"{y}_i")
    s = vectors(s)
    for name, kept in sliding.items():
        rank = len(program.buffer(name).shape)
        s = s.roll(name, rank - 2, kept)
    return s


def strip(
    s: Schedule, last: str, rows: int, producers: Collection[str] = (), plane: bool = False
) -> Schedule:
    """Strips of ``rows`` rows of the stage ``last`` in parallel, plane by plane; ``producers``, its readers
    first, are computed once a strip, or with ``plane`` once a plane of it.
    """
    *planes, y, x = s.loops(last)
    s = s.split(y, rows).reorder(f"{y}_o", *planes, f"{y}_i", x).parallel(f"{y}_o")
    for name in producers:
        s = s.compute_at(name, planes[-1] if plane and planes else f"{y}_o")
    return s


def vectors(s: Schedule) -> Schedule:
    """The innermost loop of every block in vectors."""
    for block in s.blocks():
        s = s.vectorize(s.loops(block)[-1])
    return s
