"""Demand: the bytes of each memory that a loop's calls need at once, besides what the loop keeps there."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.mapping.system.bound import Tile
from tilewright.mapping.system.nest import Op
from tilewright.mapping.system.seats import Seats, padded


class Demand:
    """By memory, what each call brings there: its operands' tiles, and what passes on its way to others.

    Calls of the same tiles count once. ``keep`` says that tiles stay, and need no more room.
    """

    def __init__(self, ops: Iterable[Op], seats: Seats) -> None:
        self.calls: dict[str, list[dict[Tile, int]]] = {}
        self.passing: dict[str, int] = {}
        """The largest tile that passes through a memory."""
        self.kept: dict[str, set[Tile]] = {}
        seen = set()
        machine = seats.machine
        for op in ops:
            key = (op.stage.instruction, *op.operands, op.result)
            if key in seen:
                continue
            seen.add(key)
            seat = seats.of(op.stage)[0]
            mine: dict[str, dict[Tile, int]] = {}
            for name, tile in (*op.operands, op.result):
                m = seat.memories[name]
                if m != machine.home:
                    mine.setdefault(m, {})[tile] = padded(machine.memories[m], tile.bytes)
                between = [*seat.loads.get(name, ())[:-1], *(seat.store[:-1] if name == op.result[0] else ())]
                for mover in between:
                    n = padded(machine.memories[mover.target], tile.bytes)
                    self.passing[mover.target] = max(n, self.passing.get(mover.target, 0))
            for m, tiles in mine.items():
                self.calls.setdefault(m, []).append(tiles)

    def worst(self, memory: str) -> int:
        """The most that a call brings there, all of its tiles."""
        whole = max((sum(t.values()) for t in self.calls.get(memory, ())), default=0)
        return whole + self.passing.get(memory, 0)

    def beside(self, memory: str, tiles: Iterable[Tile] = ()) -> int:
        """The most that a call brings there where these and the kept tiles stay."""
        there = self.kept.get(memory, set()) | set(tiles)
        calls = self.calls.get(memory, ())
        left = max((sum(n for t, n in each.items() if t not in there) for each in calls), default=0)
        return left + self.passing.get(memory, 0)

    def keep(self, memory: str, tiles: Iterable[Tile]) -> None:
        """These tiles stay in a memory."""
        self.kept.setdefault(memory, set()).update(tiles)
