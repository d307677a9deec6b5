"""Seats: units where a stage's calls can run, one tile of each operand at a time, and how tiles get there.

Whatever else a schedule does, with a seat there is one: bring a tile of each operand, call, bring the result
home. So what has no seat is refused where it is bound, and what has one is not refused later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final

from tilewright.ir import Index, Param
from tilewright.mapping.system.bound import BoundOperand, BoundStage, Tile, tile_of
from tilewright.mapping.system.graph import Memory, Mover, SystemGraph, Unit, placements
from tilewright.support import TargetError, quoted

Area = tuple[int, int]
"""Where a stream's part of a memory begins, and its bytes."""

ENDLESS: Final = 1 << 60
"""More bytes than any memory has."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A unit, the memory and address of each operand's tile, and the ways between them and the home memory.

    ``loads`` are of operands that are read, unless only a stage before can leave one there; ``store`` is the
    result's. Tiles on their way lie in a memory between at the address that ``hops`` gives for it.
    """

    unit: Unit
    memories: Mapping[str, str]
    offsets: Mapping[str, int]
    loads: Mapping[str, tuple[Mover, ...]]
    store: tuple[Mover, ...]
    hops: Mapping[str, int]


@dataclass(frozen=True)
class Seats:
    """The seats of a stream that has these areas of the machine's memories."""

    machine: SystemGraph
    stream: str
    areas: Mapping[str, Area]

    @cached_property
    def known(self) -> dict[object, tuple[Seat | str, ...]]:
        """What has been asked."""
        return {}

    def of(self, stage: BoundStage) -> tuple[Seat, ...]:
        """The seats for a stage, in the order of units and of their operands' places."""
        return tuple(s for s in self._all(stage) if isinstance(s, Seat))

    def lacks(self, stage: BoundStage) -> tuple[str, ...]:
        """What is missing at units where a stage has no seat."""
        return tuple(s for s in self._all(stage) if isinstance(s, str))

    def _all(self, stage: BoundStage) -> tuple[Seat | str, ...]:
        key = (stage.instruction, stage.initial, stage.result, stage.operands, *stage.axes.values())
        if key not in self.known:
            self.known[key] = tuple(self._found(stage))
        return self.known[key]

    def _found(self, stage: BoundStage) -> Iterator[Seat | str]:
        machine = self.machine
        operands = (*stage.operands, stage.result)
        tiles = largest_tiles(stage, machine)
        for unit in machine.units_of(stage.instruction, self.stream):
            starts = unit.places.get(stage.initial or stage.instruction, {})
            for p in placements(machine, unit, stage.instruction):
                seat: Seat | str = f"it does not execute {stage.initial} in the same memories"
                if all(p[o.name] in starts.get(o.name, ()) for o in operands):
                    seat = self._seat(stage, unit, p, tiles)
                yield f"unit {quoted(unit.name)}: {seat}" if isinstance(seat, str) else seat

    def _seat(
        self, stage: BoundStage, unit: Unit, memories: Mapping[str, str], tiles: Mapping[str, Tile]
    ) -> Seat | str:
        """The seat with operands in these memories, where all of it has room, or what is missing."""
        home, result = self.machine.home, stage.result.name
        ends = {n: at for n, (at, _) in self.areas.items()}
        offsets = {}
        for name, tile in tiles.items():
            m = memories[name]
            if m == home:
                continue
            offsets[name] = ends[m]
            ends[m] += padded(self.machine.memories[m], tile.bytes)
            at, size = self.areas[m]
            if ends[m] > at + size:
                tile_of_it = f"a tile of {name} of {tile.bytes} bytes"
                return f"memory {quoted(m)} of {size} bytes has no room for {tile_of_it}"
        loads = {}
        made = {o.name for o in stage.operands if o.made}
        for name, tile in tiles.items():
            if name != result or stage.continues:
                ways = self._ways(home, memories[name], tile, ends)
                if ways:
                    loads[name] = ways[0]
                elif name not in made:
                    return self._missing(home, memories[name], name, tile)
        back = self._ways(memories[result], home, tiles[result], ends)
        if not back:
            return self._missing(memories[result], home, result, tiles[result])
        return Seat(unit, memories, offsets, loads, back[0], ends)

    def reached(self, stage: BoundStage) -> tuple[Seat, ...]:
        """The seats that all operands reach from the home memory."""
        return tuple(s for s in self.of(stage) if all(o.name in s.loads for o in stage.operands))

    def plain(self, stage: BoundStage) -> Seat:
        """The first seat that all operands reach from the home memory; TargetError where there is none."""
        reached, found = self.reached(stage), self.of(stage)
        if reached:
            return reached[0]
        o = next(o for o in stage.operands if o.name not in found[0].loads)
        tile = largest_tiles(stage, self.machine)[o.name]
        raise TargetError(
            f"stage {quoted(stage.stage)}: machine {quoted(self.machine.name)}:"
            f" {self._missing(self.machine.home, found[0].memories[o.name], o.name, tile)}, and what makes"
            f" {quoted(o.tensor)} cannot leave it there",
            hint="add a move, or an instruction of both stages",
        )

    def _missing(self, source: str, target: str, name: str, tile: Tile) -> str:
        found = self.machine.paths(source, target, self.stream)
        how = ""
        if found and passable(self.machine, source, target, self.stream, tile):
            how = f" with room for its {tile.bytes} bytes"
        elif found:
            how = " and changes the order of dimensions" if not tile.box.in_order else ""
            how += " and takes elements that lie steps apart" if tile.steps else ""
        return (
            f"no path of moves that stream {quoted(self.stream)} issues{how} brings {name} from"
            f" {quoted(source)} to {quoted(target)}"
        )

    def _ways(
        self, source: str, target: str, tile: Tile, taken: Mapping[str, int]
    ) -> list[tuple[Mover, ...]]:
        """The paths that a tile can take where memories are taken so far."""
        home = self.machine.home

        def room(m: str) -> bool:
            at, size = self.areas[m]
            return taken[m] + padded(self.machine.memories[m], tile.bytes) <= at + size

        return [
            p
            for p in passable(self.machine, source, target, self.stream, tile)
            if all(v.target != home and room(v.target) for v in p[:-1])
        ]


