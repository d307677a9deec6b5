"""Which stages make a pipeline: stencils and point-wise stages that only each other read, row by row."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis import lies_in_order
from tilewright.ir import Call, Load, Program, Stage, Store, stmt_exprs, stmt_loads, var, walk

#: What a function such as the exponential counts for, in operations.
CALL_OPERATIONS: Final = 16


@dataclass(frozen=True, slots=True)
class Member:
    """A producer of a pipeline, whose rows are along its axis number ``axis``.

    For the rows ``0:n`` of the result its rows ``first:n + last`` are read, ``row_bytes`` long each.
    """

    stage: Stage
    axis: int
    first: int
    last: int
    row_bytes: int

    @property
    def height(self) -> int:
        """All its rows."""
        return self.stage.iters[self.axis].extent.as_int()

    def rows(self, strip: int) -> int:
        """Rows that a strip of so many rows of the result needs."""
        return min(strip + self.last - self.first, self.height)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A stage, whose rows are along its axis number ``axis``, and its producers, in the program's order."""

    root: Stage
    axis: int
    members: tuple[Member, ...]

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return self.root.iters[self.axis].extent.as_int()

    @property
    def has_windows(self) -> bool:
        """Whether some row is read for several of the result."""
        return any(m.last > m.first for m in self.members)

    def strip_bytes(self, strip: int, stored: Collection[str]) -> int:
        """Bytes that the producers ``stored`` take for a strip of so many rows."""
        return sum(m.rows(strip) * m.row_bytes for m in self.members if m.stage.name in stored)

    def repeated(self, strip: int, stored: Collection[str]) -> float:
        """Operations that strips repeat at their borders, in parts of those of the whole pipeline."""
        again, once = 0.0, _operations(self.root) * _points(self.root)
        for m in self.members:
            whole = _operations(m.stage) * _points(m.stage)
            once += whole
            if m.stage.name in stored:
                again += max(0, m.rows(strip) * -(-self.rows // strip) / m.height - 1) * whole
        return again / max(1, once)

    def first(self, count: int) -> Pipeline:
        """The pipeline with so many producers only, those nearest to the result."""
        return Pipeline(self.root, self.axis, self.members[len(self.members) - count :])


def find_pipeline(program: Program, root: Stage, done: Collection[str] = ()) -> Pipeline | None:
    """The longest pipeline that a stage ends; ``None`` where it has no producers that only it and they read.

    Stages ``done`` belong to other nests.
    """
    if not _is_member(program, root):
        return None
    axis = len(root.iters) - 2
    found: dict[str, Member] = {root.name: Member(root, axis, 0, 0, 0)}
    temps = {b.name: b for b in program.temps if b.layout is None}
    for stage in reversed(program.stages[: program.stages.index(root)]):
        made = stage.writes[0]
        readers = program.consumers(made)
        if stage.name in done or made not in temps or not _is_member(program, stage):
            continue
        if not readers or any(reader.name not in found for reader in readers):
            continue
        member = _member(stage, [found[reader.name] for reader in readers], temps[made].dtype.bytes)
        if member is not None:
            found[stage.name] = member
    members = tuple(found.values())[:0:-1]
    return Pipeline(root, axis, members) if members else None


def _member(stage: Stage, readers: Collection[Member], element: int) -> Member | None:
    """A producer from those that read it, ``None`` where they do not read it row by row."""
    axes: set[int] = set()
    ends: list[int] = []
    for reader in readers:
        row = reader.stage.iters[reader.axis].name
        for ld in stmt_loads(reader.stage.body):
            if ld.buffer != stage.writes[0]:
                continue
            along = [n for n, i in enumerate(ld.indices) if row in i.vars]
            offset = ld.indices[along[0]] - var(row) if len(along) == 1 else None
            if offset is None or not offset.is_const:
                return None
            axes.add(along[0])
            ends += [reader.first + offset.as_int(), reader.last + offset.as_int()]
    if len(axes) != 1 or max(axes) == len(stage.iters) - 1:
        return None
    (axis,) = axes
    others = (it.extent.as_int() for n, it in enumerate(stage.iters) if n != axis)
    return Member(stage, axis, min(ends), max(ends), prod(others) * element)


def _is_member(program: Program, stage: Stage) -> bool:
    """Whether a stage is point-wise or a stencil, stored row by row, and reads no result of a reduction."""
    body = stage.body
    if not isinstance(body, Store) or len(body.writes) != 1 or len(stage.iters) < 2:
        return False
    if any(it.kind != "par" or not it.extent.is_const for it in stage.iters):
        return False
    if not lies_in_order(program, stage):
        return False
    makers = [p for name in stage.reads for p in program.producers(name)]
    if len(program.producers(stage.writes[0])) != 1 or any(p.is_reduction for p in makers):
        return False
    return program.buffer(stage.writes[0]).layout is None


def _operations(stage: Stage) -> int:
    found = (e for root in stmt_exprs(stage.body) for e in walk(root) if not isinstance(e, Load))
    return max(1, sum(CALL_OPERATIONS if isinstance(e, Call) else 1 for e in found))


def _points(stage: Stage) -> int:
    return prod(it.extent.as_int() for it in stage.iters)
