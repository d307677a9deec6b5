"""The analytic cost model: cycles of a loop tree, term by term.

Instructions that start in a cycle, the latency of sums that wait for one another, what each memory level must
deliver, loops and threads. Where one iteration's data stays in a level, the next one reads there what it
shares; else it comes again from further out (the usual model of nests over a hierarchy of caches).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from math import gcd, inf, log2, prod
from typing import Final, NamedTuple, TypeAlias

from tilewright.cost.machine import Machine, first_cache
from tilewright.cost.shares import HELD_SHARE
from tilewright.cost.tree import Access, Loop, LoopTree, Work
from tilewright.target import Target

CostModel: TypeAlias = Callable[[LoopTree, Machine], float]
"""What says how many seconds loops take on a machine: :func:`seconds`, or another such function."""

#: Loads of full vectors, and stores, that start in a cycle.
LOADS_PER_CYCLE: Final = 2.0
STORES_PER_CYCLE: Final = 1.0
#: Cycles of a loop's turn besides its work.
LOOP_CYCLES: Final = 1.5
#: Bytes of an instruction on vectors with an address: x86 has 5 to 9, with EVEX 7 to 11, AArch64 4.
CODE_BYTES: Final = 8
#: Bytes of instructions that are taken apart in a cycle where the caches for them do not hold the loop (16 on
#: Intel's cores up to Ice Lake and on AMD's up to Zen 4, 16 to 32 on later ones).
DECODED_BYTES: Final = 16
#: Code that is run without being taken apart again, by the bytes of the first cache for data: 3 to 6 thousand
#: decoded instructions (4096 on Zen 3 and Golden Cove's forerunners) beside 32 to 48 KB.
CODE_SHARE: Final = 0.5
#: Rows from which on squares are transposed in registers (``codegen/accesses.py``).
SMALLEST_SQUARE: Final = 4
#: Part of the shorter terms that the longest one does not hide.
SHOWN: Final = 0.3


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of the busiest thread, by what they are spent for. They overlap: see :attr:`cycles`."""

    issue: float = 0.0
    latency: float = 0.0
    second: float = 0.0
    third: float = 0.0
    memory: float = 0.0
    loops: float = 0.0
    code: float = 0.0
    threads: float = 0.0

    @property
    def cycles(self) -> float:
        """The longest term, a part of the others, and what nothing hides."""
        work = max(self.issue, self.latency)
        terms = (work, self.second, self.third, self.memory, self.loops, self.code)
        longest = max(terms)
        return longest + SHOWN * (sum(terms) - longest) + self.threads

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def seconds(tree: LoopTree, machine: Machine) -> float:
    """The time of a tree by the model, nest after nest."""
    return sum(cost_of(LoopTree((nest,)), machine).cycles for nest in tree.nests) / machine.clock_hz


def cost_of(tree: LoopTree, machine: Machine) -> Cost:
    """The terms of a tree."""
    total = [0.0] * 6
    code = fetched = 0.0
    started: dict[str, float] = {}
    alone, shared = _levels(machine, 1), _levels(machine, machine.threads)
    room = CODE_SHARE * first_cache(machine.target)
    for loops, work in tree.works():
        turn = _turn(loops, machine.threads)
        levels = alone if turn.shared is None else shared
        instructions, *terms = _cost(loops, work, turn, machine.target, levels)
        for n, value in enumerate(terms):
            total[n] += value
        body = CODE_BYTES * instructions
        code += body * turn.written
        # a body that no cache holds is fetched in each turn, one of several by who runs through all of them
        fetched += body * (turn.turns if body > room else turn.written * turn.passes)
        if machine.threads > 1 and turn.shared is not None:
            count = 1.0
            for name, extent, kind, _, _ in loops:
                if kind == "parallel":
                    started[name] = count
                count *= extent
    issue, latency, second, third, memory, turns = total
    forks = machine.fork_cycles * sum(started.values())
    fetches = fetched / DECODED_BYTES if code > room else 0.0
    return Cost(issue, latency, second, third, memory, turns, fetches, forks)


class _Turn(NamedTuple):
    """Loops around a work: iterations of those that are expanded, of the others (of the busiest thread).

    ``last`` is the innermost of the others, ``share`` the busiest thread's part of all iterations. Expanded
    are those inside of ``last``: written out around it a loop saves nothing, as its copies share no registers
    and each has branches of its own; the code is there ``written`` times, and run through in each of
    ``passes``.
    """

    expanded: list[Loop]
    copies: float
    turns: float
    vector: Loop | None
    shared: Loop | None
    last: str | None
    share: float
    written: float
    passes: float


