"""Reference evaluation of a graph, node by node, by the reference evaluation of each node's program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.graph.model import Array, Graph, type_of
from tilewright.graph.program import nodes_program
from tilewright.support import InputError, quoted


def evaluate_graph(graph: Graph, feeds: Mapping[str, Array], keep: Sequence[str] = ()) -> dict[str, Array]:
    """The model's outputs, by their public names, and the values listed in `keep`, by their own.

    Raises InputError where an input is missing or of another type than the graph's.
    """
    values: dict[str, Array] = dict(graph.constants)
    for name in graph.inputs:
        if name not in feeds:
            raise InputError(f"the input {quoted(name)} is missing")
        found, wanted = type_of(feeds[name]), graph.types[name]
        if found != wanted:
            raise InputError(f"the input {quoted(name)} is {found} and should be {wanted}")
        values[name] = feeds[name]
    for node in graph.nodes:
        program = nodes_program([node], graph.types, graph.constants, node.used_outputs)
        values.update(program.evaluate(values))
    results = {value: values[value] for value in keep}
    return results | {
        name: values[value] for name, value in zip(graph.output_names, graph.outputs, strict=True)
    }
