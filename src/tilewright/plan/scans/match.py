"""Which scans and point-wise stages share stripes: those that treat the elements of an axis apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final

from tilewright.cost import KEPT_SHARE, Machine
from tilewright.ir import Index, Program, Stage, Store, stmt_loads, var
from tilewright.plan.pipeline.nest import second_level

#: Stripes that each thread should have at least, so that uneven ones even out.
STRIPES_PER_THREAD: Final = 2
#: Vectors of a stripe's width that are tried.
WIDTHS: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Member:
    """A stage, and the numbers of its iterators along which it treats elements apart.

    Those are in the order of the root's; ``None`` for one that is not apart.
    """

    stage: Stage
    apart: tuple[int | None, ...]

    def bytes(self, program: Program) -> int:
        """All of its result."""
        return _points(self.stage) * program.buffer(self.stage.writes[0]).dtype.bytes


@dataclass(frozen=True, eq=False)
class Stripes:
    """A stage, and the producers that only it and they read, in the program's order, scans among them.

    ``common`` are the numbers of the root's iterators along which all of them treat elements apart, ``cut``
    the one of these along which the results of all scans lie together: stripes are cut along that.
    """

    program: Program
    root: Stage
    members: tuple[Member, ...]
    common: tuple[int, ...]
    cut: int

    @cached_property
    def others(self) -> tuple[int, ...]:
        """The other iterators that stripes have one value of."""
        return tuple(n for n in self.common if n != self.cut)

    @property
    def parts(self) -> int:
        """Stripes of one element."""
        return prod(self.root.iters[n].extent.as_int() for n in self.common)

    def axis_of(self, stage: Stage) -> int:
        """The iterator of a stage of which a stripe has a part."""
        (found,) = (m.apart[self.cut] for m in (*self.members, self._last) if m.stage is stage)
        assert found is not None
        return found

    @cached_property
    def _last(self) -> Member:
        return Member(self.root, tuple(range(len(self.root.iters))))

    def held(self, width: int) -> int:
        """Bytes that producers take for a stripe of so many elements."""
        return sum(m.bytes(self.program) for m in self.members) * width // self.parts

    def widths(self, machine: Machine) -> list[int]:
        """How wide stripes may be: whole vectors, few enough for a cache, many enough for the threads.

        None of what has no elements.
        """
        if not self.parts:
            return []
        extent = self.root.iters[self.cut].extent.as_int()
        lanes = machine.target.lanes(self.program.buffer(self.root.writes[0]).dtype)
        room = KEPT_SHARE * second_level(machine)
        wanted = STRIPES_PER_THREAD * machine.threads if machine.threads > 1 else 1
        others = self.parts // extent
        return [
            n * lanes
            for n in WIDTHS
            if n * lanes < extent
            and self.held(n * lanes) <= room
            and others * -(-extent // (n * lanes)) >= wanted
        ]


def find_stripes(
    program: Program, root: Stage, machine: Machine, done: Collection[str] = ()
) -> Stripes | None:
    """The longest run of scans and point-wise stages that a stage ends, of which a cache holds stripes.

    ``None`` where there is none, or where all that its producers make fits the cache anyway. Stages ``done``
    belong to other nests.
    """
    last = _apart(root)
    if last is None:
        return None
    found = {root.name: Member(root, last)}
    best: Stripes | None = None
    temps = {b.name for b in program.temps if b.layout is None}
    for stage in reversed(program.stages[: program.stages.index(root)]):
        made = stage.writes[0]
        readers = {reader.name for reader in program.consumers(made)}
        if stage.name in done or made not in temps or len(program.producers(made)) != 1:
            continue
        if not readers or not readers <= found.keys():
            continue
        member = _member(stage, [found[name] for name in readers])
        if member is None or all(axis is None for axis in member.apart):
            continue
        found[stage.name] = member
        made_of = _stripes(program, found)
        if made_of is None or not made_of.widths(machine):
            break
        best = made_of
    if best is None or sum(m.bytes(program) for m in best.members) <= second_level(machine):
        return None
    return best if any(_is_scan(stage) for stage in (root, *(m.stage for m in best.members))) else None


def _stripes(program: Program, found: Mapping[str, Member]) -> Stripes | None:
    root, *members = found.values()
    axes = range(len(root.stage.iters))
    common = tuple(n for n in axes if all(m.apart[n] is not None for m in found.values()))
    scans = [m for m in found.values() if _is_scan(m.stage)] or list(found.values())[-1:]
    cut = [n for n in common if all(_lies_together(m.stage, m.apart[n]) for m in scans)]
    if not cut:
        return None
    return Stripes(program, root.stage, tuple(members[::-1]), common, cut[-1])


def _lies_together(stage: Stage, axis: int | None) -> bool:
    assert isinstance(stage.body, Store) and axis is not None
    return stage.body.writes[0].indices[-1].as_var() == stage.iters[axis].name


def _is_scan(stage: Stage) -> bool:
    return any(it.kind == "ord" for it in stage.iters)


def _apart(stage: Stage) -> tuple[int | None, ...] | None:
    """The stage's own iterators along which it treats elements apart; ``None`` for stages of other kinds."""
    if not isinstance(stage.body, Store) or len(stage.body.writes) != 1 or stage.init is not None:
        return None
    if any(it.kind == "red" or not it.extent.is_const or it.lo != Index(0) for it in stage.iters):
        return None
    indices = stage.body.writes[0].indices
    names = [it.name for it in stage.iters]
    told = [[name for name in i.vars if i.coefficient(name) in (1, -1)] for i in indices]
    if sorted(name for each in told for name in each) != sorted(names) or any(len(t) != 1 for t in told):
        return None
    own = [ld for ld in stmt_loads(stage.body) if ld.buffer in stage.writes]
    return tuple(
        n
        if it.kind == "par"
        and (d := _dimension(stage, n)) is not None
        and all(ld.indices[d] == var(it.name) for ld in own)
        else None
        for n, it in enumerate(stage.iters)
    )


def _dimension(stage: Stage, axis: int) -> int | None:
    """The dimension of a stage's result that an iterator is the index of."""
    assert isinstance(stage.body, Store)
    at = [d for d, i in enumerate(stage.body.writes[0].indices) if i.as_var() == stage.iters[axis].name]
    return at[0] if at else None


def _member(stage: Stage, readers: Collection[Member]) -> Member | None:
    """A producer, by those that read it: along which of the root's axes it is read element by element."""
    own = _apart(stage)
    if own is None:
        return None
    made = stage.writes[0]
    count = len(next(iter(readers)).apart)
    out: list[int | None] = []
    for n in range(count):
        axes: set[int | None] = set()
        for reader in readers:
            axis = reader.apart[n]
            name = None if axis is None else reader.stage.iters[axis].name
            for ld in stmt_loads(reader.stage.body):
                if ld.buffer == made:
                    at = [d for d, i in enumerate(ld.indices) if name in i.vars]
                    whole = len(at) == 1 and ld.indices[at[0]].as_var() == name
                    axes |= {a for a in own if a is not None and whole and _dimension(stage, a) == at[0]} or {
                        None
                    }
        out.append(axes.pop() if len(axes) == 1 else None)
    return Member(stage, tuple(out))


def _points(stage: Stage) -> int:
    return prod(it.extent.as_int() for it in stage.iters)
