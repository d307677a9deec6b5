"""Nests of tiles: groups of stages that are computed tile by tile together, as loops over calls.

Every tile along an axis is full but the last. Blocks of tiles are unrolled, whole blocks are counted by a
loop, and what is left of an axis is a block of its own, so that all sizes in the loops are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import TypeAlias

from tilewright.ir import Index, substitute_index, var
from tilewright.mapping.system.bound import BoundOperand, BoundProgram, BoundStage, Tile, tile_of


@dataclass(frozen=True, slots=True)
class Op:
    """One call: operands by name as tiles, and in which iterations (all these at 0) ``initial`` starts it."""

    stage: BoundStage
    sizes: tuple[tuple[str, int], ...]
    operands: tuple[tuple[str, Tile], ...]
    result: tuple[str, Tile]
    starts: tuple[str, ...] | None
    """Loops in whose first iterations a sum starts; none at all: here. ``None``: it never starts here."""
    slot: int = 0
    """Position in the block: what units are chosen by."""

    @property
    def starting(self) -> bool:
        """Whether what was in the result's place does not count, in the iterations of ``starts``."""
        return not self.stage.continues and (self.stage.initial is None or self.starts is not None)


@dataclass(frozen=True, slots=True)
class Loop:
    """``body`` for each value of ``var`` from 0 to below ``count``.

    At the end of each iteration its stream posts to ``others`` and waits for them, for what they wrote.
    """

    var: str
    count: Index
    body: tuple[Node, ...]
    others: tuple[str, ...] = ()


Node: TypeAlias = Op | Loop


