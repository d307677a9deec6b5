"""From a front end's nodes to a typed graph: shapes, and everything that can be known when compiling.

One walk in topological order runs every node's definition. It gives the outputs' types; where all inputs are
constants it evaluates the node, so that chains that compute shapes (Shape, Gather, Concat, Reshape) dissolve
on the way, as later definitions need their results. Nodes that cannot be compiled are all reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.graph.model import Array, Graph, Node, Subgraph, TensorType, type_of
from tilewright.graph.operand import literal, placeholder
from tilewright.graph.program import apply, context_of, nodes_program
from tilewright.graph.registry import (
    DEFAULT_MAX_BYTES,
    Context,
    Kind,
    NotStaticError,
    Operator,
    UndeterminedError,
    find_operator,
)
from tilewright.graph.rewrite import topological, without_dead_code
from tilewright.support import InternalError, ModelError, NodeLocation, UnsupportedOperatorError, quoted


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model may ask for. `tensor_bytes` bounds each tensor, computed constants included."""

    tensor_bytes: int = DEFAULT_MAX_BYTES


def typed_graph(
    inputs: Mapping[str, TensorType],
    outputs: Sequence[str],
    nodes: Sequence[Node],
    constants: Mapping[str, Array],
    *,
    name: str = "",
    limits: Limits | None = None,
    refused: Mapping[str, str] | None = None,
    expand: Expand | None = None,
) -> Graph:
    """Infer all types, fold constants, and return the graph, checked.

    Every input's shape must be known. `refused` gives, by a node's first output, why a front end could not
    read it; `expand` gives the nodes that an operator without a definition is composed of.

    Raises UnsupportedOperatorError listing every node that cannot be compiled (UndeterminedError, naming the
    inputs, where fixing inputs may help), ModelError for an inconsistent model, ResourceError for a tensor
    beyond the limits.
    """
    for value, type_ in inputs.items():
        if not type_.is_static:
            raise InternalError(f"the input {quoted(value)} has unknown sizes: {type_}")
    walk = _Inference(dict(inputs), dict(constants), limits or Limits(), refused or {}, expand)
    walk.run(nodes)
    if walk.undetermined:
        raise UndeterminedError(walk.refused, tuple(walk.undetermined))
    if walk.refused:
        raise UnsupportedOperatorError.of(walk.refused)
    graph = Graph(
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        nodes=tuple(walk.nodes),
        constants=walk.constants,
        types=walk.types,
        name=name,
    )
    graph.check()
    return without_dead_code(graph)


#: The nodes that a node is composed of, given its inputs' types; None if the front end knows none.
Expand: TypeAlias = Callable[[Node, Sequence[TensorType | None]], Sequence[Node] | None]


