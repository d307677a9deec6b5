"""Loops over time written out: a node for each step, for devices whose plans have no loops.

before                                      after
h = Step(x[t], r, h), repeated              x0 = Gather(x, 0), h0 = Step(x0, r, h)
                                            x1 = Gather(x, 1), h1 = Step(x1, r, h0)
                                            h = Concat(Unsqueeze(h0), Unsqueeze(h1))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.graph.model import Graph, Node, TensorType, type_of
from tilewright.graph.rewrite import Rewriter
from tilewright.graph.unroll import stacked, taken


@dataclass(frozen=True, slots=True)
class WriteOutLoops:
    """Every repeated node as that many nodes."""

    name: ClassVar[str] = "write-out-loops"

    def __call__(self, graph: Graph) -> Graph:
        """Change repeated nodes; a graph without them stays as it is."""
        if all(node.repeat is None for node in graph.nodes):
            return graph
        rewriter = Rewriter(graph)
        for node in graph.nodes:
            if node.repeat is None:
                rewriter.keep(node)
            else:
                _write_out(rewriter, rewriter.current(node))
        return rewriter.finish()


def _write_out(rewriter: Rewriter, node: Node) -> None:
    repeat = node.repeat
    assert repeat is not None
    carried = dict(repeat.carried)
    ends = {value: rewriter.types[value] for value in node.used_outputs}
    made: dict[int, tuple[str, ...]] = {}
    before: tuple[str, ...] = ()
    for at in repeat.order:
        inputs = list(node.inputs)
        for place, value in enumerate(node.inputs):
            if place in carried and before:
                inputs[place] = before[carried[place]]
            elif value and place in repeat.sliced:
                inputs[place] = _element(rewriter, value, at)
        # all outputs are there for the next step, whether or not a model reads them
        names = tuple(rewriter.fresh(f"{value}/{at}") for value in node.outputs)
        types = [_of_step(ends[value]) if value else TensorType("f32", ()) for value in node.outputs]
        before = made[at] = names
        rewriter.emit(replace(node, inputs=tuple(inputs), outputs=names, repeat=None), types)
    for place, value in enumerate(node.outputs):
        if not value:
            continue
        nodes, constants = stacked([made[at][place] for at in range(repeat.count)], value, 0, f"{value}/all/")
        for name, array in constants.items():
            rewriter.constants[name] = array
            rewriter.types[name] = type_of(array)
        one = TensorType(ends[value].dtype, (1, *ends[value].shape[1:]))
        for other in nodes[:-1]:
            rewriter.emit(other, [one])
        rewriter.emit(nodes[-1], [ends[value]])


def _of_step(type_: TensorType) -> TensorType:
    return TensorType(type_.dtype, type_.shape[1:])


def _element(rewriter: Rewriter, value: str, at: int) -> str:
    name = rewriter.fresh(f"{value}/{at}")
    node, constants = taken(value, at, 0, name)
    for index, array in constants.items():
        rewriter.constants[index] = array
        rewriter.types[index] = type_of(array)
    rewriter.emit(node, [_of_step(rewriter.types[value])])
    return name
