"""The analytic cost model: cycles of a loop tree, term by term.

Instructions that start in a cycle, the latency of sums that wait for one another, what each memory level must
deliver, loops and threads. Where one iteration's data stays in a level, the next one reads there what it
shares; else it comes again from further out (the usual model of nests over a hierarchy of caches).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

from tilewright.cost.machine import Machine
from tilewright.cost.shares import HELD_SHARE
from tilewright.cost.tree import Access, Loop, LoopTree, Work

CostModel: TypeAlias = Callable[[LoopTree, Machine], float]
"""What says how many seconds loops take on a machine: :func:`seconds`, or another such function."""

#: Loads of full vectors, and stores, that start in a cycle.
LOADS_PER_CYCLE: Final = 2.0
STORES_PER_CYCLE: Final = 1.0
#: Cycles of a loop's turn besides its work.
LOOP_CYCLES: Final = 1.5
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
    return sum(cost_of(LoopTree((nest,)), machine).cycles for nest in tree.nests) / machine.clock_hz


def cost_of(tree: LoopTree, machine: Machine) -> Cost:
    """The terms of a tree."""
    total = [0.0] * 6
    started: dict[str, float] = {}
    for loops, work in tree.works():
        for n, value in enumerate(_cost(loops, work, machine)):
            total[n] += value
        if machine.threads > 1:
            count = 1.0
            for loop in loops:
                if loop.kind == "parallel":
                    started[loop.name] = count
                count *= loop.extent
    issue, latency, second, third, memory, turns = total
    forks = machine.fork_cycles * sum(started.values())
    return Cost(issue, latency, second, third, memory, turns, forks)


def _cost(loops: Sequence[Loop], work: Work, machine: Machine) -> tuple[float, ...]:
    target = machine.target
    shared = next((loop for loop in loops if loop.kind == "parallel"), None)
    share = 1.0
    if shared is not None:
        # the part of all iterations that the busiest thread has
        threads = min(machine.threads, shared.extent)
        share = -(-shared.extent // threads) / shared.extent
    # the expanded loops inside, among whose copies loads are shared
    expanded = [loop for loop in loops if loop.kind in ("unroll", "vector")]
    left = [loop for loop in loops if loop.kind in ("serial", "parallel")]
    copies, turns = _product(expanded), share * _product(left)
    trips = copies * turns
    lanes = _lanes(expanded, work, machine)
    if work.instruction:
        issue, latency = trips * _instruction_cycles(work, machine), 0.0
    else:
        loads = stores = 0.0
        for a in work.accesses:
            if not a.kept:
                count = _instances(a, expanded, lanes)
                loads, stores = (loads, stores + count) if a.writes else (loads + count, stores)
        operations = copies / lanes * work.operations / target.fma_per_cycle
        issue = turns * max(operations, loads / LOADS_PER_CYCLE, stores / STORES_PER_CYCLE)
        # each step of a sum waits for the one before, all sums of a tile side by side
        summed = left and any(a.writes and a.kept for a in work.accesses)
        carries = summed and any(a.writes and left[-1].name not in a.loops for a in work.accesses)
        latency = turns * target.fma_latency if carries else 0.0
    second, third, memory = _traffic(loops, work, machine, share, shared is not None)
    return issue, latency, second, third, memory, turns * LOOP_CYCLES


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


def _lanes(expanded: Sequence[Loop], work: Work, machine: Machine) -> float:
    """Iterations of the vector loop that one instruction does; 1 without such a loop."""
    vector = next((loop for loop in expanded if loop.kind == "vector"), None)
    if vector is None:
        return 1.0
    full = max(1, machine.target.preferred_vector_bits // 8 // work.element)
    return vector.extent / -(-vector.extent // full)


def _instances(a: Access, expanded: Sequence[Loop], lanes: float) -> float:
    """Instructions that an access takes in one turn of the innermost loop that is left."""
    count = 1.0
    for loop in expanded:
        if loop.name in a.loops:
            together = loop.kind == "vector" and loop.name in a.together
            count *= loop.extent / lanes if together else loop.extent
    return count


def _traffic(
    loops: Sequence[Loop], work: Work, machine: Machine, share: float, parallel: bool
) -> tuple[float, float, float]:
    """Cycles that the second level, the third one and memory take to deliver what a thread reads."""
    target = machine.target
    outside = [a for a in work.accesses if not a.kept]
    out = [0.0, 0.0, 0.0]
    # by access the footprints for all loops from each depth on
    tables = [a.footprints(loops) for a in outside]
    totals = [sum(each) for each in zip(*tables, strict=True)] or [0]
    for at, level in enumerate(target.memory[:-1]):
        if level.size is None:
            continue
        sharing = min(machine.threads, level.shared_by) if parallel else 1
        room = HELD_SHARE * level.size / sharing
        if totals[0] <= room:
            # from the run before
            break
        moved = _misses(loops, outside, tables, totals, room) * share
        out[min(at, 2)] += moved / target.memory[at + 1].bandwidth
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
    found = [float(table[depth]) for table in tables]
    for at in range(depth - 1, -1, -1):
        loop = loops[at]
        kept = totals[at + 1] <= room
        for n, a in enumerate(accesses):
            if loop.name in a.loops:
                # the union where iterations overlap, each anew where they do not stay
                each = found[n] * loop.extent
                found[n] = min(each, float(tables[n][at])) if kept else each
            elif not kept:
                found[n] *= loop.extent
    return sum(found)
