"""What exporters and converters leave out or in disorder, put right before the onnx package checks a model.

Its checker refuses nodes that stand before those that they read (onnxruntime's conversion to half precision
writes them so) and outputs without a type or shape. Neither is needed: order and types are inferred.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, MutableSequence

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto


def complete(model: ModelProto) -> None:
    """Sort the nodes of a model and give outputs without a type one that nobody reads, in place."""
    del model.graph.value_info[:]
    _complete_graph(model.graph)
    for function in model.functions:
        _sort(function.node)
        for node in function.node:
            _complete_inner(node)


def _complete_graph(graph: GraphProto | FunctionProto) -> None:
    _sort(graph.node)
    if isinstance(graph, GraphProto):
        for value in graph.output:
            _type(value)
    for node in graph.node:
        _complete_inner(node)


def _complete_inner(node: NodeProto) -> None:
    for graph in _graphs(node):
        del graph.value_info[:]
        _complete_graph(graph)
        for value in graph.input:
            _type(value)


def _graphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _type(value: ValueInfoProto) -> None:
    if value.type.WhichOneof("value") in (None, "tensor_type"):
        tensor = value.type.tensor_type
        tensor.elem_type = tensor.elem_type or TensorProto.FLOAT
        tensor.shape.SetInParent()


def _reads(node: NodeProto) -> Iterator[str]:
    """What a node reads, graphs in its attributes included."""
    yield from node.input
    for graph in _graphs(node):
        for inner in graph.node:
            yield from _reads(inner)
        yield from (value.name for value in graph.output)


def _sort(nodes: MutableSequence[NodeProto]) -> None:
    """Put each node behind those that make what it reads, else as they were; circles stay as they are."""
    makers = {value: at for at, node in enumerate(nodes) for value in node.output if value}
    before = [{makers[v] for v in _reads(node) if v in makers} - {at} for at, node in enumerate(nodes)]
    if all(max(made, default=-1) < at for at, made in enumerate(before)):
        return
    readers: list[list[int]] = [[] for _ in nodes]
    for at, made in enumerate(before):
        for maker in made:
            readers[maker].append(at)
    missing = [len(made) for made in before]
    ready = [at for at, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        at = heapq.heappop(ready)
        order.append(at)
        for reader in readers[at]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) == len(nodes):
        sorted_nodes = [NodeProto.FromString(nodes[at].SerializeToString()) for at in order]
        del nodes[:]
        nodes.extend(sorted_nodes)
