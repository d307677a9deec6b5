"""The analytic cost model: cycles of a loop tree, term by term.

Instructions that start in a cycle, the latency of sums that wait for one another, what each memory level must
deliver, loops and threads. Where one iteration's data stays in a level, the next one reads there what it
shares; else it comes again from further out (the usual model of nests over a hierarchy of caches).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from tilewright.cost.machine import Machine
from tilewright.cost.tree import Access, Loop, LoopTree, Work

#: Part of a cache level that is there for the data of a nest.
KEPT: Final = 0.6
#: Loads of full vectors, and stores, that start in a cycle.
LOADS_PER_CYCLE: Final = 2.0
STORES_PER_CYCLE: Final = 1.0
#: Cycles of a loop's turn besides its work.
LOOP_CYCLES: Final = 1.5
#: Cycles to start the threads of a parallel loop, and to wait for them.
FORK_CYCLES: Final = 3000.0
#: Part of the shorter terms that the longest one does not hide.
SHOWN: Final = 0.3
#: Cycles of the clock of a machine that does not say.
CLOCK_HZ: Final = 3.0e9


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of the busiest thread, by what they are spent for. They overlap: see :attr:`cycles`."""

    issue: float = 0.0
    latency: float = 0.0
    second: float = 0.0
    third: float = 0.0
    memory: float = 0.0
    loops: float = 0.0
    threads: float = 0.0

    @property
    def cycles(self) -> float:
        """The longest term, a part of the others, and what nothing hides."""
        work = max(self.issue, self.latency)
        terms = (work, self.second, self.third, self.memory)
        longest = max(terms)
        return longest + SHOWN * (sum(terms) - longest) + self.loops + self.threads

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def seconds(tree: LoopTree, machine: Machine) -> float:
    """The time of a tree by the model, nest after nest."""
    hz = machine.target.clock_hz or CLOCK_HZ
    return sum(cost_of(LoopTree((nest,)), machine).cycles for nest in tree.nests) / hz


def cost_of(tree: LoopTree, machine: Machine) -> Cost:
    """The terms of a tree."""
    total = Cost()
    for loops, work in tree.works():
        total += _cost(loops, work, machine)
    return total + _threads(tree, machine)


def _cost(loops: Sequence[Loop], work: Work, machine: Machine) -> Cost:
    target = machine.target
    share = _share(loops, machine)
    trips = 1.0
    for loop in loops:
        trips *= loop.extent
    trips *= share
    lanes = _lanes(loops, work, machine)
    # the expanded loops inside, among whose copies loads are shared
    expanded = [loop for loop in loops if loop.kind in ("unroll", "vector")]
    steps = trips / _product(expanded)
    vectors = _product(expanded) / lanes
    if work.instruction:
        operations = _instruction_cycles(work, machine)
        issue = trips * operations
        latency = 0.0
    else:
        loads = sum(_instances(a, work, expanded, lanes) for a in work.accesses if not (a.kept or a.writes))
        stores = sum(_instances(a, work, expanded, lanes) for a in work.accesses if a.writes and not a.kept)
        operations = vectors * work.operations / target.fma_per_cycle
        issue = steps * max(operations, loads / LOADS_PER_CYCLE, stores / STORES_PER_CYCLE)
        # each step of a sum waits for the one before, all sums of a tile side by side
        summed = any(a.writes and a.kept for a in work.accesses) and _carries(loops, work)
        latency = steps * target.fma_latency if summed else 0.0
    levels = _traffic(loops, work, machine)
    turns = share * _product([x for x in loops if x.kind in ("serial", "parallel")])
    return Cost(issue, latency, levels[0], levels[1], levels[2], turns * LOOP_CYCLES)


def _instruction_cycles(work: Work, machine: Machine) -> float:
    for row in machine.target.instructions:
        if row.name == work.instruction:
            return 1 / row.per_cycle
    return 1.0


def _product(loops: Sequence[Loop]) -> float:
    out = 1.0
    for loop in loops:
        out *= loop.extent
    return out


