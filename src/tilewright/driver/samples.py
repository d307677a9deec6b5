"""Inputs to try a model with, drawn from a seed."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from tilewright.driver.feeds import tensor_info
from tilewright.driver.fixed_sizes import import_settled
from tilewright.frontend import Shapes, Source
from tilewright.graph import Graph, Kind, find_operator
from tilewright.ir import index_of, int_lower
from tilewright.runtime import TensorInfo, draw_feeds

Array = npt.NDArray[Any]


def index_bounds(graph: Graph) -> dict[str, int]:
    """For each input that indexes a table (the ids given to an embedding), the least size of such a table."""
    bounds: dict[str, int] = {}
    for value in graph.inputs:
        if not graph.types[value].dtype.startswith(("i", "u")):
            continue
        reach = {value}
        for node in graph.nodes:
            if not reach.intersection(node.used_inputs):
                continue
            entry = find_operator(node)
            if entry is not None and (entry.kind is Kind.VIEW or node.op == "Cast"):
                reach.update(node.used_outputs)
            elif node.op == "Gather" and node.inputs[1] in reach:
                table = graph.types[node.inputs[0]].sizes
                axis = node.attributes.get("axis", 0)
                size = table[axis if isinstance(axis, int) else 0]
                fewest = int_lower(index_of(size), {}) or 0
                bounds[value] = min(fewest, bounds.get(value, fewest))
    return bounds


def model_samples(
    model: Source, shapes: Shapes | None = None, seed: int = 0
) -> tuple[tuple[TensorInfo, ...], dict[str, Array]]:
    """The inputs of a model and random arrays for them, without compiling it.

    Raises what compiling raises.
    """
    graph = import_settled(model, shapes=shapes)
    infos = tuple(tensor_info(graph, value) for value in graph.inputs)
    return infos, draw_feeds(infos, index_bounds(graph), seed)
