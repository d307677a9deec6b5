"""Which threads read what a stage makes, by the trees of its readers.

Of the levels around a reader only the outermost parallel one is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from msgspec.structs import replace

from tilewright.ir import Index, Program, Stage, stmt_loads, stmt_writes
from tilewright.tiling import KEPT, MADE, Body, Cut, Leaf, Level, Nest, Place, Seq, sequence

_Path: TypeAlias = tuple[str, Level, tuple[Level, ...]]
"""A parallel level on the way to a leaf: the stage that is made there (the root's is ""), what is above."""


@dataclass(frozen=True, slots=True)
class _Threads:
    """A parallel level, and the stage along whose axes it runs.

    ``axes`` are those along which it has several iterations, ``count`` how many in all; 0: not known.
    """

    level: Level
    of: Stage
    axes: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """A reading of a buffer: its indices, the threads that share it, and the iterators that they share."""

    indices: tuple[Index, ...]
    threads: _Threads | None = None
    moved: frozenset[str] = frozenset()


def threads_of_reader(program: Program, stage: Stage, nests: Sequence[Nest]) -> str | None:
    """The axis of a stage along which threads share what reads its result, ``None`` for none.

    A thread that makes what it reads itself finds it in its own caches.
    """
    if len(stage.writes) != 1:
        return None
    dims: set[int] = set()
    for found in _readings(program, stage.writes[0], nests):
        dims.update(d for d, i in enumerate(found.indices) if found.moved & i.vars)
    return stage.iters[dims.pop()].name if len(dims) == 1 else None


def shares_evenly(program: Program, name: str, dim: int, nests: Sequence[Nest]) -> bool:
    """Whether threads take parts of a dimension of a buffer: not where their level has several axes."""
    return all(
        found.threads is not None
        and len(found.threads.axes) == 1
        and not found.moved.isdisjoint(found.indices[dim].vars)
        for found in _readings(program, name, nests)
    )


def made_by_readers(
    program: Program, name: str, threads: int, place: Place, nests: Sequence[Nest]
) -> Nest | None:
    """The nest of all that reads a buffer with a place in the level that so many threads share.

    ``None`` where that is not one level, with an iteration for each thread.
    """
    found = {id(each.threads.level) if each.threads else 0: each for each in _readings(program, name, nests)}
    (reading,) = found.values() if len(found) == 1 else (None,)
    if reading is None or reading.threads is None or reading.threads.count != threads:
        return None
    level = reading.threads.level
    for nest in nests:
        changed = _placed(nest.body, level, place)
        if changed is not nest.body:
            return replace(nest, body=changed)
    return None


def is_made_in(stage: str, nests: Iterable[Nest]) -> bool:
    """Whether a stage is computed in one of these trees."""
    return any(True for nest in nests for _ in _paths(nest.body, stage, None))


def _readings(program: Program, name: str, nests: Sequence[Nest]) -> Iterator[_Reading]:
    for reader in program.consumers(name):
        around = [_threads(program, reader.name, nest) for nest in nests if is_made_in(reader.name, [nest])]
        found = [each for some in around for each in some] or [None]
        for ld in stmt_loads(reader.body):
            if ld.buffer == name:
                for threads in found:
                    moved = frozenset() if threads is None else _moved(program, reader, threads)
                    yield _Reading(ld.indices, threads, moved)


def _threads(program: Program, stage: str, nest: Nest) -> list[_Threads | None]:
    return [
        None if path is None else _counted(program.stage(path[0] or nest.root), path[1], path[2])
        for path in _paths(nest.body, stage, None)
    ]


def _counted(of: Stage, level: Level, above: tuple[Level, ...]) -> _Threads:
    left = {it.name: it.extent.as_int() if it.extent.is_const else 0 for it in of.iters}
    for axis, size in (pair for outer in above for pair in outer.axes):
        left[axis] = min(left.get(axis, 0), size)
    counts = {axis: -(-left.get(axis, 0) // size) for axis, size in level.axes}
    return _Threads(level, of, tuple(a for a, n in counts.items() if n != 1), prod(counts.values()))


def _paths(
    b: Body,
    stage: str,
    found: _Path | None,
    of: str = "",
    above: tuple[Level, ...] = (),
) -> Iterator[_Path | None]:
    """The outermost parallel level on the way to each leaf of a stage."""
    if isinstance(b, Leaf):
        if b.stage == stage:
            yield found
    elif isinstance(b, Level):
        here = (of, b, above) if found is None and b.bind == "parallel" else found
        yield from _paths(b.body, stage, here, of, (*above, b))
    elif isinstance(b, Cut):
        for part in b.parts:
            yield from _paths(part, stage, found, of, above)
    else:
        for item in b.items:
            if not isinstance(item, Place):
                yield from _paths(item, stage, found, of, above)
            elif item.how in MADE or item.how in KEPT:
                inner = (item.value, ()) if item.how in MADE else (of, above)
                for body in (item.nest, item.drain):
                    if body is not None:
                        yield from _paths(body, stage, found, *inner)


def _moved(program: Program, stage: Stage, threads: _Threads) -> frozenset[str]:
    """The iterators of a stage that differ from thread to thread: its own, or what their readers read."""
    if stage == threads.of:
        return frozenset(part.partition("/")[0] for axis in threads.axes for part in axis.split("*"))
    out: set[str] = set()
    for name, at in stmt_writes(stage.body):
        for reader in program.consumers(name):
            if reader != stage:
                moved = _moved(program, reader, threads)
                dims = {
                    d
                    for ld in stmt_loads(reader.body)
                    if ld.buffer == name
                    for d, i in enumerate(ld.indices)
                    if moved & i.vars
                }
                out.update(v for d in dims for v in at[d].vars)
    return frozenset(out)


def _placed(b: Body, level: Level, place: Place) -> Body:
    """A tree with a place first in one of its levels."""
    if b is level:
        return replace(level, body=sequence(place, level.body))
    if isinstance(b, Level):
        body = _placed(b.body, level, place)
        return b if body is b.body else replace(b, body=body)
    if isinstance(b, Cut):
        parts = tuple(_placed(part, level, place) for part in b.parts)
        return b if all(x is y for x, y in zip(parts, b.parts, strict=True)) else replace(b, parts=parts)
    if isinstance(b, Seq):
        items = tuple(x if isinstance(x, Place) else _placed(x, level, place) for x in b.items)
        return b if all(x is y for x, y in zip(items, b.items, strict=True)) else replace(b, items=items)
    return b