def _turn(loops: Sequence[Loop], threads: int) -> _Turn:
    expanded: list[Loop] = []
    copies = turns = share = written = passes = 1.0
    vector: Loop | None = None
    shared: Loop | None = None
    last: str | None = None
    for loop in loops:
        kind = loop.kind
        if kind == "unroll" or kind == "vector":
            # the expanded loops inside, among whose copies loads are shared
            expanded.append(loop)
            copies *= loop.extent
            if vector is None and kind == "vector":
                vector = loop
        elif kind == "serial" or kind == "parallel":
            if copies == written == 1:
                passes *= loop.extent / loop.written
            # what is written out around a loop is turns
            turns *= copies * loop.extent
            written *= copies * loop.written
            copies = 1.0
            expanded.clear()
            last = loop.name
            if shared is None and kind == "parallel":
                shared = loop
                busy = min(threads, loop.extent)
                share = -(-loop.extent // busy) / loop.extent
    return _Turn(expanded, copies, share * turns, vector, shared, last, share, written, share * passes)


class _Level(NamedTuple):
    """A memory level with the bytes of room that a thread has there, and what comes from the next one."""

    term: int
    room: float
    bandwidth: float


def _levels(machine: Machine, threads: int) -> list[_Level]:
    memory = machine.target.memory
    return [
        _Level(min(at, 2), HELD_SHARE * level.size / min(threads, level.shared_by), further.bandwidth)
        for at, (level, further) in enumerate(pairwise(memory))
        if level.size is not None
    ]


def _cost(
    loops: Sequence[Loop], work: Work, turn: _Turn, target: Target, levels: Sequence[_Level]
) -> tuple[float, ...]:
    """The instructions of a turn's code, and cycles by terms."""
    expanded, copies, turns, vector, _, last, share, _, _ = turn
    outside = [a for a in work.accesses if not a.kept]
    latency = 0.0
    if work.instruction:
        instructions = copies
        issue = copies * turns * _instruction_cycles(work, target)
    else:
        lanes = 1.0
        if vector is not None:
            # iterations of the vector loop that one instruction does
            full = max(1, target.preferred_vector_bits // 8 // work.element)
            lanes = vector.extent / -(-vector.extent // full)
        loads = stores = 0.0
        for a in outside:
            count = _instances(a, expanded, lanes)
            if a.writes:
                stores += count
            else:
                loads += count
        operations = copies / lanes * work.operations
        instructions = operations + loads + stores
        started = max(operations / target.fma_per_cycle, loads / LOADS_PER_CYCLE, stores / STORES_PER_CYCLE)
        kept = [a for a in work.accesses if a.kept and a.writes]
        if vector is not None and not kept:
            # a loop over vectors
            instructions /= max(1.0, vector.extent / lanes)
        # steps of a sum that are written out
        steps = prod(each.extent for each in expanded if kept and each.name not in kept[0].loops)
        # what has no register is read and written at each step, and waited for
        spilled = _registers(work, expanded, lanes) - target.vector_registers if expanded else 0.0
        if spilled > 0:
            started += steps * (spilled / LOADS_PER_CYCLE + spilled / STORES_PER_CYCLE)
        issue = turns * started
        # each step waits for the one before, all sums of a tile side by side
        if kept and last is not None and len(outside) < len(work.accesses):
            if any(a.writes and last not in a.loops for a in work.accesses):
                latency = turns * steps * target.fma_latency
    second, third, memory = _traffic(loops, outside, levels, share)
    # the more work there is in a turn, the more of what its end takes runs beside it
    ends = turns * LOOP_CYCLES * LOOP_CYCLES / (LOOP_CYCLES + issue / turns)
    return instructions, issue, latency, second, third, memory, ends


def _registers(work: Work, expanded: Sequence[Loop], lanes: float) -> float:
    """Vectors that are alive at once: what is kept, what copies share until the last one has read it."""
    kept: dict[str, float] = {}
    shared = 1.0
    for a in work.accesses:
        if a.kept:
            kept[a.buffer] = max(kept.get(a.buffer, 0.0), _instances(a, expanded, lanes))
        elif not a.writes:
            shared += _shared(a, expanded, lanes)
    return sum(kept.values()) + shared


def _shared(a: Access, expanded: Sequence[Loop], lanes: float) -> float:
    """What is loaded for one turn of the outermost expanded loop that reads some of it again."""
    # lanes that overlap are other vectors all the same
    rows = {each.name for each in expanded if each.kind != "vector"}
    meeting: set[str] = set()
    for place in a.places:
        along = [name for term in place for _, name in term.inner if name in rows]
        if len(along) > 1:
            meeting.update(along)
    found = 0.0
    for name, extent, kind, _, _ in expanded:
        if found and name in a.loops:
            found *= _in_lanes(a, name, extent, expanded, lanes) if kind == "vector" else extent
        elif not found and kind != "vector" and (name in meeting or name not in a.loops):
            found = 1.0
    return found


def _instruction_cycles(work: Work, target: Target) -> float:
    for row in target.instructions:
        if row.name == work.instruction:
            return 1 / row.per_cycle
    return 1.0


def _instances(a: Access, expanded: Sequence[Loop], lanes: float) -> float:
    """Instructions that an access takes in one turn of the innermost loop that is left."""
    count, moving = 1.0, 0
    for name, extent, kind, _, _ in expanded:
        if name in a.loops:
            moving += 1
            count *= _in_lanes(a, name, extent, expanded, lanes) if kind == "vector" else extent
    return count if moving < 2 or a.kept else min(count, _distinct(a, expanded, lanes))


def _in_lanes(a: Access, name: str, extent: int, expanded: Sequence[Loop], lanes: float) -> float:
    """Instructions of the lanes of a loop: vectors where elements lie together, or registers hold them.

    Elements a few apart are picked from whole vectors. Of elements in rows of their own squares are
    transposed where another expanded loop runs along these rows. Others are taken one by one.
    """
    vectors = extent / lanes
    if a.kept or name in a.together:
        return vectors
    for other, step in a.apart:
        if other == name:
            return min(float(extent), (2 * step - 1) * vectors)
    rows = max((each.extent for each in expanded if each.name in a.together), default=1)
    square = min(float(rows), lanes)
    return extent / square * (1 + log2(square)) if square >= SMALLEST_SQUARE else float(extent)


def _distinct(a: Access, expanded: Sequence[Loop], lanes: float) -> float:
    """The same where copies meet: taps of a window that two rows of a tile have in common are loaded once."""
    extents = {name: extent for name, extent, kind, _, _ in expanded if kind != "vector"}
    count = 1.0
    for name, extent, kind, _, _ in expanded:
        if kind == "vector" and name in a.loops:
            count *= _in_lanes(a, name, extent, expanded, lanes)
    for place in a.places:
        along, reach, step = 1, 0, 0
        for stride, inner, quotient, modulus in place:
            for c, name in inner:
                extent = extents.get(name, 1)
                if extent > 1:
                    if quotient > 1 or modulus:
                        return inf
                    along *= extent
                    reach += abs(stride * c) * (extent - 1)
                    step = gcd(step, stride * c)
        if reach:
            count *= min(along, reach // step + 1)
    return count


def _traffic(
    loops: Sequence[Loop], accesses: Sequence[Access], levels: Sequence[_Level], share: float
) -> tuple[float, float, float]:
    """Cycles that the second level, the third one and memory take to deliver what a thread reads."""
    out = [0.0, 0.0, 0.0]
    # by access the footprints for all loops from each depth on
    tables = [a.footprints(loops) for a in accesses]
    totals = [sum(each) for each in zip(*tables, strict=True)]
    for term, room, bandwidth in levels:
        if not totals or totals[0] <= room:
            # from the run before
            break
        out[term] += _misses(loops, accesses, tables, totals, room) * share / bandwidth
    return out[0], out[1], out[2]


def _misses(
    loops: Sequence[Loop],
    accesses: Sequence[Access],
    tables: Sequence[Sequence[int]],
    totals: Sequence[int],
    room: float,
) -> float:
    """Bytes that a level of so much ``room`` does not have when they are read."""
    depth = next((d for d in range(len(loops) + 1) if totals[d] <= room), len(loops))
    out = 0.0
    for a, table in zip(accesses, tables, strict=True):
        found = float(table[depth])
        for at in range(depth - 1, -1, -1):
            name, extent, *_ = loops[at]
            kept = totals[at + 1] <= room
            if name in a.loops:
                # the union where iterations overlap, each anew where they do not stay
                found *= extent
                if kept and table[at] < found:
                    found = float(table[at])
            elif not kept:
                found *= extent
        out += found
    return out
