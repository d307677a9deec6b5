"""Sections of a run: consecutive kernels that take parts of a batch all the way through, a thread each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tilewright.driver.units import Unit
from tilewright.graph import MemoryPlan, Step, plan_memory

#: What one lane writes shares no page with what another does.
LANE_PAGE: Final = 4096


@dataclass(frozen=True, slots=True)
class Section:
    """Units ``units`` of a run, in order, each called once for each of ``parts`` parts.

    With one part the section is one unit, called once, on all threads. ``inner`` are the values that only
    the section's own units see: of those only parts exist, one a lane.
    """

    units: tuple[int, ...]
    parts: int
    inner: frozenset[str]

    def lane_parts(self, lanes: int) -> list[range]:
        """The parts that each lane works on."""
        cuts = [self.parts * lane // lanes for lane in range(lanes + 1)]
        return [range(a, b) for a, b in pairwise(cuts)]


def find_sections(
    units: Sequence[Unit], roots: Mapping[str, str], kept: Collection[str]
) -> tuple[Section, ...]:
    """The sections of a run, in order.

    ``roots`` maps each value to the one whose buffer holds it; the values ``kept`` are needed as a whole.
    """
    runs: list[list[int]] = []
    written: set[str] = set()
    for at, unit in enumerate(units):
        whole = {roots[value] for name, value in unit.inputs.items() if name not in unit.sliced}
        whole.update(roots[value] for value in unit.only_checked)
        together = runs and unit.parts > 1 and units[runs[-1][-1]].parts == unit.parts
        if together and not whole & written:
            runs[-1].append(at)
        else:
            runs.append([at])
            written = set()
        written.update(roots[value] for value in unit.outputs.values())
    users: dict[str, set[int]] = {}
    for number, run in enumerate(runs):
        for at in run:
            unit = units[at]
            for value in (*unit.inputs.values(), *unit.only_checked, *unit.outputs.values()):
                users.setdefault(roots[value], set()).add(number)
    sections: list[Section] = []
    for number, run in enumerate(runs):
        parts = units[run[0]].parts
        made = {roots[value] for at in run for value in units[at].outputs.values()}
        inner = {value for value in made if users[value] == {number} and value not in kept}
        sections.append(Section(tuple(run), parts, frozenset(inner if parts > 1 else ())))
    return tuple(sections)


def plan_lane(section: Section, moves: Sequence[Step], sizes: Mapping[str, int]) -> MemoryPlan:
    """Where a lane has its part of the inner values. ``sizes`` are those of whole values."""
    parts = {value: sizes[value] // section.parts for value in section.inner}
    found = plan_memory([moves[at] for at in section.units], parts)
    return MemoryPlan(found.offsets, -(-found.size // LANE_PAGE) * LANE_PAGE, found.shared)


def section_step(section: Section, moves: Sequence[Step], lanes: str | None) -> Step:
    """The section as one step: values from outside, and ``lanes``, the memory of all its lanes."""
    steps = [moves[at] for at in section.units]
    if len(steps) == 1 and lanes is None:
        return steps[0]
    reads = dict.fromkeys(v for step in steps for v in step.reads if v not in section.inner)
    writes = dict.fromkeys(v for step in steps for v in step.writes if v not in section.inner)
    # what an earlier unit of the section writes, a later one may read
    outer = tuple(v for v in reads if v not in writes)
    return Step(outer, (*writes, *(() if lanes is None else (lanes,))))
