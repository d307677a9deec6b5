"""Passes over the model graph, and the list of those that every model goes through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.graph.model import Graph
from tilewright.graph.passes.base import Pass
from tilewright.graph.passes.batch_norm import FoldChannelAffine
from tilewright.graph.passes.block_bytes import BytesInBlocks
from tilewright.graph.passes.blocks import PackBlocks
from tilewright.graph.passes.copies import CopyValues, ValueCopy
from tilewright.graph.passes.fill import FILLED, FillBlocks
from tilewright.graph.passes.groups import MergeGroups
from tilewright.graph.passes.half import WidenHalf
from tilewright.graph.passes.identities import RemoveIdentities
from tilewright.graph.passes.lookups import SliceLookups
from tilewright.graph.passes.loops import WriteOutLoops
from tilewright.graph.passes.narrow import NarrowInputs
from tilewright.graph.passes.quantised import FoldDequantised, IntegerProducts, UnsignedActivations
from tilewright.graph.passes.requantised import FoldRequantised, SinkDequantised
from tilewright.graph.passes.scales import HoistScales
from tilewright.graph.passes.states import KeepStates, writes_state
from tilewright.graph.passes.subexpressions import ShareSubexpressions
from tilewright.graph.passes.views import SimplifyViews, SinkViews
from tilewright.support import Catalog

#: What every imported model goes through, in order. Constants were folded when types were inferred, but for
#: those that are stored quantised.
PASSES: Final[tuple[Pass, ...]] = (
    WidenHalf(),
    PackBlocks(),
    FoldDequantised(),
    RemoveIdentities(),
    FoldChannelAffine(),
    ShareSubexpressions(),
    HoistScales(),
    SliceLookups(),
    SimplifyViews(),
    SinkViews(),
    SimplifyViews(),
    ShareSubexpressions(),
)

#: What other packages add (entry points in the group ``tilewright.passes``): run after all of these.
ADDED: Final[Catalog[str, Pass]] = Catalog("passes", ())

#: The same for machines with instructions for products of unsigned and signed bytes.
INTEGER_PASSES: Final[tuple[Pass, ...]] = (
    WidenHalf(),
    UnsignedActivations(),
    SinkDequantised(),
    IntegerProducts(),
    FoldRequantised(),
    *PASSES[1:],
)


def simplify(
    graph: Graph,
    passes: Sequence[Pass] = PASSES,
    observe: Callable[[str, Graph], None] | None = None,
) -> Graph:
    """Run passes in order, then those of other packages.

    `observe` is called with each one's name and result (to dump, time or verify).
    """
    for step in (*passes, *ADDED.values()):
        graph = step(graph)
        if observe is not None:
            observe(step.name, graph)
    return graph


__all__ = [
    "FILLED",
    "INTEGER_PASSES",
    "PASSES",
    "BytesInBlocks",
    "CopyValues",
    "FillBlocks",
    "FoldChannelAffine",
    "FoldDequantised",
    "FoldRequantised",
    "HoistScales",
    "IntegerProducts",
    "KeepStates",
    "MergeGroups",
    "NarrowInputs",
    "PackBlocks",
    "Pass",
    "RemoveIdentities",
    "ShareSubexpressions",
    "SimplifyViews",
    "SinkDequantised",
    "SinkViews",
    "SliceLookups",
    "UnsignedActivations",
    "ValueCopy",
    "WidenHalf",
    "WriteOutLoops",
    "simplify",
    "writes_state",
]
