"""Stages of a model: what comes before data has said a size, and what comes after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilewright.graph import Array, Graph, ListType, Node, TensorType
from tilewright.ir import Size, base_symbols


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A part of a model, and the ``counts`` that are read before it runs, from values that are there.

    Behind it come nodes that run graphs: ``controls``.
    """

    graph: Graph
    counts: Mapping[str, tuple[str, int, bool]]
    controls: tuple[Node, ...] = ()


def stages_of(graph: Graph) -> list[Stage]:
    """The stages of a graph in the order in which they run; one where no data says a size.

    The graph's outputs are its model's, then the values that say sizes.
    """
    if not graph.counts and not graph.controls and not graph.lists:
        return [Stage(graph, {})]
    level = dict.fromkeys((*graph.inputs, *graph.constants), 0)
    # what follows a plan may read what others behind it have made
    behind: dict[str, int] = {}
    reads: dict[str, int] = {}
    planned: set[str] = set()

    def reached(symbols: Iterable[str]) -> int:
        """The stage in which some sizes are known."""
        for symbol in symbols:
            if symbol in graph.counts and symbol not in reads:
                value = graph.counts[symbol][0]
                reads[symbol] = level[value] + (value in planned)
        return max((reads[symbol] for symbol in symbols if symbol in graph.counts), default=0)

    numbered: list[tuple[int, Node]] = []
    for node in graph.nodes:
        known = {**level, **behind} if _is_control(node, graph) else level
        at = max((known[value] for value in node.used_inputs), default=0)
        at = max(at, reached(_symbols(node, graph)))
        numbered.append((at, node))
        level.update(dict.fromkeys(node.used_outputs, at + _is_control(node, graph)))
        behind.update(dict.fromkeys(node.used_outputs, at) if _is_control(node, graph) else {})
        planned.update(() if _is_control(node, graph) else node.used_outputs)
    reached(graph.counts)
    last = max([*(at for at, _ in numbered), *reads.values()], default=0)
    parts = [[node for at, node in numbered if at == stage] for stage in range(last + 1)]
    return [
        Stage(
            _part(graph, [node for node in nodes if not _is_control(node, graph)]),
            {symbol: graph.counts[symbol] for symbol, at in reads.items() if at == stage},
            tuple(node for node in nodes if _is_control(node, graph)),
        )
        for stage, nodes in enumerate(parts)
    ]


def _is_control(node: Node, graph: Graph) -> bool:
    return bool(node.used_outputs) and node.used_outputs[0] in graph.controls


def _part(graph: Graph, nodes: list[Node]) -> Graph:
    """The nodes of a stage as a graph: what it makes for later ones, and for the caller, are its outputs."""
    made = {value: None for node in nodes for value in node.used_outputs}
    read = dict.fromkeys(value for node in nodes for value in node.used_inputs)
    inside = {id(node) for node in nodes}
    later = [node for node in graph.nodes if id(node) not in inside]
    used = {value for node in later for value in node.used_inputs} | {*graph.outputs}
    return replace(
        graph,
        inputs=tuple(value for value in read if value not in made and value not in graph.constants),
        outputs=tuple(value for value in made if value in used),
        output_names=(),
        nodes=tuple(nodes),
        constants={value: array for value, array in graph.constants.items() if value in read},
        counts={},
        controls={},
        relations=(),
        returned=None,
    )


def _symbols(node: Node, graph: Graph) -> set[str]:
    """The symbols of all sizes that a node depends on."""
    sizes: list[object] = []
    for value in (*node.used_inputs, *(() if _is_control(node, graph) else node.used_outputs)):
        sizes += _dims(graph.lists[value] if value in graph.lists else graph.types[value])
        sizes += _elements(graph.constants.get(value))
    for attribute in node.attributes.values():
        sizes += _elements(attribute) if isinstance(attribute, np.ndarray) else []
    sizes += [node.repeat.count] if node.repeat is not None else []
    return {name for size in sizes if isinstance(size, Size) for name in base_symbols(size.index)}


def _dims(type_: TensorType | ListType) -> list[object]:
    return list(type_.shape or ())


def _elements(array: Array | None) -> list[object]:
    return list(array.flat) if array is not None and array.dtype == object else []
