"""States that stay where they are: what a run gives is the next run's input, written in the same memory.

    before                                                     after
    present = TensorScatter(past, new, start)                  present = WriteState(new, start)

Only the new entries are written: the others are there already, where `present` has the memory of `past`. So a
graph after this pass means something only for runs that give both one array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.graph.model import Graph, Node
from tilewright.graph.registry import OWN
from tilewright.graph.rewrite import Rewriter
from tilewright.support import InputError, quoted


@dataclass(frozen=True, slots=True)
class KeepStates:
    """Write outputs, ``states`` by the input whose next value each is, in the memory of these inputs.

    Raises InputError for a name that the graph does not have, and for an output that is not its input with
    new entries along one axis.
    """

    states: Mapping[str, str]
    name: ClassVar[str] = "keep-states"

    def __call__(self, graph: Graph) -> Graph:
        """Rewrite the node that makes each of the outputs."""
        made = dict(zip(graph.output_names, graph.outputs, strict=True))
        writers: dict[int, str] = {}
        for past, present in self.states.items():
            for name, known, kind in ((past, graph.inputs, "input"), (present, made, "output")):
                if name not in known:
                    raise InputError(f"the model has no {kind} {quoted(str(name))} that state= could name")
            maker = graph.producer(made[present])
            while maker is not None and maker.op == "Identity":
                maker = graph.producer(maker.inputs[0])
            others = [node for node in graph.nodes if past in node.inputs and node is not maker]
            if maker is None or not _appends(maker, past) or others or past in graph.outputs:
                raise InputError(
                    f"the output {quoted(present)} cannot be written where the input {quoted(past)} is",
                    hint="it has to be TensorScatter of the input, or the cache of GroupQueryAttention with "
                    "room for all tokens, and nothing else may read the input",
                )
            writers[id(maker)] = past
        rewriter = Rewriter(graph)
        for node in graph.nodes:
            past_ = writers.get(id(node))
            if past_ is None:
                rewriter.keep(node)
                continue
            shape = graph.types[past_].sizes
            axis = int(str(node.attributes.get("axis", -2))) % len(shape)
            now = rewriter.current(node)
            attributes = {"axis": axis, "room": shape[axis]}
            written = replace(
                now, op="WriteState", domain=OWN, version=1, inputs=now.inputs[1:], attributes=attributes
            )
            rewriter.emit(written, [graph.types[output] for output in node.outputs])
        return rewriter.finish()


def writes_state(graph: Graph, value: str) -> bool:
    """Whether a value has the memory of an input, of which it is the next state."""
    maker = graph.producer(value)
    return maker is not None and (maker.domain, maker.op) == (OWN, "WriteState")


def _appends(node: Node, past: str) -> bool:
    plain = node.attributes.get("mode", "linear") == "linear"
    return node.op == "TensorScatter" and not node.domain and plain and node.inputs[0] == past
