"""The rows of a reduction: which axes of its input it combines, read off its computation."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.graph.model import Array, Node, TensorType
from tilewright.graph.program import nodes_program
from tilewright.ir import as_size, stmt_loads


def reduced_axes(
    node: Node, types: Mapping[str, TensorType], constants: Mapping[str, Array]
) -> frozenset[int]:
    """The axes of the node's first input that some stage of its program reduces over.

    They are found where reduction iterators index a buffer of the input's shape, so no operator is named.
    """
    made = nodes_program([node], types, constants, node.used_outputs)
    shape = types[node.inputs[0]].shape
    axes: set[int] = set()
    for stage in made.program.stages:
        reduced = {it.name for it in stage.iters if it.kind == "red"}
        if not reduced:
            continue
        for load in stmt_loads(stage.body):
            buffer = made.program.buffer(load.buffer)
            if tuple(as_size(size) for size in buffer.shape) == shape:
                axes.update(at for at, index in enumerate(load.indices) if index.vars & reduced)
    return frozenset(axes)
