"""The plain schedule: each call's tiles are brought from the home memory, its result is brought back.

Nothing is kept but a sum while it is made, and what the call before had at the same place; every tile lies
where its seat says (``seats.py``). It is what is left where memories are too small for anything better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tilewright.ir import Index
from tilewright.mapping.system.bound import BoundStage, Tile
from tilewright.mapping.system.dry import Recorded, Start, loop_of, meeting
from tilewright.mapping.system.graph import Mover
from tilewright.mapping.system.nest import Loop, Node, Op, operations
from tilewright.mapping.system.seats import Seat, Seats
from tilewright.mapping.system.stream import Call, Move, Ref, Region


def record_plainly(seats: Seats, nodes: Sequence[Node]) -> Iterator[Recorded]:
    """Calls and loops in order, of blocks of one tile; nothing that counts lies outside the home memory."""
    for made, part in groupby(nodes, _sole):
        same = list(part)
        if made is None:
            for loop in same:
                assert isinstance(loop, Loop)
                body = (*record_plainly(seats, loop.body), *meeting(loop.var, seats.stream, loop.others))
                yield from loop_of(loop.var, loop.count, body)
        else:
            yield from _Sum(seats, seats.plain(made[1])).record(same)


def _sole(node: Node) -> tuple[Tile, BoundStage] | None:
    """The one tile that a node makes, and the stage that makes it; ``None`` where there are several."""
    found = [(op, inner) for op, inner in operations([node])]
    tile, stage = found[0][0].result[1], found[0][0].stage
    alone = all(op.result[1] == tile and op.stage == stage and not tile.vars & inner for op, inner in found)
    return (tile, stage) if alone else None


class _Sum:
    """The calls that make one tile."""

    def __init__(self, seats: Seats, seat: Seat) -> None:
        self.machine, self.seat = seats.machine, seat
        self.here: dict[str, Tile] = {}
        """What lies at the operands' places."""

    def record(self, nodes: Sequence[Node]) -> Iterator[Recorded]:
        first, _ = next(operations(nodes))
        name, tile = first.result
        if not first.starting:
            yield from self.moves(tile, self.seat.loads[name], (None, name))
        yield from self.nodes(nodes)
        yield from self.moves(tile, self.seat.store, (name, None))

    def nodes(self, nodes: Sequence[Node]) -> Iterator[Recorded]:
        for node in nodes:
            if isinstance(node, Op):
                yield from self.call(node)
                continue
            self.here.clear()
            yield from loop_of(node.var, node.count, tuple(self.nodes(node.body)))
            self.here.clear()

    def call(self, op: Op) -> Iterator[Recorded]:
        for name, tile in op.operands:
            if self.here.get(name) != tile:
                yield from self.moves(tile, self.seat.loads[name], (None, name))
                self.here[name] = tile
        refs = tuple((name, self.ref(tile, name)) for name, tile in (*op.operands, op.result))
        call = Call(self.seat.unit.name, op.stage.instruction, op.sizes, refs)
        if op.stage.initial is None or op.starts is None:
            yield call
            return
        starting = Call(call.unit, op.stage.initial, call.sizes, refs)
        yield Start(op.starts, starting, call) if op.starts else starting

    def moves(
        self, tile: Tile, path: Sequence[Mover], ends: tuple[str | None, str | None]
    ) -> Iterator[Recorded]:
        """A tile's way; its ends are operands, or the home memory."""
        source, target = ends
        at = self.ref(tile, source)
        for n, mover in enumerate(path):
            last = n == len(path) - 1
            to = (
                self.ref(tile, target)
                if last
                else self.region(tile, mover.target, self.seat.hops[mover.target])
            )
            yield Move(mover.name, at, to)
            at = to

    def ref(self, tile: Tile, name: str | None) -> Ref:
        if name is None or self.seat.memories[name] == self.machine.home:
            return tile.box
        return self.region(tile, self.seat.memories[name], self.seat.offsets[name])

    @staticmethod
    def region(tile: Tile, memory: str, offset: int) -> Region:
        return Region(memory, Index(offset), tile.shape, tile.dtype)
