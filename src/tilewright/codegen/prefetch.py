"""Prefetching what a loop's body touches: the hint ``prefetch`` of a loop, buffers separated by commas.

The expanded statements of the body (no counted loops) are walked ahead of it, and every cache line that they
read or write of the named buffers is asked for. On an outlined loop a micro-kernel's epilogue then finds its
operands and the lines of its result in the first cache level, while the reduction hides the latency. ``A@8``
on a serial loop asks for what the body will touch of ``A`` eight iterations later, of counted loops in it in
their first iteration: for more streams at once, or further away, than the hardware follows.
"""

from __future__ import annotations

from typing import Final

from tilewright.codegen.accesses import Accesses
from tilewright.codegen.memory import MemoryBuffer
from tilewright.ir import Alloc, For, Index, Seq, Stmt, Store, loads

CACHE_LINE: Final = 64
"""Bytes that one prefetch brings."""


def prefetch_hints(loop: For) -> tuple[tuple[str, int], ...]:
    """Buffers that a loop's hint names, each with the iterations ahead (0: those of the body itself)."""
    found: list[tuple[str, int]] = []
    for key, value in loop.hints:
        if key == "prefetch":
            for part in value.split(","):
                name, _, ahead = part.partition("@")
                found.append((name, int(ahead) if ahead.isdecimal() else 0))
    return tuple(found)


class Prefetching(Accesses):
    """Emits prefetches of what statements touch."""

    def prefetch(self, s: Stmt, names: frozenset[str], *, counted: bool = False) -> None:
        """Ask for the lines of the buffers ``names`` that the expanded part of ``s`` touches.

        ``counted`` says whether the first iterations of counted loops belong to it.
        """
        match s:
            case Seq():
                for k in s.stmts:
                    self.prefetch(k, names, counted=counted)
            case Alloc():
                self.prefetch(s.body, names, counted=counted)
            case For() if s.kind.name in ("unroll", "vector"):
                self._each(s, names, counted)
            case For() if counted:
                self.state.env[s.var] = self.resolve(s.lo)
                self.prefetch(s.body, names, counted=counted)
                self.state.env.pop(s.var, None)
            case Store():
                for w in s.writes:
                    if w.buffer in names:
                        self._line(w.buffer, w.indices, True)
                    for ld in loads(w.value):
                        if ld.buffer in names:
                            self._line(ld.buffer, ld.indices, False)
            case _:
                pass

    def _each(self, s: For, names: frozenset[str], counted: bool) -> None:
        lo, extent = self.resolve(s.lo), self.resolve(s.hi) - self.resolve(s.lo)
        if not extent.is_const:
            return
        smallest = min(
            (
                b.buffer.dtype.bytes
                for n, b in self.state.buffers.items()
                if n in names and isinstance(b, MemoryBuffer)
            ),
            default=4,
        )
        step = max(1, CACHE_LINE // smallest) if s.kind.name == "vector" else 1
        for n in range(0, extent.as_int(), step):
            self.state.env[s.var] = lo + n
            self.prefetch(s.body, names, counted=counted)
        self.state.env.pop(s.var, None)

    def _line(self, name: str, indices: tuple[Index, ...], write: bool) -> None:
        buf = self.state.buffers[name]
        if isinstance(buf, MemoryBuffer):
            x, products = self._offset(self._access(buf, indices))
            self.b.prefetch(self._address(buf, x, products), write)
