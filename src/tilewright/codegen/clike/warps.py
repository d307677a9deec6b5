"""Instructions that the threads of a warp do together: reductions, products by matrix units.

A reduction's execution is the warp's: it stands outside of loops over ``thread.x``. That of a matrix unit is
every thread's, for its own share of the results; that all 32 come to it, with addresses as the unit has them,
is asked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tilewright.codegen.clike.dialect import Dialect
from tilewright.codegen.clike.helpers import Helpers
from tilewright.codegen.clike.launches import AXES, Grid, leaves
from tilewright.codegen.clike.mma import (
    GROUP,
    LANES,
    ROW_BYTES,
    WARP_INSTRUCTIONS,
    Way,
    fragment_function,
)
from tilewright.codegen.clike.statements import constant_extent, is_unrolled
from tilewright.codegen.clike.wide import WideAccesses
from tilewright.codegen.clike.writer import Writer
from tilewright.ir import (
    ZERO,
    Along,
    Exec,
    For,
    If,
    Index,
    Stmt,
    Window,
    floordiv,
    mod,
    simplify,
    var,
)
from tilewright.support import ScheduleError, TargetError

WARP: Final = 32
"""Threads that the instructions of whole warps are done by."""


@dataclass(frozen=True, slots=True)
class _Matrix:
    """An operand of a matrix unit: where it is, and the elements between neighbours along its two axes."""

    pointer: str
    strides: tuple[int, int]
    offset: Index


class WarpCalls(WideAccesses):
    """Statements of a kernel over a grid; ``covered`` are the axes that loops around them spread."""

    def __init__(
        self, dialect: Dialect, helpers: Helpers, writer: Writer, *, wide: bool, grid: Grid, symbol: str
    ) -> None:
        super().__init__(dialect, helpers, writer, wide=wide)
        self.grid = grid
        self.symbol = symbol
        self.covered: frozenset[str] = frozenset()
        self._lane = ""
        """The loop over ``thread.x`` whose iterations are the lanes of warps, where all of them run."""

    def id(self, axis: str) -> str:
        """The number of this block or thread along an axis."""
        kind, _, letter = axis.partition(".")
        template = self.dialect.group_id if kind == "block" else self.dialect.local_id
        return f"({self.index_type}){template.format(axis=letter, n=AXES.index(letter))}"

    # -- what the threads of a warp have in common ----------------------------------------------------------

    def lanes(self, s: For, *, full: bool) -> str:
        """Take a loop on ``thread.x`` for the lanes of warps where it is; the loop that was before."""
        outer = self._lane
        if s.kind.axis == "thread.x":
            whole = full and s.lo == Index(0) and s.hi == Index(WARP)
            self._lane = s.var if whole else ""
        return outer

    def lanes_again(self, outer: str) -> None:
        """Go back to the loop that was before."""
        self._lane = outer

    def branch(self, s: If) -> None:
        """Write an ``if``, and mind which lanes are inside."""
        outer = self._lane
        if any(c.expr is not None or self._lane in c.vars for c in s.cond):
            # some lanes may not come
            self._lane = ""
        super().branch(s)
        self._lane = outer

    def loop(self, s: For) -> None:
        """Write a loop, and mind which lanes repeat it how often."""
        if self._tile(s):
            return
        outer = self._lane
        if self._lane in s.lo.vars | s.hi.vars:
            self._lane = ""
        super().loop(s)
        self._lane = outer

    # -- instructions ---------------------------------------------------------------------------------------

    def has_warps(self, s: Stmt) -> bool:
        """Whether an instruction of whole warps stands in a statement."""
        names = self.dialect.warp_instructions
        return bool(names) and any(isinstance(leaf, Exec) and leaf.instr in names for leaf in leaves(s))

    def execute(self, s: Exec) -> None:
        """Write a call of an instruction of warps. Raises TargetError for others."""
        if s.instr in self.dialect.warp_instructions:
            self._by_warp(s)
        elif s.instr in self.dialect.lane_instructions:
            self._by_lanes(s)
        else:
            raise TargetError(f"{self.dialect.name} has no instruction {s.instr}")

    def _by_warp(self, s: Exec) -> None:
        """An instruction of all threads of a warp, which are those along ``thread.x``."""
        width = self.grid.extent("thread.x")
        if "thread.x" in self.covered or not width.is_const or width.const % WARP or not width.const:
            raise ScheduleError(
                f"{self.symbol}: {s.instr} is done by a whole warp: it stands outside of loops over "
                f"thread.x, and these have {WARP} iterations or a multiple",
                hint="bind loops of 32 iterations beside it, such as those of copies, to thread.x",
            )
        pieces = []
        for w in s.windows:
            made = self._matrix(s, w, along=None)
            pieces += [made.pointer, *map(str, made.strides)]
        function = self.dialect.warp_instructions[s.instr](self.helpers, s.instr)
        call = f"{function}({', '.join(pieces)});"
        missing = self.grid.used - self.covered - {"thread.x"}
        first = [f"{self.id(axis)} == 0" for axis in sorted(missing)]
        if width != Index(WARP):
            first.append(f"{self.id('thread.x')} < {WARP}")
        if first:
            call = f"if ({' && '.join(first)}) {call}"
        self.writer.line(call)

    def _by_lanes(self, s: Exec) -> None:
        """An instruction of a matrix unit: each lane of a warp names its share of the results."""
        total, left, right = self._operands(s)
        words = tuple(self._way(s, n, matrix) in ("rows", "words") for n, matrix in enumerate((left, right)))
        packed = WARP_INSTRUCTIONS[s.instr].packed
        function = self.dialect.lane_instructions[s.instr](
            self.helpers, s.instr, words[0] and packed > 1, words[1] and packed > 1
        )
        pieces = [piece for m in (total, left, right) for piece in (m.pointer, *map(str, m.strides))]
        self.writer.line(f"{function}({', '.join(pieces)});")

    def _operands(self, s: Exec) -> tuple[_Matrix, _Matrix, _Matrix]:
        """The result's share, and both factors of the warp."""
        if not self._lane:
            raise ScheduleError(
                f"{self.symbol}: {s.instr} is done by the threads of a warp together: it stands in a loop "
                f"of {WARP} iterations over thread.x, under no condition that only some of them meet",
                hint="fuse loops of 8 rows and 4 pairs of columns, bind them to thread.x, and pad what is "
                "ragged (as_matrices)",
            )
        lane = var(self._lane)
        result, a, b = s.windows
        return (
            self._matrix(s, result, along=lane * 0, private=True),
            self._matrix(s, a, along=floordiv(lane, LANES), unit=GROUP),
            self._matrix(s, b, along=mod(lane, LANES) * 2),
        )

    def _way(self, s: Exec, factor: int, matrix: _Matrix) -> Way:
        """How a fragment of a factor is read."""
        packed = WARP_INSTRUCTIONS[s.instr].packed
        row = ROW_BYTES // (4 // packed)
        # of the second factor the first stride is that along the sums
        step, far = matrix.strides[1 - factor], matrix.strides[factor]
        shared = s.windows[1 + factor].buffer in self.shared
        if shared and step == 1 and far % row == 0 and _divides(row, matrix.offset):
            return "rows"
        if (
            shared
            and factor
            and packed == 2
            and far == 1
            and step % row == 0
            and _divides(row, matrix.offset)
        ):
            return "turned"
        if step == 1 and packed > 1 and far % packed == 0 and _divides(packed, matrix.offset):
            return "words"
        return "elements"

    def _tile(self, s: For) -> bool:
        """Write the products of a warp's tile, the fragments of its rows and of its columns first.

        Only where loops over rows and columns, both written out, are around an instruction.
        """
        inner = s.body
        if not isinstance(inner, For) or not isinstance(inner.body, Exec) or not self._lane:
            return False
        call, loops = inner.body, (s, inner)
        product = self.dialect.fragments.get(call.instr)
        counts = [constant_extent(loop) or 0 for loop in loops]
        written = [loop.kind.name == "unroll" and loop.lo == ZERO and loop.step == 1 for loop in loops]
        if product is None or not all(written) or [is_unrolled(loop) for loop in loops] != counts:
            return False
        with self.variable(s), self.variable(inner):
            _, *factors = self._operands(call)
            apart = inner.var not in factors[0].offset.vars and s.var not in factors[1].offset.vars
            ways = [self._way(call, n, matrix) for n, matrix in enumerate(factors)]
        if not apart or not {"rows", "turned"} & set(ways):
            return False
        names = [self.writer.name(f"{call.windows[n].buffer}_fragments") for n in (1, 2)]
        for factor, (loop, n, name, way) in enumerate(zip(loops, counts, names, ways, strict=True)):
            size = (4, 2)[factor]
            self.writer.line(f"unsigned int {name}[{n * size}];")
            function = fragment_function(self.helpers, call.instr, factor, way)
            other = (inner, s)[factor]
            with self._repeated(loop) as number, self.variable(other):
                matrix = self._operands(call)[1 + factor]
                pieces = [f"{name} + {number} * {size}", matrix.pointer, *map(str, matrix.strides)]
                self.writer.line(f"{function}({', '.join(pieces)});")
        with self._repeated(s) as row, self._repeated(inner) as column:
            total = self._operands(call)[0]
            pieces = [total.pointer, *map(str, total.strides)]
            pieces += [f"{names[0]} + {row} * 4", f"{names[1]} + {column} * 2"]
            self.writer.line(f"{product(self.helpers, call.instr)}({', '.join(pieces)});")
        return True

    @contextmanager
    def _repeated(self, s: For) -> Iterator[str]:
        """A loop that is written out around what is written inside; its variable."""
        for line in self.pragmas(s):
            self.writer.line(line)
        with self.variable(s) as name:
            hi = self.index(s.hi)
            with self.writer.block(f"for ({self.index_type} {name} = 0; {name} < {hi}; ++{name})"):
                yield name

    def _matrix(
        self, s: Exec, w: Window, *, along: Index | None, unit: int = 1, private: bool = False
    ) -> _Matrix:
        """An operand; ``along`` is by how many of its ``unit``-th steps lanes have it from the warp's."""
        place = self.place(w.buffer)
        total, products = self.offset(place, w.offsets)
        axes = w.axes or tuple(Along(d, n) for d, n in enumerate(w.extents) if n > 1)
        if products or (w.buffer in self.private and not private):
            raise ScheduleError(
                f"{self.symbol}: {s.instr} takes {w.buffer!r} from shared or global memory, with "
                "constant strides"
            )
        strides = [self._stride(w, each, total) for each in axes]
        if along is not None and not private:
            # the axis that lanes move along: rows of the first factor, columns of the second
            moved = 0 if unit > 1 else 1
            if strides[moved] % unit:
                raise self._uneven(w)
            strides[moved] //= unit
            total = simplify(total - along * strides[moved], self.env)
            if self._lane in total.vars:
                raise self._uneven(w)
        return _Matrix(f"&{place.text}[{self.index_text(total)}]", tuple(strides), total)  # type: ignore[arg-type]

    def _stride(self, w: Window, along: Along, total: Index) -> int:
        """Elements between neighbours along an axis of an operand."""
        moved = tuple(i + (along.step if d == along.dim else 0) for d, i in enumerate(w.offsets))
        distance = simplify(self.offset(self.place(w.buffer), moved)[0] - total, self.env)
        if not distance.is_const:
            raise self._uneven(w)
        return distance.const

    def _uneven(self, w: Window) -> ScheduleError:
        return ScheduleError(f"{self.symbol}: elements of {w.buffer!r} do not lie evenly for the instruction")


def _divides(n: int, x: Index) -> bool:
    """Whether an index is a multiple of a number, whatever its variables are."""
    parts: Sequence[int] = (x.const, *(c for _, c in x.terms))
    return all(part % n == 0 for part in parts)
