"""From a front end's nodes to a typed graph: shapes, and everything that can be known when compiling.

One walk in topological order runs every node's definition. It gives the outputs' types; where all inputs are
constants it evaluates the node, so that chains that compute shapes (Shape, Gather, Concat, Reshape) dissolve
on the way, as later definitions need their results. Nodes that cannot be compiled are all reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final, TypeAlias

import numpy as np

from tilewright.graph.alike import Key, node_key
from tilewright.graph.control import Control, Counted, read_outside, unlike
from tilewright.graph.fold_sizes import folded, run_time_node, sizes_node
from tilewright.graph.model import Array, Attribute, Graph, Node, Subgraph, TensorType, type_of
from tilewright.graph.operand import literal, placeholder
from tilewright.graph.parts import is_decomposed, taken_apart
from tilewright.graph.program import apply, blaming, context_of, evaluate_static, nodes_program
from tilewright.graph.registry import (
    DEFAULT_MAX_BYTES,
    OWN,
    Context,
    IndexRange,
    Kind,
    NotStaticError,
    Operator,
    UndeterminedError,
    find_operator,
    is_supported,
    unsupported,
)
from tilewright.graph.rewrite import topological, without_dead_code
from tilewright.graph.sequences import on_sequences, resolve
from tilewright.graph.size_values import array_of_sizes, is_sized
from tilewright.graph.unroll import MAX_NODES, MAX_STEPS, VERSION, instance, stacked, taken
from tilewright.ir import (
    MAX_RANK,
    OpenSignError,
    Param,
    RelationError,
    as_size,
    dtype_of,
    index,
    is_open,
    most_of,
)
from tilewright.support import InternalError, ModelError, NodeLocation, UnsupportedOperatorError, quoted

#: The largest size that data may say.
MOST_COUNTED: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model may ask for.

    `tensor_bytes` bounds each tensor, and `folded_bytes` all constants that are computed when compiling
    together: a node whose output would exceed it is left to be computed in each run.
    """

    tensor_bytes: int = DEFAULT_MAX_BYTES
    folded_bytes: int = 1 << 31


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
) -> Graph:
    """Infer all types, fold constants, and return the graph, checked.

    Where sizes may be ``counted`` in a run, the values that say them are further outputs of the graph; those
    of some symbols are known to be expressions of others.

    Every input's shape must be known. `refused` gives, by a node's origin, why a front end could not
    read it; `expand` gives the nodes that an operator without a definition is composed of.

    Raises UnsupportedOperatorError listing every node that cannot be compiled (UndeterminedError, naming the
    inputs, where fixing inputs may help), ModelError for an inconsistent model, ResourceError for a tensor
    beyond the limits.
    """
    for value, type_ in inputs.items():
        if not type_.is_static:
            raise InternalError(f"the input {quoted(value)} has unknown sizes: {type_}")
    walk = _Inference(dict(inputs), dict(constants), limits or Limits(), refused or {}, expand, counted)
    walk.run(nodes)
    for value in outputs:
        if value in walk.sequences:
            raise UnsupportedOperatorError(f"the model's output {quoted(value)} is a sequence of tensors")
    for value in outputs:
        if is_sized(walk.constants.get(value)):
            walk.give(value)
    if walk.undetermined:
        raise UndeterminedError(walk.refused, tuple(walk.undetermined))
    if walk.refused:
        raise UnsupportedOperatorError.of(walk.refused)
    graph = Graph(
        inputs=tuple(inputs),
        outputs=(*outputs, *dict.fromkeys(value for value, *_ in walk.counts.values())),
        nodes=tuple(walk.nodes),
        constants=walk.constants,
        types=walk.types,
        name=name,
        counts=walk.counts,
        returned=len(outputs),
        controls=walk.controls,
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
        counted: Counted | None,
    ) -> None:
        self.expand = expand
        self.counted = counted
        self.counts: dict[str, tuple[str, int, bool]] = {}
        self.controls: dict[str, Control] = {}
        self.types = types
        self.constants = constants
        self.limits = limits
        self.unreadable = unreadable
        self.nodes: list[Node] = []
        self.refused: list[tuple[NodeLocation, str]] = []
        self.blocked: set[str] = set()
        self.alike: dict[Key, tuple[tuple[TensorType, ...], tuple[IndexRange, ...]]] = {}
        self.sequences: dict[str, tuple[str, ...]] = {}
        self.given = tuple(types)
        self.undetermined: dict[str, None] = {}
        self.folded = 0
        self.types.update({value: type_of(array) for value, array in constants.items()})

    def run(self, nodes: Sequence[Node]) -> None:
        """Take nodes in, in topological order. Raises ModelError where one reads what nothing makes."""
        known = self.types.keys() | self.blocked | self.sequences.keys()
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

    def give(self, value: str) -> None:
        """Have a kernel make an output of the model that holds sizes of a run."""
        array = self.constants.pop(value)
        self.visit(sizes_node(array, self.types[value].dtype, value))

    def visit(self, node: Node) -> None:
        """Take one node in: evaluate it, type it, or note why it cannot be compiled."""
        reason = self.unreadable.get(node.origin)
        if reason is not None:
            self._refuse(node, reason)
            return
        if any(value in self.blocked for value in node.used_inputs):
            # What an unsupported node makes is unknown; its readers can at least be looked up.
            if not (is_supported(node.domain, node.op) or is_decomposed(node.domain, node.op)):
                self._refuse(node, unsupported(node.op))
            self.blocked.update(node.used_outputs)
            return
        if on_sequences(node, self.sequences):
            self._sequence(node)
            return
        carries = {"If": self._branch, "Loop": self._loop, "SequenceMap": self._map}
        control = None if node.domain else carries.get(node.op)
        if control is not None:
            control(node)
            return
        strange = next((value for value in node.used_inputs if value in self.sequences), None)
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
            if error.where is None:
                error.where = node.location
            raise
        except UnsupportedOperatorError as error:
            self._refuse_for(node, error)
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
            # not a refusal yet: there may be plans for parts of the range, and sizes that are equal
            if error.where is None:
                error.where = node.location
            raise
        except NotStaticError as error:
            instead = self._with_sizes(node, error) if self.counted is not None else None
            if instead is None:
                self._refuse_for(node, error)
            else:
                self.visit(instead)
        except UnsupportedOperatorError as error:
            self._refuse_for(node, error)

    def _count(self, value: str, at: int, most: int, *, axis: bool = False) -> int:
        """The size that an element, or an axis, of a value says in a run."""
        assert self.counted is not None
        symbol = f"count{next(self.counted.numbers)}"
        self.counts[symbol] = (value, at, axis)
        known = self.counted.said.get(symbol)
        return as_size(index(Param(symbol, 0, most)) if known is None else known)

    def _with_sizes(self, node: Node, error: NotStaticError) -> Node | None:
        """The node with the elements of an input as sizes of a run; None where they are not sizes."""
        type_ = self.types.get(error.value)
        if type_ is None or type_.dtype not in ("i32", "i64") or type_.rank > 1 or not type_.is_static:
            return None
        if is_open(type_.elements) or type_.elements > MAX_RANK:
            return None
        name = f"{error.value}/said"
        if name not in self.constants:
            sizes = [self._count(error.value, at, MOST_COUNTED) for at in range(type_.elements)]
            self.constants[name] = array_of_sizes(sizes).reshape(type_.sizes)
            self.types[name] = type_
        return replace(node, inputs=tuple(name if v == error.value else v for v in node.inputs))

    def _select(self, node: Node) -> None:
        """The elements for which something holds: how many, only a run knows."""
        condition = node.inputs[0 if node.op == "NonZero" else -1]
        if all(value in self.constants for value in node.used_inputs):
            self._run(node, *self._static(node))
            return
        type_, made = self.types[condition], f"{node.used_outputs[0]}/"
        flags, before, total, places = (f"{made}{name}" for name in ("flags", "before", "total", "places"))

        def add(
            op: str, inputs: tuple[str, ...], output: str, domain: str = "", **attributes: Attribute
        ) -> None:
            self.visit(Node(op, inputs, (output,), attributes, node.name, domain, VERSION, node.origin))

        whole = {"minus": np.array([-1], np.int64), "axis": np.array(0, np.int64)}
        self._enter({f"{made}{name}": array for name, array in whole.items()})
        add("Cast", (condition,), f"{made}holds", to="bool")
        add("Reshape", (f"{made}holds", f"{made}minus"), f"{made}flat")
        add("Cast", (f"{made}flat",), flags, to="i64")
        add("ReduceSum", (flags,), total, keepdims=0)
        add("CumSum", (flags, f"{made}axis"), before)
        count = array_of_sizes([self._count(total, 0, most_of(type_.elements))])
        add("PlacesOf", (flags, before), places, OWN, count=count)
        output = node.used_outputs[0]
        if node.op == "NonZero":
            add("Unravelled", (places,), output, OWN, shape=array_of_sizes(type_.sizes or (1,)))
            return
        data, axis = node.inputs[0], node.attributes.get("axis")
        if axis is None:
            add("Reshape", (data, f"{made}minus"), f"{made}data")
            data, axis = f"{made}data", 0
        add("Gather", (data, places), output, axis=axis)

    def _static(self, node: Node) -> tuple[Operator, Context]:
        entry = find_operator(node)
        assert entry is not None
        return entry, context_of(node, self.types, self.constants, self.limits.tensor_bytes)

    def _refuse(self, node: Node, reason: str) -> None:
        self.refused.append((node.location, reason))
        self.blocked.update(node.used_outputs)

    def _refuse_for(self, node: Node, error: UnsupportedOperatorError) -> None:
        self._refuse(node, error.what)
        if isinstance(error, NotStaticError):
            self._blame(error.value)

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

    def _sequence(self, node: Node) -> None:
        """Resolve a node on sequences."""
        context = context_of(node, self.types, self.constants, self.limits.tensor_bytes)
        try:
            with blaming(node):
                made = resolve(context, self.sequences)
        except UnsupportedOperatorError as error:
            self._refuse_for(node, error)
            return
        self.sequences.update(made.sequences)
        self._enter(made.constants)
        self.run(made.nodes)

    def _branch(self, node: Node) -> None:
        """Put the nodes of the branch that a known condition takes in place of an `If`."""
        condition = self.constants.get(node.inputs[0]) if node.inputs else None
        if condition is None and node.inputs and self.counted is not None:
            self._branches(node)
            return
        if condition is None or condition.size != 1:
            self._refuse(node, "its condition must be known when the model is compiled")
            self._blame(node.inputs[0])
            return
        body = node.attributes.get("then_branch" if condition.reshape(()) else "else_branch")
        if not isinstance(body, Subgraph) or len(body.outputs) != len(node.outputs):
            raise node_error(node, "a branch is missing, or has other outputs than the node")
        # names of its own: another branch, and what stands around it, may use them for other values
        branch = instance(body, body.inputs, f"{next(iter(node.used_outputs), node.name)}/")
        self._enter(branch.constants)
        self.run([*branch.nodes, *_copies(branch.outputs, node.outputs)])

    def _enter(self, constants: Mapping[str, Array]) -> None:
        for value, array in constants.items():
            self.constants[value] = array
            self.types[value] = type_of(array)

    def _run_step(self, node: Node, body: Subgraph, inputs: Sequence[str], at: int) -> tuple[str, ...]:
        """Take in one step of a loop; the values that are the body's outputs."""
        if at >= MAX_STEPS or at * len(body.nodes) > MAX_NODES:
            raise node_error(node, f"the loop runs for more than {at} steps")
        step = instance(body, inputs, f"{node.outputs[0] or node.used_outputs[0]}/{at}/")
        self._enter(step.constants)
        self.run(step.nodes)
        return step.outputs

    def _stack(self, parts: Sequence[str], output: str, axis: int) -> None:
        nodes, constants = stacked(parts, output, axis, f"{output}/stacked/")
        self._enter(constants)
        self.run(nodes)

    def _scan(self, node: Node) -> None:
        """Unroll a `Scan`: its length is a size of its inputs."""
        count = node.attributes.get("num_scan_inputs")
        if node.version < 9 or not isinstance(count, int) or not 0 < count <= len(node.inputs):
            self._refuse(node, "a scan of operator set 8")
            return
        first = len(node.inputs) - count
        body = _body(node, len(node.inputs), max(first, len(node.outputs)))
        scanned, state = node.inputs[first:], node.inputs[:first]
        axes = _ints(node, "scan_input_axes", count)
        backwards = _ints(node, "scan_input_directions", count)
        ranks = [self.types[value].rank for value in scanned]
        axes = [axis % rank if rank else 0 for axis, rank in zip(axes, ranks, strict=True)]
        steps = self.types[scanned[0]].sizes[axes[0]]
        series: list[tuple[str, ...]] = []
        for at in range(steps):
            slices: list[str] = []
            for value, axis, back in zip(scanned, axes, backwards, strict=True):
                slices.append(f"{node.outputs[0] or node.used_outputs[0]}/{at}/in{len(slices)}")
                taking, constants = taken(value, steps - 1 - at if back else at, axis, slices[-1])
                self._enter(constants)
                self.run([taking])
            made = self._run_step(node, body, (*state, *slices), at)
            if any(value in self.blocked for value in made):
                self.blocked.update(node.used_outputs)
                return
            state = made[:first]
            series.append(made[first:])
        self.run(_copies(state, node.outputs[:first]))
        outputs = node.outputs[first:]
        if not series:
            slices = [f"{node.used_outputs[0]}/none/in{at}" for at in range(count)]
            for name, value, axis in zip(slices, scanned, axes, strict=True):
                type_ = self.types[value]
                shape = (*type_.sizes[:axis], *type_.sizes[axis + 1 :])
                self._enter({name: _without_elements(type_.dtype, shape)})
            self._give_none(
                node, first, body, (*state, *slices), _ints(node, "scan_output_axes", len(outputs))
            )
            return
        out_axes = _ints(node, "scan_output_axes", len(outputs))
        reverse = _ints(node, "scan_output_directions", len(outputs))
        for k, output in enumerate(outputs):
            if output:
                parts = [made[k] for made in (reversed(series) if reverse[k] else series)]
                rank = self.types[parts[0]].rank + 1
                self._stack(parts, output, out_axes[k] % rank)

    def _loop(self, node: Node) -> None:
        """Unroll a `Loop` whose number of steps is known."""
        carried = len(node.inputs[2:])
        body = _body(node, 2 + carried, 1 + max(carried, len(node.outputs)))
        limit, going = ((*node.inputs, "", "")[at] for at in range(2))
        for value in (limit, going):
            if value and value not in self.constants and self.counted is not None:
                self._repeated(node, body, carried)
                return
            if value and value not in self.constants:
                self._refuse(node, "its number of steps must be known when the model is compiled")
                self._blame(value)
                return
        count = int(self.constants[limit].reshape(())) if limit else MAX_STEPS + 1
        running = bool(self.constants[going].reshape(())) if going else True
        state = node.inputs[2:]
        series: list[tuple[str, ...]] = []
        prefix = f"{node.used_outputs[0]}/loop"
        at = 0
        while running and at < count:
            self._enter({f"{prefix}{at}": np.array(at, np.int64), f"{prefix}{at}c": np.array(True)})
            made = self._run_step(node, body, (f"{prefix}{at}", f"{prefix}{at}c", *state), at)
            if any(value in self.blocked for value in made):
                self.blocked.update(node.used_outputs)
                return
            condition = self.constants.get(made[0])
            if condition is None and self.counted is not None and not at:
                self._repeated(node, body, carried)
                return
            if condition is None:
                self._refuse(node, "its condition must be known when the model is compiled")
                self._blame(made[0])
                return
            running = bool(condition.reshape(()))
            state = made[1 : 1 + len(state)]
            series.append(made[1 + len(state) :])
            at += 1
        self.run(_copies(state, node.outputs[: len(state)]))
        if not series:
            self._enter({f"{prefix}0": np.array(0, np.int64), f"{prefix}0c": np.array(True)})
            reads = (f"{prefix}0", f"{prefix}0c", *state)
            self._give_none(node, len(state), body, reads, [0] * len(node.outputs))
            return
        for k, output in enumerate(node.outputs[len(state) :]):
            if output:
                self._stack([made[k] for made in series], output, 0)

    def _give_none(
        self, node: Node, first: int, body: Subgraph, reads: Sequence[str], axes: Sequence[int]
    ) -> None:
        """What a loop without steps stacks: nothing, of the types that one step would have made."""
        wanted = node.outputs[first:]
        if not any(wanted):
            return
        made = self._run_step(node, body, reads, 0)[len(body.outputs) - len(wanted) :]
        for output, value, axis in zip(wanted, made, axes, strict=False):
            if output and value in self.types:
                type_ = self.types[value]
                at = axis % (type_.rank + 1)
                shape = (*type_.sizes[:at], 0, *type_.sizes[at:])
                self._enter({output: _without_elements(type_.dtype, shape)})
            elif output:
                self.blocked.add(output)

    def _branches(self, node: Node) -> None:
        """An `If` whose condition a run knows: both branches are graphs."""
        graphs = []
        for name in ("then_branch", "else_branch"):
            body = node.attributes.get(name)
            if not isinstance(body, Subgraph) or len(body.outputs) != len(node.outputs):
                raise node_error(node, "a branch is missing, or has other outputs than the node")
            graphs.append(self._graph(body, {}))
        types = [[g.types[g.outputs[at]] for g in graphs] for at in range(len(node.outputs))]
        self._controlled(node, Control(tuple(graphs)), types)

    def _repeated(self, node: Node, body: Subgraph, carried: int) -> None:
        """A `Loop` whose steps a run knows: its body is a graph, for carried values of any size they take."""
        names = body.inputs
        types = [TensorType("i64", ()), TensorType("bool", ()), *(self.types[v] for v in node.inputs[2:])]
        while True:
            graph = self._graph(body, dict(zip(names, types, strict=True)))
            again = False
            for at in range(carried):
                made = graph.types[graph.outputs[1 + at]]
                given = types[2 + at]
                # sizes that are any already fit whatever is made
                fits = zip(given.shape, made.shape, strict=False)
                known = tuple(m if isinstance(n, str) else n for n, m in fits)
                inner = frozenset(graph.counts) if "?" not in given.shape else frozenset()
                apart = unlike([TensorType(given.dtype, known), made], inner)
                if given.rank != made.rank or apart is None:
                    self._refuse(node, f"what it carries from {names[2 + at]!r} changes its kind: {made}")
                    return
                if any(apart):
                    again = True
                    sizes = zip(given.shape, apart, strict=True)
                    shape = tuple("?" if moves else n for n, moves in sizes)
                    types[2 + at] = TensorType(made.dtype, shape)
            if not again:
                break
        first = [graph.types[v] for v in graph.outputs[1 : len(body.outputs)]]
        rows = [TensorType(t.dtype, ("?", *t.shape)) for t in first[carried:]]
        kinds = [[types[2 + at], t] for at, t in enumerate(first[:carried])] + [[t] for t in rows]
        self._controlled(node, Control((graph,), names, carried), kinds[: len(node.outputs)])

    def _graph(self, body: Subgraph, inputs: Mapping[str, TensorType]) -> Graph:
        """A body as a graph: what it reads around it is given to it."""
        outside = [value for value in read_outside(body) if value in self.types]
        given = {value: self.types[value] for value in outside if value not in self.constants}
        known = {value: self.constants[value] for value in outside if value in self.constants}
        walk = _Inference({}, {}, self.limits, self.unreadable, self.expand, self.counted)
        taken_ = {}
        for value, type_ in {**inputs, **given}.items():
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
        )
        return replace(graph, counts={**walk.counts, **graph.counts}, returned=len(body.outputs))

    def _controlled(self, node: Node, control: Control, types: Sequence[Sequence[TensorType]]) -> None:
        """Note a node that runs graphs: its outputs have sizes that only a run knows where theirs differ."""
        inner = frozenset(symbol for graph in control.graphs for symbol in graph.counts)
        outside = [value for graph in control.graphs for value in graph.inputs if value not in control.takes]
        for output, kinds in zip(node.outputs, types, strict=True):
            apart = unlike([t if t.is_static else _zeros(t) for t in kinds], inner)
            if apart is None:
                self._refuse(node, f"its output {quoted(output)} is of another kind where it runs otherwise")
                return
            open_ = [a or any(isinstance(t.shape[at], str) for t in kinds) for at, a in enumerate(apart)]
            shape = tuple(
                self._count(output, at, MOST_COUNTED, axis=True) if moves else kinds[0].shape[at]
                for at, moves in enumerate(open_)
            )
            self.types[output] = TensorType(kinds[0].dtype, shape)
        inputs = tuple(dict.fromkeys((*(v for v in node.inputs if v), *outside)))
        self.controls[node.used_outputs[0]] = control
        # `loops` keeps the places of inputs that are absent
        loops = {"inputs": ",".join(str(int(bool(v))) for v in node.inputs)}
        made = Node(node.op, inputs, node.outputs, loops, node.name, OWN, 1, node.origin)
        self.nodes.append(made)

    def _map(self, node: Node) -> None:
        """Write a `SequenceMap` out: its body for each element, other sequences taken element by element."""
        body = _body(node, len(node.inputs), len(node.outputs))
        if not node.inputs or node.inputs[0] not in self.sequences:
            raise node_error(node, "its input 0 is no sequence")
        count = len(self.sequences[node.inputs[0]])
        columns: list[tuple[str, ...]] = []
        for at, value in enumerate(node.inputs):
            column = self.sequences.get(value, (value,) * count)
            if len(column) != count:
                raise node_error(node, f"its input {at} has {len(column)} elements, its input 0 has {count}")
            columns.append(column)
        series: list[tuple[str, ...]] = []
        for at in range(count):
            made = self._run_step(node, body, tuple(column[at] for column in columns), at)
            if any(value in self.blocked for value in made):
                self.blocked.update(node.used_outputs)
                return
            series.append(made)
        for k, output in enumerate(node.outputs):
            if output:
                self.sequences[output] = tuple(made[k] for made in series)

    def _run(self, node: Node, entry: Operator, context: Context) -> None:
        sized = [at for at, value in enumerate(context.values) if is_sized(value)]
        if sized and entry.evaluate is None:
            made = folded(context, entry)
            if made is not None:
                self._settle(node, [array for array, _ in made], [dtype for _, dtype in made])
                return
        if sized and (instead := run_time_node(node, context)) is not None:
            self.visit(instead)
            return
        for at in sized:
            if at not in entry.static and (many := context.values[at]) is not None and many.size != 1:
                inputs = [*node.inputs]
                inputs[at] = self._as_data(inputs[at])
                self.visit(replace(node, inputs=tuple(inputs)))
                return
        if entry.evaluate is not None:
            bounded = replace(
                context, max_bytes=min(context.max_bytes, self.limits.folded_bytes - self.folded)
            )
            self._settle(node, evaluate_static(entry, bounded))
            return
        if node.repeat is not None:
            self._run_repeated(node, entry, context)
            return
        computed = any(value not in self.constants for value in node.used_inputs)
        key = node_key(node, context.types, context.values) if computed else None
        if key is not None and key in self.alike:
            self._take_over(node, context, *self.alike[key])
            return
        operands = [
            None
            if type_ is None
            else literal(value, type_.dtype)
            if value is not None and value.size == 1
            else placeholder(type_, f"x{at}")
            for at, (type_, value) in enumerate(zip(context.types, context.values, strict=True))
        ]
        results = apply(entry, context, operands)
        for asked in context.ranges:
            known = context.values[asked.input]
            problem = "" if known is None else asked.outside(known)
            context.require(not problem, f"its input {asked.input} {problem}")
        wanted = [(value, made) for value, made in zip(node.outputs, results, strict=False) if value]
        if wanted and not any(made.type.elements for _, made in wanted):
            # there is nothing to compute of what has no elements
            self._enter({v: _without_elements(made.type.dtype, made.type.sizes) for v, made in wanted})
            return
        size = sum(made.type.nbytes for _, made in wanted)
        if _stays_quantised(node, context):
            size = self.limits.folded_bytes + 1
        held = (v for v in node.attributes.values() if isinstance(v, np.ndarray))
        fixed = (
            not sized
            and not any(map(is_sized, held))
            and not any(map(is_open, (n for _, made in wanted for n in made.type.sizes)))
        )
        fixed = fixed and all(value in self.constants for value in node.used_inputs)
        if fixed and (entry.kind is Kind.VIEW or self.folded + size <= self.limits.folded_bytes):
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
        if key is not None:
            self.alike[key] = (tuple(made.type for made in results), tuple(context.ranges))

    def _take_over(
        self, node: Node, context: Context, types: Sequence[TensorType], ranges: Sequence[IndexRange]
    ) -> None:
        """A node like one before: its outputs' types are known, and what must be in range."""
        for asked in ranges:
            known = context.values[asked.input]
            problem = "" if known is None else asked.outside(known)
            context.require(not problem, f"its input {asked.input} {problem}")
        self.types.update({v: type_ for v, type_ in zip(node.outputs, types, strict=False) if v})
        self.nodes.append(node)

    def _run_repeated(self, node: Node, entry: Operator, context: Context) -> None:
        """A loop over time: one application says what all make. It is left to be computed in each run."""
        repeat = node.repeat
        assert repeat is not None
        operands = [
            None if type_ is None else placeholder(type_, f"x{at}") for at, type_ in enumerate(context.types)
        ]
        for value, made in zip(node.outputs, apply(entry, context, operands), strict=False):
            if value:
                context.limit_bytes(made.type.nbytes * repeat.count)
                self.types[value] = TensorType(made.type.dtype, (repeat.count, *made.type.shape))
        self.nodes.append(node)

    def _as_data(self, value: str) -> str:
        """The tensor that holds what a value does, sizes of a run: a kernel makes it."""
        name = f"{value}/sizes"
        if name not in self.types:
            self.visit(sizes_node(self.constants[value], self.types[value].dtype, name))
        return name

    def _settle(self, node: Node, arrays: Sequence[Array | None], dtypes: Sequence[str | None] = ()) -> None:
        for value, array, dtype in zip_longest(node.outputs, arrays, dtypes):
            if value and array is not None:
                self.constants[value] = array
                self.types[value] = type_of(array) if dtype is None else TensorType(dtype, array.shape)
                # A view of a constant takes no memory of its own.
                self.folded += array.nbytes if array.base is None else 0


