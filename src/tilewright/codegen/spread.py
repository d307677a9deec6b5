"""Prefetching what the next iteration reads, bit by bit: the hint ``prefetch`` = ``A@spread`` of a loop.

All that the loop's next iteration reads of ``A`` is asked for during the present one, a little in each step
of the reductions in outlined bodies: what a long iteration will stream from memory then comes while the
present one computes. For operands that each iteration reads one run of, such as panels of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from tilewright.codegen.accesses import Accesses
from tilewright.codegen.memory import MemoryBuffer
from tilewright.codegen.prefetch import CACHE_LINE
from tilewright.codegen.state import Spread
from tilewright.ir import (
    ZERO,
    Alloc,
    For,
    Index,
    Seq,
    Stmt,
    Store,
    imin,
    int_upper,
    is_outlined,
    loads,
    prefetch_hints,
)

#: Lines that a step of a reduction asks for, at most: more than it reads itself does not come in time.
MOST_LINES: Final = 4

Asked: TypeAlias = tuple[tuple[Spread, ...], Index]
"""What open loops ask for, and the steps since the iteration of the loop that does began."""


def reduction_steps(s: Stmt, outlined: bool) -> int:
    """How often the innermost counted loops of outlined bodies run their bodies, all together.

    ``outlined`` says whether ``s`` is in such a body. Loops whose extent varies count as the longest of them,
    as 0 where that is not known.
    """
    match s:
        case Seq():
            return sum(reduction_steps(k, outlined) for k in s.stmts)
        case Alloc():
            return reduction_steps(s.body, outlined)
        case For():
            turns = -(-(int_upper(s.extent, {}) or 0) // s.step)
            below = reduction_steps(s.body, outlined or is_outlined(s))
            innermost = outlined and not below and s.kind.name == "serial" and turns > 1
            return turns if innermost else turns * below
    return 0


class Spreading(Accesses):
    """Emits prefetches of what next iterations read."""

    def begin_spreading(self, s: For, variable: Index, hi: Index) -> Asked | None:
        """Begin to ask for what the next iteration of a loop reads; ``None`` where its hints name nothing.

        The last iteration asks for its own elements again. A buffer of which iterations do not read one run
        of elements after the other is left out. Returns what loops further out asked for until now.
        """
        names = [p.name for p in prefetch_hints(s) if p.spread]
        found = [self._spread(s, name, variable, hi) for name in names]
        begun = tuple(each for each in found if each is not None)
        if not begun:
            return None
        st = self.state
        before = (st.spreads, st.step)
        st.spreads, st.step = begun, ZERO
        return before

    def end_spreading(self, before: Asked | None) -> None:
        """End what :meth:`begin_spreading` began."""
        if before is not None:
            self.state.spreads, self.state.step = before

    def ask_ahead(self, count: int) -> None:
        """Ask for the lines that belong to the next ``count`` steps of a reduction."""
        for spread in self.state.spreads:
            buf = self.state.buffers.get(spread.buffer)
            if isinstance(buf, MemoryBuffer):
                start = spread.first + self.state.step * spread.per_step
                for n in range(0, spread.per_step * count, CACHE_LINE // buf.buffer.dtype.bytes):
                    self.b.prefetch(self._address(buf, start + n, ()), False, 1)

    def _spread(self, s: For, name: str, variable: Index, hi: Index) -> Spread | None:
        steps = reduction_steps(s.body, self.state.outlined or is_outlined(s))
        now = self._run_of(s, name, variable)
        following = self._run_of(s, name, variable + s.step)
        asked = self._run_of(s, name, imin(variable + s.step, hi - 1))
        if not steps or now is None or following is None or asked is None:
            return None
        apart = following[0] - now[0]
        per_step = -(-asked[1] // steps)
        if not apart.is_const or apart.const < now[1] or per_step > self._most_a_step(name):
            return None
        return Spread(name, asked[0], per_step)

    def _most_a_step(self, name: str) -> int:
        """Elements of a buffer that a step of a reduction asks for at most."""
        buf = self.state.buffers.get(name)
        return MOST_LINES * CACHE_LINE // buf.buffer.dtype.bytes if isinstance(buf, MemoryBuffer) else 0

    def _run_of(self, s: For, name: str, iteration: Index) -> tuple[Index, int] | None:
        """First offset and length of what an iteration of a loop reads of a buffer."""
        self.state.env[s.var] = iteration
        corners = [x for last in (False, True) for x in self._corners(s.body, name, last)]
        self.state.env.pop(s.var, None)
        if not corners or not all((x - corners[0]).is_const for x in corners):
            return None
        apart = [(x - corners[0]).const for x in corners]
        return corners[0] + min(apart), max(apart) - min(apart) + 1

    def _corners(self, s: Stmt, name: str, last: bool) -> Iterator[Index]:
        """Offsets of the loads from a buffer in the first or the last iteration of all loops in ``s``."""
        match s:
            case Seq():
                for k in s.stmts:
                    yield from self._corners(k, name, last)
            case Alloc():
                yield from self._corners(s.body, name, last)
            case For():
                self.state.env[s.var] = self.resolve(s.hi - 1 if last else s.lo)
                yield from self._corners(s.body, name, last)
                self.state.env.pop(s.var, None)
            case Store():
                buf = self.state.buffers.get(name)
                for ld in (ld for w in s.writes for ld in loads(w.value)):
                    if ld.buffer == name and isinstance(buf, MemoryBuffer):
                        x, products = self._offset(self._access(buf, ld.indices))
                        if not products:
                            yield x
            case _:
                pass
