"""What the emitter knows at a point of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from tilewright.codegen.llvm.values import Val
from tilewright.codegen.memory import MemoryBuffer, RegisterBuffer
from tilewright.ir import ZERO, Index, Load, Var, int_lower, int_upper
from tilewright.target import BUILT_IN, Operations

LANE = "$lane"
LANE_INDEX = Index(0, ((Var(LANE), 1),))


@dataclass(frozen=True, slots=True)
class Spread:
    """What is asked for while other elements are worked on, a little in each of the ``steps`` of reductions.

    These are ``runs`` of ``length`` elements of ``buffer``, ``apart`` elements from one to the next, and
    ``first`` is the offset of the first one. ``level`` is the cache level that gets a single run.
    """

    buffer: str
    first: Index
    length: int
    steps: int
    runs: int = 1
    apart: int = 0
    level: int = 1


@dataclass(slots=True)
class Reloads:
    """Which single elements each instruction loads for itself: ``part`` of ``whole``, spread evenly.

    ``uses`` counts how often an element, by its place and offset, was loaded in this copy of a loop's body.
    """

    part: int
    whole: int
    uses: dict[tuple[int, int], int] = field(default_factory=dict)
    chosen: set[tuple[int, int]] = field(default_factory=set)

    def next_use(self, element: tuple[int, int]) -> int | None:
        """How often the element was loaded before; ``None`` where one load serves all that use it."""
        if element not in self.uses:
            n = len(self.uses)
            if (n + 1) * self.part // self.whole > n * self.part // self.whole:
                self.chosen.add(element)
            self.uses[element] = 0
        else:
            self.uses[element] += 1
        return self.uses[element] if element in self.chosen else None


@dataclass(slots=True)
class Gathers:
    """Loads of the present statement at places that data tell, of which two elements side by side are one.

    ``partners`` is of :func:`~tilewright.codegen.uses.neighbours_of`, ``guards`` their number when the
    statement began, and ``known`` what was loaded together with another element, by its place.
    """

    partners: Mapping[int, tuple[Load, int]]
    guards: int
    known: dict[tuple[str, Index], Val] = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """Loop variables, values, buffers and masks."""

    operations: Operations = field(default_factory=lambda: BUILT_IN)  # what instructions mean
    env: dict[str, Index] = field(default_factory=dict)  # loop variables to indices over SSA names
    ranges: dict[str, tuple[Index, Index]] = field(default_factory=dict)  # of SSA names, outermost first
    spans: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)  # the same as numbers
    ssa: dict[str, Val] = field(default_factory=dict)  # SSA names to values
    buffers: dict[str, MemoryBuffer | RegisterBuffer] = field(default_factory=dict)
    params: dict[str, Val] = field(default_factory=dict)
    unchanging: frozenset[str] = frozenset()  # arguments of one float each that the kernel does not write
    width: int = 1  # lanes of the open vector loop, 1 outside
    mask: Val | None = None  # active lanes
    nontemporal: frozenset[str] = frozenset()  # buffers that whole vectors are stored to past the caches
    copies: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # of open expanded loops: which, of how many
    guards: list[Val] = field(default_factory=list)  # what makes the present evaluation happen at all
    gathers: Gathers | None = None  # of the present statement, where it reads neighbours that data tell
    in_turn: bool = False  # a long value is being computed, from registers that are used one after the other
    outlined: bool = False  # within a body that is a function of its own
    spreads: tuple[Spread, ...] = ()  # of the innermost open loop that asks for what its next iteration reads
    step: Index = ZERO  # steps of reductions since that loop's present iteration began
    reloads: Reloads | None = None  # of the innermost open loop that has a part of its elements loaded anew
    _symbols: int = 0

    def fresh(self) -> int:
        """A number not given before."""
        self._symbols += 1
        return self._symbols

    def symbol(self, v: Val, lo: Index, hi: Index) -> Index:
        """A fresh variable that stands for a value within ``[lo, hi]``."""
        name = f"${self.fresh()}"
        self.ssa[name] = v
        self._set_range(name, lo, hi)
        return Index(0, ((Var(name), 1),))

    def forget_symbol(self, symbol: Index) -> None:
        """Drop a variable of :meth:`symbol`."""
        for name in symbol.vars:
            del self.ssa[name], self.ranges[name], self.spans[name]

    def open_lanes(self, width: int) -> None:
        """Enter a vector loop of ``width`` lanes."""
        self.width = width
        self.ranges[LANE] = _lane_range(width)
        self.spans[LANE] = (0, width - 1)

    def close_lanes(self) -> None:
        """Leave it."""
        self.width = 1
        del self.ranges[LANE], self.spans[LANE]

    def _set_range(self, name: str, lo: Index, hi: Index) -> None:
        low, high = int_lower(lo, self.ranges), int_upper(hi, self.ranges)
        self.ranges[name] = (lo, hi)
        self.spans[name] = (low, high)


@cache
def _lane_range(width: int) -> tuple[Index, Index]:
    return ZERO, Index(width - 1)
