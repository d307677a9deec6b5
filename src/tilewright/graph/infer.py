"""From a front end's nodes to a typed graph: shapes, and everything that can be known when compiling.

One walk in topological order runs every node's definition. It gives the outputs' types; where all inputs are
constants it evaluates the node, so that chains that compute shapes (Shape, Gather, Concat, Reshape) dissolve
on the way, as later definitions need their results. Nodes that cannot be compiled are all reported at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tilewright.graph.choices import Choices
from tilewright.graph.control import Counted, read_outside
from tilewright.graph.counting import MOST_COUNTED
from tilewright.graph.model import Array, Graph, ListType, Node, Subgraph, TensorType
from tilewright.graph.parts import is_decomposed, taken_apart
from tilewright.graph.program import context_of
from tilewright.graph.registry import (
    NotStaticError,
    UndeterminedError,
    find_operator,
    is_supported,
    unsupported,
)
from tilewright.graph.rewrite import without_dead_code
from tilewright.graph.sequences import on_sequences
from tilewright.graph.size_values import is_sized
from tilewright.graph.walk import Expand, Limits
from tilewright.ir import (
    OpenSignError,
    RelationError,
)
from tilewright.support import InternalError, UnsupportedOperatorError, quoted


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
    counted: Counted | None = None,
    lists: Mapping[str, ListType] = MappingProxyType({}),
    inner: bool = False,
) -> Graph:
    """Infer all types, fold constants, and return the graph, checked.

    Where sizes may be ``counted`` in a run, the values that say them are further outputs of the graph; those
    of some symbols are known to be expressions of others. Inputs may be ``lists`` then, too, and outputs.
    The graph may be ``inner``, one that another runs.

    Every input's shape must be known. `refused` gives, by a node's origin, why a front end could not
    read it; `expand` gives the nodes that an operator without a definition is composed of.

    Raises UnsupportedOperatorError listing every node that cannot be compiled (UndeterminedError, naming the
    inputs, where fixing inputs may help), ModelError for an inconsistent model, ResourceError for a tensor
    beyond the limits.
    """
    for value, type_ in inputs.items():
        if not type_.is_static:
            raise InternalError(f"the input {quoted(value)} has unknown sizes: {type_}")
    walk = Inference(dict(inputs), dict(constants), limits or Limits(), refused or {}, expand, counted)
    walk.lists.update(lists)
    walk.inner = inner
    walk.run(nodes)
    return walk.graph((*inputs, *lists), outputs, name)


class Inference(Choices):
    """The whole walk. Front ends that write a graph node by node see each one's types as they go."""

    def graph(self, inputs: Sequence[str], outputs: Sequence[str], name: str = "") -> Graph:
        """The graph of the nodes that were visited, checked. Raises as :func:`typed_graph` does."""
        for value in outputs:
            if value in self.sequences and self.counted is None:
                raise UnsupportedOperatorError(
                    f"the model's output {quoted(value)} is a sequence of tensors",
                    hint="models with open sizes give lists: dynamic={}",
                )
            self.as_list(value)
        for value in outputs:
            if is_sized(self.constants.get(value)):
                self.give(value)
        if self.undetermined:
            raise UndeterminedError(self.refused, tuple(self.undetermined))
        if self.refused:
            raise UnsupportedOperatorError.of(self.refused)
        graph = Graph(
            inputs=tuple(inputs),
            outputs=(*outputs, *dict.fromkeys(value for value, *_ in self.counts.values())),
            nodes=tuple(self.nodes),
            constants=self.constants,
            types=self.types,
            lists=self.lists,
            name=name,
            counts=self.counts,
            returned=len(outputs),
            controls=self.controls,
            relations=tuple(self.relations),
        )
        graph.check()
        return without_dead_code(graph)

    def visit(self, node: Node) -> None:
        """Take one node in: evaluate it, type it, or note why it cannot be compiled."""
        reason = self.unreadable.get(node.origin)
        if reason is not None:
            self._refuse(node, reason)
            return
        bodies = [value for value in node.attributes.values() if isinstance(value, Subgraph)]
        if not self.blocked.isdisjoint(
            (*node.used_inputs, *(v for body in bodies for v in read_outside(body)))
        ):
            # What an unsupported node makes is unknown; its readers can at least be looked up.
            if not (bodies or is_supported(node.domain, node.op) or is_decomposed(node.domain, node.op)):
                self._refuse(node, unsupported(node.op))
            self.blocked.update(node.used_outputs)
            return
        if on_sequences(node, {*self.sequences, *self.lists}):
            self._sequence(node)
            return
        carries = {"If": self._branch, "Loop": self._loop, "SequenceMap": self._map}
        control = None if node.domain else carries.get(node.op)
        if control is not None:
            control(node)
            return
        strange = next(
            (value for value in node.used_inputs if value in self.sequences or value in self.lists), None
        )
        if strange is not None:
            self._refuse(node, f"its input {quoted(strange)} is a sequence of tensors")
            return
        if node.op == "Scan" and not node.domain:
            self._scan(node)
            return
        if self.counted is not None and not node.domain and node.op in ("NonZero", "Compress"):
            self._select(node)
            return
        context = context_of(node, self.types, self.constants, self.limits.tensor_bytes)
        try:
            decomposed = taken_apart(context)
        except (OpenSignError, RelationError) as error:
            self._undecided(node, error)
            return
        except UnsupportedOperatorError as error:
            self._unknown(node, error)
            return
        if decomposed is not None:
            self._enter(decomposed.constants)
            self.run(decomposed.nodes)
            return
        entry = find_operator(node)
        if entry is None:
            types = [self.types[value] if value else None for value in node.inputs]
            parts = self.expand(node, types) if self.expand is not None else None
            if parts is None:
                self._refuse(node, unsupported(node.op))
            else:
                self.run(parts)
            return
        try:
            self._run(node, entry, context)
        except (OpenSignError, RelationError) as error:
            self._undecided(node, error)
        except UnsupportedOperatorError as error:
            self._unknown(node, error)

    def _unknown(self, node: Node, error: UnsupportedOperatorError) -> None:
        """Take in a node that asks for what only a run knows, or refuse it."""
        if isinstance(error, NotStaticError) and self.counted is not None:
            if error.axes is not None and self._chosen(node, error):
                return
            if self._by_numbers(node, error):
                return
        self._refuse_for(node, error)

    def _undecided(self, node: Node, error: OpenSignError | RelationError) -> None:
        """Take in a node whose sizes each run is to check.

        Raises the error where that will not do: no refusal yet, as there may be plans for parts of the range.
        """
        instead = self._with_equal_sizes(node, error) if isinstance(error, RelationError) else None
        if instead is not None:
            self.visit(instead)
            return
        if error.where is None:
            error.where = node.location
        raise error

    def _graph(self, body: Subgraph, inputs: Mapping[str, TensorType | ListType]) -> Graph:
        """A body as a graph: what it reads around it is given to it."""
        outside = [value for value in read_outside(body) if value in self.types]
        given = {value: self.types[value] for value in outside if value not in self.constants}
        known = {value: self.constants[value] for value in outside if value in self.constants}
        walk = Inference({}, {}, self.limits, self.unreadable, self.expand, self.counted)
        taken_ = {}
        lists = {
            value: self.lists[value] for value in map(self.as_list, read_outside(body)) if value in self.lists
        }
        for value, type_ in {**inputs, **given}.items():
            if isinstance(type_, ListType):
                lists[value] = type_
                continue
            shape = [
                walk._count(value, at, MOST_COUNTED, axis=True) if isinstance(n, str) else n
                for at, n in enumerate(type_.shape)
            ]
            taken_[value] = TensorType(type_.dtype, tuple(shape))
        graph = typed_graph(
            taken_,
            body.outputs,
            body.nodes,
            {**known, **body.constants},
            limits=self.limits,
            refused=self.unreadable,
            expand=self.expand,
            counted=self.counted,
            lists=lists,
            inner=True,
        )
        return replace(graph, counts={**walk.counts, **graph.counts}, returned=len(body.outputs))
