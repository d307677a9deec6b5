"""Gathers at known places that lie together: slices, which contractions read through.

    before                                     after
    q = Gather(qkv, 0, axis=0)                 t = Slice(qkv, 0:1, axis 0)
                                               q = Reshape(t)

Exporters take queries, keys and values so from one product; a gather would copy each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.graph.model import Graph, Node
from tilewright.graph.passes.nodes import emit_slice, reshape_node
from tilewright.graph.rewrite import Rewriter
from tilewright.graph.size_values import is_sized
from tilewright.ir import is_open


@dataclass(frozen=True, slots=True)
class SliceLookups:
    """Turn gathers of constant neighbours along an axis into slices."""

    name: ClassVar[str] = "slice-lookups"

    def __call__(self, graph: Graph) -> Graph:
        """Rewrite wherever the places are known and inside the axis."""
        rewriter = Rewriter(graph)
        changed = False
        for old in graph.nodes:
            node = rewriter.current(old)
            found = _run(rewriter, node)
            if found is None:
                rewriter.keep(node)
                continue
            changed = True
            axis, start, count = found
            (output,) = node.outputs
            result = rewriter.types[output].sizes
            sizes = rewriter.types[node.inputs[0]].sizes
            same = (*sizes[:axis], count, *sizes[axis + 1 :]) == result
            part = output if same else rewriter.fresh(f"{output}.part")
            emit_slice(rewriter, node.inputs[0], axis, start, count, part, node)
            if not same:
                rewriter.keep(reshape_node(rewriter, part, result, output, node.name))
        return rewriter.finish() if changed else graph


def _run(rewriter: Rewriter, node: Node) -> tuple[int, int, int] | None:
    """The axis of a gather, and where along it the neighbours start that it takes, and how many they are."""
    if node.op != "Gather" or node.domain or node.inputs[0] in rewriter.constants:
        return None
    places, source = rewriter.constants.get(node.inputs[1]), rewriter.types[node.inputs[0]]
    known = source.is_static and rewriter.types[node.outputs[0]].is_static
    if places is None or places.size == 0 or not known:
        return None
    axis = node.attributes.get("axis", 0)
    assert isinstance(axis, int)
    axis %= source.rank
    size = source.sizes[axis]
    if is_open(size) or is_sized(places):
        return None
    flat = [int(n) + size * (n < 0) for n in places.reshape(-1)]
    if flat != list(range(flat[0], flat[0] + len(flat))) or flat[0] < 0 or flat[-1] >= size:
        return None
    return axis, flat[0], len(flat)
