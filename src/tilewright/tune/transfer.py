"""What one task can learn from others: the plans that won where programs differ in their sizes alone."""

from __future__ import annotations

import re
from math import log
from typing import Final

from tilewright.ir import print_source
from tilewright.strategies import AnyTask, Candidate, Trial
from tilewright.tune.database import Database

#: Tasks that are asked, at most: those whose sizes are nearest.
MOST_NEIGHBOURS: Final = 6
_NUMBER: Final = re.compile(r"(?<![\w.])\d+(?![\w.])")


def neighbours_of(
    task: AnyTask, key: str, database: Database, start: Database | None = None
) -> tuple[Trial, ...]:
    """The records of tasks like this one, the nearest first, with what each took of the default's time.

    Tasks are alike where their programs are equal but for numbers: the same operator at other sizes, or for
    another machine or number of threads. How near they are is the sum of the logarithms of the ratios.
    ``start`` is asked as well, of the same task, too: what it has is for searches to begin with, no more.
    """
    shape, sizes = _form(print_source(task.program))
    near: list[tuple[float, str, int]] = []
    sources = [database] if start is None else [database, start]
    for n, source in enumerate(sources):
        for row in source.task_rows():
            if row.key == key and source is database:
                continue
            form, numbers = _form(row.program)
            if form == shape and len(numbers) == len(sizes):
                away = sum(abs(log((1 + a) / (1 + b))) for a, b in zip(sizes, numbers, strict=True))
                near.append((away, row.key, n))
    found: list[Trial] = []
    for _, other, n in sorted(near)[:MOST_NEIGHBOURS]:
        for record in sources[n].ranked(other)[:1]:
            ratio = record.seconds / record.untuned
            if ratio < 1:
                found.append(Trial(Candidate("record", record.plan), "ok", (ratio,), func=record.func))
    return tuple(found)


def _form(text: str) -> tuple[str, list[int]]:
    """A program's text without its numbers, and these."""
    return _NUMBER.sub("#", text), [int(number[:18]) for number in _NUMBER.findall(text)]
