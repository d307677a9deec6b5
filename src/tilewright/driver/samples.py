"""Inputs to try a model with, drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.driver.feeds import TensorInfo
from tilewright.frontend import Shapes, Source, import_onnx
from tilewright.graph import Graph, Kind, find_operator

Array = npt.NDArray[Any]

SMALL_INTEGERS = 2
"""Integer inputs that index nothing are drawn from 0 up to, not including, this."""


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
                bounds[value] = min(size, bounds.get(value, size))
    return bounds


def draw_feeds(inputs: Sequence[TensorInfo], bounds: dict[str, int], seed: int = 0) -> dict[str, Array]:
    """Normal numbers for float inputs, indices within their bounds for integers; the same for equal seeds."""
    generator = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for info in inputs:
        if info.dtype.kind in "iu":
            high = max(1, bounds.get(info.name, SMALL_INTEGERS))
            feeds[info.name] = generator.integers(0, high, info.shape).astype(info.dtype)
        elif info.dtype.kind == "b":
            feeds[info.name] = generator.integers(0, 2, info.shape).astype(info.dtype)
        else:
            feeds[info.name] = np.asarray(generator.standard_normal(info.shape)).astype(info.dtype)
    return feeds


def model_samples(
    model: Source, shapes: Shapes | None = None, seed: int = 0
) -> tuple[tuple[TensorInfo, ...], dict[str, Array]]:
    """The inputs of a model and random arrays for them, without compiling it.

    Raises what compiling raises.
    """
    graph = import_onnx(model, shapes=shapes)
    infos = tuple(TensorInfo.of(value, graph.types[value]) for value in graph.inputs)
    return infos, draw_feeds(infos, index_bounds(graph), seed)
