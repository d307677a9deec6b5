"""Prefetching what the next iteration reads, bit by bit: the hint ``prefetch`` = ``A@spread`` of a loop.

All that the loop's next iteration reads of ``A`` is asked for during the present one, a little in each step
of the reductions in outlined bodies: what a long iteration will stream from memory then comes while the
present one computes. For operands that each iteration reads one run of, such as panels of weights, or equal
runs at equal distances, such as columns of a matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

from tilewright.codegen.accesses import Accesses
from tilewright.codegen.memory import MemoryBuffer
from tilewright.codegen.prefetch import CACHE_LINE
from tilewright.codegen.state import Spread
from tilewright.codegen.uses import executions
from tilewright.ir import (
    ZERO,
    Alloc,
    Exec,
    For,
    Index,
    PrefetchHint,
    Seq,
    Stmt,
    Store,
    floordiv,
    imin,
    int_upper,
    is_outlined,
    loads,
    prefetch_hints,
)

#: Lines that a step of a reduction asks for, at most: more than it reads itself does not come in time.
MOST_LINES: Final = 4
#: The cache level that gets runs that lie apart: a panel is more than the first one holds.
LEVEL: Final = 2

Asked: TypeAlias = tuple[tuple[Spread, ...], Index]
"""What open loops ask for, and the steps since the iteration of the loop that does began."""

_Loops: TypeAlias = tuple[tuple[str, Index, Index], ...]
"""The variables of loops with their first and last values, the outermost loop first."""


@dataclass(frozen=True, slots=True)
class _Read:
    """Where a load, or an instruction, reads a buffer: first and last element, and the loops around it."""

    buffer: MemoryBuffer
    first: tuple[Index, ...]
    last: tuple[Index, ...]
    loops: _Loops
    single: bool
    """Whether it reads one element, ``first``."""


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

        The last iteration asks for its own elements again. A buffer of which iterations read neither one run
        after the other nor equal runs at equal distances is left out. Returns what loops further out asked
        for until now.
        """
        hints = [p for p in prefetch_hints(s) if p.spread]
        found = [self._spread(s, p, variable, hi) for p in hints]
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
            if not isinstance(buf, MemoryBuffer):
                continue
            line = CACHE_LINE // buf.buffer.dtype.bytes
            if spread.runs == 1:
                each = -(-spread.length // spread.steps)
                start = spread.first + self.state.step * each
                for n in range(0, each * count, line):
                    self.b.prefetch(self._address(buf, start + n, ()), False, spread.level)
                continue
            # whole runs, in as many turns as that takes; the others ask for the last one again
            each = -(-spread.runs * count // spread.steps)
            turn = floordiv(self.state.step, count) * each
            places = {*range(0, spread.length, line), *([spread.length - 1] if spread.apart % line else [])}
            for n in range(each):
                start = spread.first + imin(turn + n, spread.runs - 1) * spread.apart
                for place in sorted(places):
                    self.b.prefetch(self._address(buf, start + place, ()), False, LEVEL)

    def _spread(self, s: For, hint: PrefetchHint, variable: Index, hi: Index) -> Spread | None:
        name = hint.name
        steps = reduction_steps(s.body, self.state.outlined or is_outlined(s))
        now = self._run_of(s, name, variable)
        following = self._run_of(s, name, variable + s.step)
        asked = self._run_of(s, name, imin(variable + s.step, hi - 1))
        if not steps or now is None or following is None or asked is None:
            return None
        apart = following[0] - now[0]
        if not apart.is_const:
            return None
        most = self._most_a_step(name, s.body)
        if apart.const >= now[1]:
            fits = -(-asked[1] // steps) <= most
            return Spread(name, asked[0], asked[1], steps, level=hint.level) if fits else None
        box = self._box_of(s, name, variable)
        if box is None or not apart.const > 0 or apart.const < box[0]:
            return None
        length, runs, between = box
        if -(-runs // steps) * length > most:
            return None
        return Spread(name, asked[0], length, steps, runs, between)

    def _most_a_step(self, name: str, body: Stmt) -> int:
        """Elements of a buffer that a step of a reduction asks for at most, or what an instruction takes."""
        buf = self.state.buffers.get(name)
        if not isinstance(buf, MemoryBuffer):
            return 0
        taken = [prod(w.extents) for e in executions(body) for w in e.windows if w.buffer == name]
        return max(MOST_LINES * CACHE_LINE // buf.buffer.dtype.bytes, *taken, 0)

    def _box_of(self, s: For, name: str, iteration: Index) -> tuple[int, int, int] | None:
        """The length, number and distance of the runs that an iteration of a loop reads of a buffer.

        ``None`` where these are no equal runs at equal distances.
        """
        self.state.env[s.var] = iteration
        found = [self._box(read) for read in self._reads(s.body, name, False)]
        self.state.env.pop(s.var, None)
        known = [box for box in found if box is not None]
        if not known or len(known) < len(found) or len({between for _, _, between in known}) > 1:
            return None
        return max(box[0] for box in known), max(box[1] for box in known), known[0][2]

    def _box(self, read: _Read) -> tuple[int, int, int] | None:
        """The box of one load, met in the first iteration of its loops; ``None`` for instructions."""
        if not read.single:
            return None
        base, products = self._offset(self._access(read.buffer, read.first))
        moves: list[tuple[int, int]] = []
        for var, first, last in read.loops:
            self.state.env[var] = last
            moved = self._offset(self._access(read.buffer, read.first))[0] - base
            self.state.env[var] = first
            turns = last - first
            if not (moved.is_const and turns.is_const) or moved.const < 0:
                return None
            if moved.const:
                moves.append((moved.const // turns.const, turns.const + 1))
        length, runs, apart = 1, 1, 0
        for stride, extent in sorted(moves):
            if runs == 1 and stride <= length:
                length += stride * (extent - 1)
            elif runs == 1 or stride == apart * runs:
                runs, apart = runs * extent, apart or stride
            else:
                return None
        return None if products else (length, runs, apart)

    def _run_of(self, s: For, name: str, iteration: Index) -> tuple[Index, int] | None:
        """First offset and length of what an iteration of a loop reads of a buffer."""
        self.state.env[s.var] = iteration
        ends = [
            self._offset(self._access(read.buffer, read.last if last else read.first))
            for last in (False, True)
            for read in self._reads(s.body, name, last)
        ]
        self.state.env.pop(s.var, None)
        corners = [x for x, products in ends if not products]
        if not corners or not all((x - corners[0]).is_const for x in corners):
            return None
        apart = [(x - corners[0]).const for x in corners]
        return corners[0] + min(apart), max(apart) - min(apart) + 1

    def _reads(self, s: Stmt, name: str, last: bool, loops: _Loops = ()) -> Iterator[_Read]:
        """What reads a buffer, met in the first or the last iteration of all loops in ``s``.

        ``loops`` are those around ``s``. Their variables have values until the next read is asked for.
        """
        buf = self.state.buffers.get(name)
        if not isinstance(buf, MemoryBuffer):
            return
        match s:
            case Seq():
                for k in s.stmts:
                    yield from self._reads(k, name, last, loops)
            case Alloc():
                yield from self._reads(s.body, name, last, loops)
            case For():
                begin, end = self.resolve(s.lo), self.resolve(s.hi - 1)
                self.state.env[s.var] = end if last else begin
                yield from self._reads(s.body, name, last, (*loops, (s.var, begin, end)))
                self.state.env.pop(s.var, None)
            case Store():
                for ld in (ld for w in s.writes for ld in loads(w.value) if ld.buffer == name):
                    yield _Read(buf, ld.indices, ld.indices, loops, single=True)
            case Exec():
                for w in (w for w in s.windows if w.buffer == name):
                    far = tuple(i + n - 1 for i, n in zip(w.offsets, w.extents, strict=True))
                    yield _Read(buf, w.offsets, far, loops, single=False)
            case _:
                pass
