"""Choices: every decision of the scheduler goes through one interface (ISA Mapper, Sec. 4).

:class:`Heuristics` is the rule of thumb for each kind. Another implementation may search, learn, or record:
the scheduler is deterministic but for what an approach answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

KINDS: Final[Mapping[str, str]] = {
    "transformation": "the program looked at next, where stages are no instructions; state: the first one",
    "program": "which of rewritten programs, all of them instructions, is done; state: the first one",
    "recurrence": "whether what no step before decides is done before all steps; state: the recurrence",
    "mapping": "the way in which a stage is an instruction; state: the stage",
    "blocks": "tiles along each axis that are computed together, and the order of the axes; state: the nest",
    "split": "the axis whose tiles are divided among the streams; state: the nest",
    "device": "the unit that does a tile; state: the dry run",
    "operands": "the memories in which an instruction finds its operands; state: the dry run",
    "path": "the source of a copy and its way; state: the dry run",
    "resident": "what stays near the units in a loop, one after another; the last option ends; state: it",
    "evict": "the copy that makes room; state: the dry run",
}


class Approach(Protocol):
    """Chooses one of several options: returns an index below their number."""

    def choose(self, kind: str, options: Sequence[Any], state: Any) -> int:
        """The index of the option that is taken; ``kind`` is one of :data:`KINDS`."""
        ...


class Heuristics:
    """The least value of ``option.cost`` where options have one, else the first: options come in the order of
    preference that their kind suggests, cheapest paths and farthest next uses first.
    """

    def choose(self, kind: str, options: Sequence[Any], state: Any) -> int:
        """See :class:`Approach`."""
        costs: list[Any] = [getattr(o, "cost", None) for o in options]
        if None in costs:
            return 0
        return costs.index(min(costs))