@dataclass(frozen=True, slots=True)
class Group:
    """Stages over one grid: the axes of the first, along which the others were renamed."""

    stages: tuple[BoundStage, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of the grid: those along which nothing is summed."""
        first = self.stages[0]
        return tuple(a for a in first.extents if a not in first.reduces)

    def tiles(self, axis: str) -> int:
        """Tiles along an axis."""
        first = self.stages[0]
        return -(-first.extents[axis] // first.reach(axis))

    @property
    def work(self) -> dict[str, int]:
        """Tiles along each axis."""
        return {a: self.tiles(a) for a in self.axes}

    @property
    def small(self) -> Blocks:
        """Blocks of one tile."""
        return Blocks(tuple(dict.fromkeys(self.axes, 1).items()), inf)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Axes from the outermost loop inwards, with the tiles of a block along each. ``cost``: in cycles."""

    factors: tuple[tuple[str, int], ...]
    cost: float


def operations(nodes: Sequence[Node]) -> Iterator[tuple[Op, frozenset[str]]]:
    """All calls with the variables of the loops around them, within ``nodes``."""
    for n in nodes:
        if isinstance(n, Op):
            yield n, frozenset()
        else:
            for op, inner in operations(n.body):
                yield op, inner | {n.var}


def groups(program: BoundProgram, can: Callable[[Sequence[BoundStage]], bool]) -> tuple[Group, ...]:
    """Stages in groups: a stage joins the one before where it reads that one's results tile by tile.

    ``can`` says whether one stream can do stages.
    """
    found: list[list[BoundStage]] = []
    for stage in program.stages:
        joined = _joined(found[-1], stage) if found else None
        if joined is not None and can((*found[-1], joined)):
            found[-1].append(joined)
        else:
            found.append([stage])
    return tuple(Group(tuple(g)) for g in found)


def _joined(group: Sequence[BoundStage], stage: BoundStage) -> BoundStage | None:
    """A stage with its axes renamed to those of a group, where it can be computed with it."""
    if stage.reduces:
        return None
    first = group[0]
    made = {s.result.tensor: s.result for s in group}
    names: dict[str, str] = {}
    for o in stage.operands:
        if o.tensor in made:
            for theirs, own in zip(made[o.tensor].indices, o.indices, strict=True):
                a, b = own.as_var(), theirs.as_var()
                if a is None or b is None or names.setdefault(a, b) != b:
                    return None
    free = [a for a in first.extents if a not in first.reduces]
    if not names or set(names) != set(stage.extents) or len(set(names.values())) != len(names):
        return None
    if any(stage.extents[a] != first.extents[b] for a, b in names.items()) or set(names.values()) != set(
        free
    ):
        return None
    values = {a: var(b) for a, b in names.items()}

    def renamed(o: BoundOperand) -> BoundOperand:
        return replace(o, indices=tuple(substitute_index(x, values) for x in o.indices))

    new = replace(
        stage,
        extents={names[a]: n for a, n in stage.extents.items()},
        axes={i: (a and names[a], n) for i, (a, n) in stage.axes.items()},
        operands=tuple(map(renamed, stage.operands)),
        result=renamed(stage.result),
    )
    if any(new.reach(a) != first.reach(a) for a in free):
        return None
    for o in new.operands:
        if o.tensor in made and (o.dims != made[o.tensor].dims or o.indices != made[o.tensor].indices):
            return None
    return new


class NestBuilder:
    """Builds the loops of groups; names of loop variables are unique over all that one builder makes."""

    def __init__(self, program: BoundProgram) -> None:
        self.program = program
        self.taken: set[str] = set(program.tensors)

    def fresh(self, name: str) -> str:
        """A loop variable that nothing else is called."""
        n, base = 1, name
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        return name

    def build(
        self, group: Group, blocks: Blocks, part: tuple[str, int, int] | None, *, unrolled: bool = False
    ) -> tuple[Node, ...]:
        """The loops of a group; ``part`` keeps the tiles from one to another along one axis.

        ``unrolled``: no loops, all calls one after another.
        """
        return tuple(self._outer(group, list(blocks.factors), {}, part, unrolled))

    def _outer(
        self,
        group: Group,
        left: list[tuple[str, int]],
        tiles: dict[str, list[tuple[Index, int]]],
        part: tuple[str, int, int] | None,
        unrolled: bool,
    ) -> list[Node]:
        if not left:
            return self._block(group, tiles, unrolled)
        (axis, factor), rest = left[0], left[1:]
        first = group.stages[0]
        extent, reach = first.extents[axis], first.reach(axis)
        lo, hi = (part[1], part[2]) if part and part[0] == axis else (0, group.tiles(axis))
        full = min(hi, extent // reach)
        out: list[Node] = []
        whole = max(0, full - lo) // factor
        if unrolled:
            whole = 0
        if whole:
            v = self.fresh(axis)
            base = var(v) * (factor * reach) + lo * reach if whole > 1 else Index(lo * reach)
            inner = [(base + t * reach, reach) for t in range(factor)]
            body = self._outer(group, rest, {**tiles, axis: inner}, part, unrolled)
            out += [Loop(v, Index(whole), tuple(body))] if whole > 1 else body
        at = lo + whole * factor
        if at < hi:
            inner = [(Index(t * reach), min(reach, extent - t * reach)) for t in range(at, hi)]
            out += self._outer(group, rest, {**tiles, axis: inner}, part, unrolled)
        return out

    def _block(self, group: Group, tiles: dict[str, list[tuple[Index, int]]], unrolled: bool) -> list[Node]:
        first, *rest = group.stages
        places = [dict(zip(tiles, t, strict=True)) for t in product(*tiles.values())]
        out = self._sum(first, list(first.reduces), {}, places, (), unrolled)
        for n, place in enumerate(places):
            out += [self._op(stage, place, (), n) for stage in rest]
        return out

    def _sum(
        self,
        stage: BoundStage,
        left: list[str],
        at: dict[str, tuple[Index, int]],
        places: list[dict[str, tuple[Index, int]]],
        starts: tuple[str, ...] | None,
        unrolled: bool,
    ) -> list[Node]:
        if not left:
            return [self._op(stage, {**place, **at}, starts, n) for n, place in enumerate(places)]
        axis, rest = left[0], left[1:]
        extent, reach = stage.extents[axis], stage.reach(axis)
        full = extent // reach
        out: list[Node] = []
        here = starts
        if full > 1 and not unrolled:
            v = self.fresh(axis)
            inner = None if here is None else (*here, v)
            body = self._sum(stage, rest, {**at, axis: (var(v) * reach, reach)}, places, inner, unrolled)
            out.append(Loop(v, Index(full), tuple(body)))
            here = None
            done = full
        else:
            done = 0
        while done * reach < extent:
            size = min(reach, extent - done * reach)
            out += self._sum(stage, rest, {**at, axis: (Index(done * reach), size)}, places, here, unrolled)
            here = None
            done += 1
        return out

    def _op(
        self,
        stage: BoundStage,
        place: Mapping[str, tuple[Index, int]],
        starts: tuple[str, ...] | None,
        slot: int,
    ) -> Op:
        sizes = tuple(
            (stage.sizes[i], place[a][1] if a else 1) for i, (a, _) in stage.axes.items() if i in stage.sizes
        )

        def tile(o: BoundOperand) -> tuple[str, Tile]:
            return o.name, tile_of(stage, o, place, self.program.tensors[o.tensor].dtype)

        operands, result = tuple(map(tile, stage.operands)), tile(stage.result)
        return Op(stage, sizes, operands, result, starts if stage.initial else None, slot)
