"""Loops in a model, unrolled: the nodes of one step under names of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tilewright.graph.model import Array, Attribute, Node, Subgraph
from tilewright.graph.size_values import array_of_sizes

#: Steps and nodes that a loop may be unrolled to.
MAX_STEPS: Final = 1024
MAX_NODES: Final = 100_000

#: The version of the standard's operators that nodes made here mean.
VERSION: Final = 21


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step: its nodes and constants, and the values that are the body's outputs in it."""

    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    outputs: tuple[str, ...]


def instance(body: Subgraph, inputs: Sequence[str], prefix: str) -> Step:
    """The body with its inputs replaced, and everything that it makes renamed by a prefix."""
    names = {"": "", **dict(zip(body.inputs, inputs, strict=True))}
    nodes, constants = _renamed(body, names, prefix)
    return Step(nodes, constants, tuple(names.get(value, value) for value in body.outputs))


def _renamed(body: Subgraph, names: dict[str, str], prefix: str) -> tuple[tuple[Node, ...], dict[str, Array]]:
    made = [value for node in body.nodes for value in node.used_outputs]
    names |= {value: f"{prefix}{value}" for value in (*body.constants, *made)}
    constants = {names[value]: array for value, array in body.constants.items()}
    nodes = [
        replace(
            node,
            inputs=tuple(names.get(value, value) for value in node.inputs),
            outputs=tuple(names.get(value, value) for value in node.outputs),
            attributes={key: _inner(value, names, prefix) for key, value in node.attributes.items()},
            name=node.name and f"{prefix}{node.name}",
        )
        for node in body.nodes
    ]
    return tuple(nodes), constants


def _inner(value: Attribute, names: Mapping[str, str], prefix: str) -> Attribute:
    """A graph in an attribute of the body, which may read what the body makes."""
    if not isinstance(value, Subgraph):
        return value
    inside = dict(names) | {name: f"{prefix}{name}" for name in value.inputs}
    nodes, constants = _renamed(value, inside, prefix)
    return Subgraph(
        inputs=tuple(inside[name] for name in value.inputs),
        outputs=tuple(inside.get(name, name) for name in value.outputs),
        nodes=nodes,
        constants=constants,
    )


def stacked(
    values: Sequence[str], output: str, axis: int, prefix: str
) -> tuple[list[Node], dict[str, Array]]:
    """The nodes that join values along a new axis, and their constants."""
    axes = f"{prefix}axes"
    parts = [f"{prefix}part{at}" for at in range(len(values))]
    nodes = [
        Node("Unsqueeze", (value, axes), (part,), version=VERSION)
        for value, part in zip(values, parts, strict=True)
    ]
    nodes.append(Node("Concat", tuple(parts), (output,), {"axis": axis}, version=VERSION))
    return nodes, {axes: np.array([axis], np.int64)}


def taken(value: str, at: int, axis: int, output: str) -> tuple[Node, dict[str, Array]]:
    """The node that takes one slice of a value along an axis, which vanishes, and its constant."""
    index = f"{output}.index"
    node = Node("Gather", (value, index), (output,), {"axis": axis}, version=VERSION)
    return node, {index: array_of_sizes([at]).reshape(())}