class Seating:
    """The seats of a machine's streams, alone and side by side."""

    def __init__(self, machine: SystemGraph) -> None:
        self.machine = machine
        self.single = {s: Seats(machine, s, whole(machine)) for s in machine.streams}
        self.divided: dict[tuple[str, ...], dict[str, Seats]] = {}

    def some_does(self, stages: Sequence[BoundStage]) -> bool:
        """Whether one stream can do all of the stages."""
        return any(all(map(s.of, stages)) for s in self.single.values())

    def alone(self, stages: Sequence[BoundStage]) -> Mapping[str, Seats]:
        """A stream that can do the stages, with all memories for itself: the first that all tiles reach."""
        able = [(n, s) for n, s in self.single.items() if all(map(s.of, stages))]
        return dict([next((x for x in able if all(map(x[1].reached, stages))), able[0])])

    def together(self, stages: Sequence[BoundStage]) -> Mapping[str, Seats]:
        """The streams that can do the stages side by side: at least one."""
        names = self.machine.streams
        while len(names) > 1:
            found = self.side_by_side(names)
            able = tuple(n for n, s in found.items() if all(map(s.of, stages)))
            if able == names:
                return found
            names = able
        return self.alone(stages)

    def side_by_side(self, names: tuple[str, ...]) -> dict[str, Seats]:
        """Streams with what is theirs of the memories where just these run."""
        if names not in self.divided:
            areas = divided(self.machine, names)
            self.divided[names] = {s: Seats(self.machine, s, areas[s]) for s in names}
        return self.divided[names]


