"""A pass from outside: what is negated twice is what it was."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class NegatedTwice:
    """Readers of ``-(-x)`` read ``x``."""

    name: str = "negated-twice"

    def __call__(self, graph):
        makers = {value: node for node in graph.nodes for value in node.outputs if node.op == "Neg"}
        instead = {
            node.outputs[0]: makers[node.inputs[0]].inputs[0]
            for node in makers.values()
            if node.inputs[0] in makers
        }
        if not instead:
            return graph
        nodes = [replace(n, inputs=tuple(instead.get(v, v) for v in n.inputs)) for n in graph.nodes]
        read = {value for node in nodes for value in node.inputs} | {*graph.outputs}
        return replace(graph, nodes=tuple(n for n in nodes if n.op != "Neg" or read.intersection(n.outputs)))