def _share(loops: Sequence[Loop], machine: Machine) -> float:
    """The part of all iterations that the busiest thread has."""
    for loop in loops:
        if loop.kind == "parallel":
            threads = min(machine.threads, loop.extent)
            return -(-loop.extent // threads) / loop.extent
    return 1.0


def _lanes(loops: Sequence[Loop], work: Work, machine: Machine) -> float:
    """Iterations of the vector loop that one instruction does; 1 without such a loop."""
    vector = next((loop for loop in loops if loop.kind == "vector"), None)
    if vector is None:
        return 1.0
    full = max(1, machine.target.preferred_vector_bits // 8 // work.element)
    return vector.extent / -(-vector.extent // full)


def _instances(a: Access, work: Work, expanded: Sequence[Loop], lanes: float) -> float:
    """Instructions that an access takes in one turn of the innermost loop that is left."""
    count = 1.0
    for loop in expanded:
        moved = frozenset(name for name, at in work.binding.items() if loop.name in at.vars)
        if not a.moves(moved):
            continue
        if loop.kind == "vector":
            together = all(a.is_contiguous(name) for name in moved if a.moves(frozenset((name,))))
            count *= loop.extent / lanes if together else loop.extent
        else:
            count *= loop.extent
    return count


def _carries(loops: Sequence[Loop], work: Work) -> bool:
    """Whether the innermost loop that is left adds to what it has just written."""
    left = [loop for loop in loops if loop.kind in ("serial", "parallel") and loop.extent > 1]
    if not left:
        return False
    moved = frozenset(name for name, at in work.binding.items() if left[-1].name in at.vars)
    return any(a.writes and not a.moves(moved) for a in work.accesses)


def _traffic(loops: Sequence[Loop], work: Work, machine: Machine) -> list[float]:
    """Cycles that the second level, the third one and memory take to deliver what a thread reads."""
    target = machine.target
    share = _share(loops, machine)
    outside = [a for a in work.accesses if not a.kept]
    out = [0.0, 0.0, 0.0]
    # footprints for all loops from each depth on
    inner: dict[str, int] = {}
    tables: list[list[int]] = []
    for loop in reversed(loops):
        tables.append([work.footprint(a, inner) for a in outside])
        inner[loop.name] = loop.extent
    tables.append([work.footprint(a, inner) for a in outside])
    tables.reverse()
    for at, level in enumerate(target.memory[:-1]):
        if level.size is None:
            continue
        parallel = any(loop.kind == "parallel" for loop in loops)
        sharing = min(machine.threads, level.shared_by) if parallel else 1
        room = KEPT * level.size / sharing
        if sum(tables[0]) <= room:
            # from the run before
            break
        moved = sum(_misses(loops, work, outside, tables, room)) * share
        out[min(at, 2)] += moved / target.memory[at + 1].bandwidth
    return out


def _misses(
    loops: Sequence[Loop],
    work: Work,
    accesses: Sequence[Access],
    tables: Sequence[Sequence[int]],
    room: float,
) -> list[float]:
    """Bytes of each access that a level of so much ``room`` does not have when they are read."""
    depth = next((d for d in range(len(loops) + 1) if sum(tables[d]) <= room), len(loops))
    found = [float(n) for n in tables[depth]]
    for at in range(depth - 1, -1, -1):
        loop = loops[at]
        moved = frozenset(name for name, i in work.binding.items() if loop.name in i.vars)
        kept = sum(tables[at + 1]) <= room
        for n, a in enumerate(accesses):
            if not (kept and not a.moves(moved)):
                # the union where iterations overlap, each anew where they do not stay
                each = found[n] * loop.extent
                found[n] = min(each, float(tables[at][n])) if kept else each
    return found


def _threads(tree: LoopTree, machine: Machine) -> Cost:
    """What starting threads costs."""
    started: Mapping[str, float] = {
        loop.name: _product(loops[:at])
        for loops, _ in tree.works()
        for at, loop in enumerate(loops)
        if loop.kind == "parallel" and machine.threads > 1
    }
    return Cost(threads=FORK_CYCLES * sum(started.values()))
