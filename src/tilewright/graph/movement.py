"""Data movement that is free to read through: index arithmetic without division."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.graph.model import Graph, Node
from tilewright.graph.program import Build, nodes_program
from tilewright.graph.registry import Kind, find_operator
from tilewright.ir import Cast, Load, Store, Var, dtype_of


def affine_chain(graph: Graph, value: str, made: Collection[str] = ()) -> tuple[Node, ...]:
    """The nodes through which `value` can be read instead of being stored, in topological order.

    They are transpositions, slices, and views and widening conversions between them, such that each element
    of `value` is an element of the first node's input at an index that is a sum of multiples of axes. Empty
    where there are none. The
    values in `made` are stored by someone: they are not read through.
    """
    chain: list[Node] = []
    best = 0
    current = value
    while True:
        node = graph.producer(current)
        entry = find_operator(node) if node is not None else None
        if node is None or entry is None:
            break
        if entry.kind not in (Kind.MOVEMENT, Kind.VIEW) and not _widens(graph, node):
            break
        if current in made:
            break
        chain.append(node)
        if not _is_affine(graph, chain, value):
            break
        # A view at the end saves nothing: its output is a buffer already.
        if entry.kind is Kind.MOVEMENT:
            best = len(chain)
        current = node.inputs[0]
    return tuple(reversed(chain[:best]))


def _widens(graph: Graph, node: Node) -> bool:
    """Whether a node converts numbers to a type that has all of them."""
    if node.op != "Cast" or node.domain:
        return False
    narrow, wide = (dtype_of(graph.types[name].dtype) for name in (node.inputs[0], node.outputs[0]))
    return narrow.is_float and wide.is_float and narrow.bits < wide.bits


def _is_affine(graph: Graph, chain: list[Node], value: str) -> bool:
    """Whether `value`, read through the chain, is one load whose indices are sums of multiples of axes."""
    nodes = list(reversed(chain))
    through = frozenset(output for node in nodes for output in node.used_outputs if output != value)
    made = nodes_program(nodes, graph.types, graph.constants, [value], how=Build(through))
    body = made.program.stages[-1].body
    if len(made.program.stages) != 1 or not isinstance(body, Store):
        return False
    element = body.writes[0].value
    element = element.a if isinstance(element, Cast) else element
    return isinstance(element, Load) and all(
        isinstance(atom, Var) for index in element.indices for atom, _ in index.terms
    )