def padded(memory: Memory, n: int) -> int:
    """Bytes that ``n`` bytes occupy there."""
    return -(-n // memory.align) * memory.align


def passable(
    machine: SystemGraph, source: str, target: str, stream: str, tile: Tile
) -> list[tuple[Mover, ...]]:
    """The paths between two memories whose ends at the home memory take a tile as it lies there."""
    if source == target:
        return [()]
    box, home = tile.box, machine.home
    ends = {0: source == home, -1: target == home}
    return [
        p
        for p in machine.paths(source, target, stream)
        if all(p[n].takes(in_order=box.in_order, apart=bool(box.steps)) for n, at in ends.items() if at)
    ]


def largest_tiles(stage: BoundStage, machine: SystemGraph) -> Mapping[str, Tile]:
    """The operands' tiles of a whole call, by name."""
    types = {b.name: b.dtype for b in machine.instruction(stage.instruction).operands}
    place = {a: (Index(0), min(stage.reach(a), n)) for a, n in stage.extents.items()}

    def tile(o: BoundOperand) -> Tile:
        return tile_of(stage, o, place, types[o.name])

    return {o.name: tile(o) for o in (*stage.operands, stage.result)}


def whole(machine: SystemGraph) -> Mapping[str, Area]:
    """All memories, for one stream alone."""
    return MappingProxyType({n: (0, m.bytes) for n, m in machine.memories.items() if n != machine.home})


def divided(machine: SystemGraph, streams: Sequence[str]) -> Mapping[str, Mapping[str, Area]]:
    """Areas of streams side by side: what several of them reach, they have equal parts of."""
    reached: dict[str, list[str]] = {m: [] for m in whole(machine)}
    for s in streams:
        mine = {v.target for v in machine.movers.values() if s in v.streams}
        mine |= {v.source for v in machine.movers.values() if s in v.streams}
        for u in machine.units.values():
            if u.stream == s:
                mine |= {m for places in u.places.values() for where in places.values() for m in where}
        for m in sorted(mine & set(reached)):
            reached[m].append(s)
    out: dict[str, dict[str, Area]] = {s: {} for s in streams}
    for m, sharing in reached.items():
        node = machine.memories[m]
        size = node.bytes // max(1, len(sharing)) // node.align * node.align
        for s in streams:
            out[s][m] = (sharing.index(s) * size, size) if s in sharing else (0, 0)
    return out


def within_reach(stage: BoundStage, machine: SystemGraph) -> bool:
    """Whether a stream brings all operands of a stage from the home memory."""
    return any(Seats(machine, s, whole(machine)).reached(stage) for s in machine.streams)


def seated(stage: BoundStage, machine: SystemGraph) -> tuple[BoundStage, tuple[str, ...]]:
    """The stage with tiles so large that a stream has a seat for it; or what is missing, everywhere."""
    params = {p.name: p for p in machine.instruction(stage.instruction).semantics.params}

    def missing(areas: Mapping[str, Area]) -> tuple[str, ...]:
        streams = [Seats(machine, s, areas) for s in machine.streams]
        return () if any(s.of(stage) for s in streams) else tuple(w for s in streams for w in s.lacks(stage))

    found = missing(dict.fromkeys(whole(machine), (0, ENDLESS)))  # no way leads there, whatever the room
    while not found and (short := missing(whole(machine))):
        halves = {i: _half(n, params[stage.sizes[i]]) for i, (_, n) in stage.axes.items() if i in stage.sizes}
        longest = max(
            (i for i, n in halves.items() if n < stage.axes[i][1] and stage.axes[i][0] is not None),
            key=lambda i: min(stage.axes[i][1], stage.extents[stage.axes[i][0] or ""]),
            default=None,
        )
        if longest is None:
            return stage, short
        axis = stage.axes[longest][0]
        stage = replace(stage, axes={**stage.axes, longest: (axis, halves[longest])})
    return stage, found


def _half(n: int, p: Param) -> int:
    """Half of a size, as far as it may be that."""
    return max(-(-p.lo // p.multiple_of) * p.multiple_of, n // 2 // p.multiple_of * p.multiple_of)
