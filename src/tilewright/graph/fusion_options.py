"""What is said about fusion: options, and what a way of joining groups is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tilewright.graph.groups import Group
from tilewright.graph.model import Graph


@dataclass(frozen=True, slots=True)
class FusionOptions:
    """What to fuse. The defaults are for a CPU.

    `epilogues`: element-wise operations after contractions and windows. `reductions`: chains over rows.
    `elementwise`: chains of element-wise operations. `through_movement`: contractions read their operands
    through transpositions and slices. `transposed_outputs`: a contraction stores its output transposed.
    `max_nodes` bounds a group, `max_depth` how deep its expressions nest.
    `chains`: a contraction, a reduction over its rows and a contraction with the rows are one group, if so
    many rows as a register tile has take no more than `chain_bytes`: a part of the second cache level.
    `cuts` are values that no group keeps to itself: one makes them, others read them.
    """

    epilogues: bool = True
    reductions: bool = True
    elementwise: bool = True
    through_movement: bool = True
    transposed_outputs: bool = True
    chains: bool = True
    chain_bytes: int = 1 << 19
    max_nodes: int = 64
    max_depth: int = 256
    cuts: frozenset[str] = frozenset()


class Fusion(Protocol):
    """A way of joining groups to larger ones, of one output each (`join_groups`)."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def __call__(self, graph: Graph, groups: Sequence[Group], options: FusionOptions) -> Sequence[Group]:
        """The groups, some of which are several of those given; none across `options.cuts`."""
        ...