def _without_elements(dtype: str, shape: Sequence[int]) -> Array:
    return np.zeros(shape, dtype_of(dtype).numpy)


def _zeros(type_: TensorType) -> TensorType:
    """A type with 0 for each size that is not known yet."""
    return TensorType(type_.dtype, tuple(0 if isinstance(n, str) else n for n in type_.shape))


def _stays_quantised(node: Node, context: Context) -> bool:
    """Whether a node dequantises a matrix or more: passes may multiply the integers themselves."""
    first = context.values[0] if context.values else None
    return node.op == "DequantizeLinear" and not node.domain and first is not None and first.ndim > 1


def node_error(node: Node, problem: str) -> ModelError:
    """The error of a model that is wrong at a node."""
    return ModelError(problem, where=node.location)


def _copies(values: Sequence[str], outputs: Sequence[str]) -> list[Node]:
    """Nodes that give values the names of a node's outputs."""
    pairs = zip(values, outputs, strict=False)
    return [Node("Identity", (inner,), (outer,), version=VERSION) for inner, outer in pairs if outer]


def _body(node: Node, takes: int, makes: int) -> Subgraph:
    """The body of a loop, which takes so many values in each step, and makes at least so many."""
    body = node.attributes.get("body")
    if not isinstance(body, Subgraph):
        raise node_error(node, "its body is missing")
    if len(body.inputs) != takes or len(body.outputs) < makes:
        raise node_error(
            node,
            f"its body takes {len(body.inputs)} values and makes {len(body.outputs)}; "
            f"the node gives it {takes} and wants {makes}",
        )
    return body


def _ints(node: Node, name: str, count: int) -> list[int]:
    """A list of integers, zeros by default."""
    given = node.attributes.get(name, (0,) * count)
    if not isinstance(given, tuple) or len(given) != count:
        raise node_error(node, f"the attribute {name} must have {count} entries")
    return [int(value) for value in given]
