"""Prefetching what a loop's body touches: the hint ``prefetch`` of a loop, buffers separated by commas.

The expanded statements of the body (no counted loops) are walked ahead of it, and every cache line that they
read or write of the named buffers is asked for. On an outlined loop a micro-kernel's epilogue then finds its
operands and the lines of its result in the first cache level, while the reduction hides the latency. ``A@8``
on a serial loop asks for what the body will touch of ``A`` eight iterations later, of counted loops in it in
their first iteration: for more streams at once, or further away, than the hardware follows. ``A+4096`` asks
for the elements that lie 4096 further on in memory than those that the body touches, and for the second cache
level: what comes after the next few thousand elements would only push the first level's lines out
(``A+4096:1`` asks for the first level all the same); of neighbours as many as a line holds one is asked for,
wherever lines begin among them. A buffer named again is asked for again: a core drops requests that find no
room among the pending ones. Elements whose place is data are not asked for: to find them, that data would be
read, where no iteration may read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tilewright.codegen.accesses import Accesses
from tilewright.codegen.memory import MemoryBuffer
from tilewright.codegen.uses import data_in
from tilewright.ir import Alloc, Exec, For, Index, PrefetchHint, Seq, Stmt, Store, Window, loads

CACHE_LINE: Final = 64
"""Bytes that one prefetch brings."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask for, and the places that were asked for already: rows of a tile share operands.

    ``counted`` says whether the first iterations of counted loops belong to it.
    """

    hints: Mapping[str, PrefetchHint]
    counted: bool
    asked: set[tuple[str, Index, tuple[Index, ...], bool]] = field(default_factory=set)


class Prefetching(Accesses):
    """Emits prefetches of what statements touch."""

    def ask(self, s: Stmt, r: Request) -> None:
        """Ask once for each line of the buffers that ``r`` names that the expanded part of ``s`` touches."""
        match s:
            case Seq():
                for k in s.stmts:
                    self.ask(k, r)
            case Alloc():
                self.ask(s.body, r)
            case For() if s.kind.name in ("unroll", "vector"):
                self._each(s, r)
            case For() if r.counted:
                self.state.env[s.var] = self.resolve(s.lo)
                self.ask(s.body, r)
                self.state.env.pop(s.var, None)
            case Store():
                for w in s.writes:
                    self._line(r, w.buffer, w.indices, True)
                    for ld in loads(w.value):
                        self._line(r, ld.buffer, ld.indices, False)
            case Exec():
                for window in s.windows:
                    self._window(r, window)
            case _:
                pass

    def _window(self, r: Request, w: Window) -> None:
        """Ask for the lines of what an instruction on matrices takes of a buffer in memory."""
        buf = self.state.buffers.get(w.buffer)
        if w.buffer not in r.hints or not w.axes or not isinstance(buf, MemoryBuffer):
            return
        slow = w.axes[0]
        for row in range(slow.count):
            # rows of matrices are a line at most, and neighbours that are taken together are in one
            indices = tuple(i + row * slow.step if d == slow.dim else i for d, i in enumerate(w.offsets))
            self._line(r, w.buffer, indices, False, CACHE_LINE // buf.buffer.dtype.bytes)

    def _each(self, s: For, r: Request) -> None:
        lo, extent = self.resolve(s.lo), self.resolve(s.hi) - self.resolve(s.lo)
        if not extent.is_const:
            return
        smallest = min(
            (
                b.buffer.dtype.bytes
                for n, b in self.state.buffers.items()
                if n in r.hints and isinstance(b, MemoryBuffer)
            ),
            default=4,
        )
        step = max(1, CACHE_LINE // smallest) if s.kind.name == "vector" else 1
        for n in range(0, extent.as_int(), step):
            self.state.env[s.var] = lo + n
            self.ask(s.body, r)
        self.state.env.pop(s.var, None)

    def _line(self, r: Request, name: str, indices: tuple[Index, ...], write: bool, line: int = 1) -> None:
        hint = r.hints.get(name)
        # not yet there: allocated inside of the loop that asks
        buf = None if hint is None else self.state.buffers.get(name)
        if hint is None or not isinstance(buf, MemoryBuffer):
            return
        if data_in(indices):
            return
        x, products = self._offset(self._access(buf, indices))
        if hint.further:
            # of neighbours the first: what it leaves of their lines comes with the ones after them
            line = max(line, CACHE_LINE // buf.buffer.dtype.bytes)
        place = (name, x - x.const % line, tuple(i for i, _ in products), write)
        if place not in r.asked:
            r.asked.add(place)
            self.b.prefetch(self._address(buf, x + hint.further, products), write, hint.level)