class _Inference:
    """The walk's state."""

    def __init__(
        self,
        types: dict[str, TensorType],
        constants: dict[str, Array],
        limits: Limits,
        unreadable: Mapping[str, str],
        expand: Expand | None,
    ) -> None:
        self.expand = expand
        self.types = types
        self.constants = constants
        self.limits = limits
        self.unreadable = unreadable
        self.nodes: list[Node] = []
        self.refused: list[tuple[NodeLocation, str]] = []
        self.blocked: set[str] = set()
        self.given = tuple(types)
        self.undetermined: dict[str, None] = {}
        self.types.update({value: type_of(array) for value, array in constants.items()})

    def run(self, nodes: Sequence[Node]) -> None:
        """Take nodes in, in topological order. Raises ModelError where one reads what nothing makes."""
        known = self.types.keys() | self.blocked
        made = {value for node in nodes for value in node.used_outputs}
        for node in nodes:
            for value in node.used_inputs:
                if value not in known and value not in made:
                    raise ModelError(f"reads {quoted(value)}, which nothing makes", where=node.location)
            for value in node.used_outputs:
                if value in known:
                    raise ModelError(f"makes {quoted(value)}, which is there already", where=node.location)
        for node in topological(nodes, known):
            self.visit(node)

    def visit(self, node: Node) -> None:
        """Take one node in: evaluate it, type it, or note why it cannot be compiled."""
        reason = next(
            (self.unreadable[value] for value in node.used_outputs if value in self.unreadable), None
        )
        if reason is not None:
            self._refuse(node, reason)
            return
        if node.op == "If" and not node.domain:
            self._branch(node)
            return
        if any(value in self.blocked for value in node.used_inputs):
            # What an unsupported node makes is unknown; its readers can at least be looked up.
            if find_operator(node) is None:
                self._refuse(node, "the operator is not supported")
            self.blocked.update(node.used_outputs)
            return
        entry = find_operator(node)
        if entry is None:
            types = [self.types[value] if value else None for value in node.inputs]
            parts = self.expand(node, types) if self.expand is not None else None
            if parts is None:
                self._refuse(node, "the operator is not supported")
            else:
                self.run(parts)
            return
        context = context_of(node, self.types, self.constants, self.limits.tensor_bytes)
        try:
            self._run(node, entry, context)
        except NotStaticError as error:
            self._refuse(node, error.what)
            self._blame(error.value)
        except UnsupportedOperatorError as error:
            self._refuse(node, error.what)

    def _refuse(self, node: Node, reason: str) -> None:
        self.refused.append((node.location, reason))
        self.blocked.update(node.used_outputs)

    def _blame(self, value: str) -> None:
        """Note the model's inputs that a value depends on."""
        makers = {made: node for node in self.nodes for made in node.used_outputs}
        pending, seen = [value], set[str]()
        while pending:
            current = pending.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in self.given:
                self.undetermined[current] = None
            elif current in makers:
                pending += makers[current].used_inputs

    def _branch(self, node: Node) -> None:
        """Put the nodes of the branch that a known condition takes in place of an `If`."""
        condition = self.constants.get(node.inputs[0]) if node.inputs else None
        if condition is None or condition.size != 1:
            self._refuse(node, "its condition must be known when the model is compiled")
            self._blame(node.inputs[0])
            return
        body = node.attributes.get("then_branch" if condition.reshape(()) else "else_branch")
        if not isinstance(body, Subgraph) or len(body.outputs) != len(node.outputs):
            raise ModelError("a branch is missing, or has other outputs than the node", where=node.location)
        for value, array in body.constants.items():
            self.constants[value] = array
            self.types[value] = type_of(array)
        copies = [
            Node("Identity", (inner,), (outer,), name=node.name, version=node.version)
            for inner, outer in zip(body.outputs, node.outputs, strict=True)
            if outer
        ]
        self.run([*body.nodes, *copies])

    def _run(self, node: Node, entry: Operator, context: Context) -> None:
        if entry.evaluate is not None:
            self._settle(node, entry.evaluate(context))
            return
        operands = [
            None
            if type_ is None
            else literal(value)
            if value is not None and value.size == 1
            else placeholder(type_, f"x{at}")
            for at, (type_, value) in enumerate(zip(context.types, context.values, strict=True))
        ]
        results = apply(entry, context, operands)
        wanted = [(value, made) for value, made in zip(node.outputs, results, strict=False) if value]
        if all(value in self.constants for value in node.used_inputs):
            if entry.kind is Kind.VIEW:
                array = self.constants[node.inputs[0]]
                self._settle(node, [array.reshape(results[0].shape)])
                return
            types = {**{v: self.types[v] for v in node.used_inputs}, **{v: made.type for v, made in wanted}}
            program = nodes_program([node], types, self.constants, [value for value, _ in wanted])
            arrays = program.evaluate(self.constants)
            self._settle(node, [arrays[value] if value else None for value in node.outputs])
            return
        self.types.update({value: made.type for value, made in wanted})
        self.nodes.append(node)

    def _settle(self, node: Node, arrays: Sequence[Array | None]) -> None:
        for value, array in zip(node.outputs, arrays, strict=False):
            if value and array is not None:
                self.constants[value] = array
                self.types[value] = type_of(array)
