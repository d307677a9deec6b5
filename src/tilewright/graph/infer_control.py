"""Control flow and sequences: written out where compiling knows the course, else graphs that runs take."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.graph.control import Control, unlike
from tilewright.graph.counting import MOST_COUNTED
from tilewright.graph.lists import Kind, Lists, in_common
from tilewright.graph.model import Array, Graph, ListType, Node, Subgraph, TensorType
from tilewright.graph.program import blaming, context_of
from tilewright.graph.registry import (
    OWN,
)
from tilewright.graph.sequences import resolve
from tilewright.graph.size_values import array_of_sizes, is_sized
from tilewright.graph.unroll import MAX_NODES, MAX_STEPS, VERSION, instance, stacked, taken
from tilewright.graph.walk import node_error, without_elements
from tilewright.ir import RelationError, is_open
from tilewright.support import UnsupportedOperatorError, quoted


class ControlFlow(Lists):
    """A walk that meets branches and loops."""

    def _sequence(self, node: Node) -> None:
        """Resolve a node on sequences, or leave it to runs where these know more."""
        if not self.lists.keys().isdisjoint(node.used_inputs) and not any(
            value in self.sequences for value in node.used_inputs
        ):
            self._list(node)
            return
        context = context_of(node, self.types, self.constants, self.limits.tensor_bytes)
        try:
            with blaming(node):
                made = resolve(context, self.sequences)
        except UnsupportedOperatorError as error:
            if self.counted is None:
                self._refuse_for(node, error)
            else:
                self._list(node)
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
        body = _branch_body(node, "then_branch" if condition.reshape(()) else "else_branch")
        # names of its own: another branch, and what stands around it, may use them for other values
        branch = instance(body, body.inputs, f"{next(iter(node.used_outputs), node.name)}/")
        self._enter(branch.constants)
        self.run([*branch.nodes, *_copies(branch.outputs, node.outputs)])

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
        steps, *others = (self.types[value].sizes[axis] for value, axis in zip(scanned, axes, strict=True))
        context = context_of(node, self.types, self.constants, self.limits.tensor_bytes)
        try:
            context.require(all(context.agree(steps, n) for n in others), "what it scans has unlike lengths")
        except RelationError as error:
            error.where = node.location
            raise
        if is_open(steps):
            self._scan_of_run(node, body, axes, backwards)
            return
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
                self._enter({name: without_elements(type_.dtype, shape)})
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

    def _scan_of_run(self, node: Node, body: Subgraph, axes: Sequence[int], backwards: Sequence[int]) -> None:
        """A `Scan` whose length a run knows, as a `Loop` that takes its slices itself."""
        first, prefix = len(node.inputs) - len(axes), f"{node.used_outputs[0]}/scan/"
        steps = self.types[node.inputs[first]].sizes[axes[0]]
        names = [f"{prefix}{name}" for name in ("steps", "last", "at", "from_end", "go", "on")]
        limit, last, at, from_end, go, on = names
        self._enter(
            {limit: array_of_sizes([steps]).reshape(()), last: array_of_sizes([steps - 1]).reshape(())}
        )
        nodes = [Node("Sub", (last, at), (from_end,), version=VERSION)]
        for value, name, axis, back in zip(
            node.inputs[first:], body.inputs[first:], axes, backwards, strict=True
        ):
            taking = Node(
                "Gather", (value, from_end if back else at), (name,), {"axis": axis}, version=VERSION
            )
            nodes.append(taking)
        nodes += [*body.nodes, Node("Identity", (go,), (on,), version=VERSION)]
        loop = Subgraph((at, go, *body.inputs[:first]), (on, *body.outputs), tuple(nodes), body.constants)
        outputs = node.outputs[first:]
        made = tuple(output and f"{prefix}out{k}" for k, output in enumerate(outputs))
        self.visit(
            Node(
                "Loop",
                (limit, "", *node.inputs[:first]),
                (*node.outputs[:first], *made),
                {"body": loop},
                node.name,
                version=VERSION,
                origin=node.origin,
            )
        )
        turns = _ints(node, "scan_output_axes", len(outputs))
        reverse = _ints(node, "scan_output_directions", len(outputs))
        for output, value, axis, back in zip(outputs, made, turns, reverse, strict=True):
            if not output or value in self.blocked:
                self.blocked.update({output} - {""})
                continue
            if back:
                ends = [np.array([n], np.int64) for n in (-1, -(1 << 62), 0, -1)]
                parts = [f"{value}/{k}" for k in range(4)]
                self._enter(dict(zip(parts, ends, strict=True)))
                self.run([Node("Slice", (value, *parts), (f"{value}/turned",), version=VERSION)])
                value = f"{value}/turned"
            rank = self.types[value].rank
            perm = [*range(1, rank)]
            perm.insert(axis % rank, 0)
            self.run([Node("Transpose", (value,), (output,), {"perm": tuple(perm)}, version=VERSION)])

    def _loop(self, node: Node) -> None:
        """Unroll a `Loop` whose number of steps is known."""
        carried = len(node.inputs[2:])
        body = _body(node, 2 + carried, 1 + max(carried, len(node.outputs)))
        limit, going = ((*node.inputs, "", "")[at] for at in range(2))
        for value in (limit, going):
            if value and self.counted is not None and _is_of_run(self.constants.get(value)):
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
                self._enter({output: without_elements(type_.dtype, shape)})
            elif output:
                self.blocked.add(output)

    def _branches(self, node: Node) -> None:
        """An `If` whose condition a run knows: both branches are graphs."""
        graphs = [self._graph(_branch_body(node, name), {}) for name in ("then_branch", "else_branch")]
        types = [[kind_of(g, g.outputs[at]) for g in graphs] for at in range(len(node.outputs))]
        self._controlled(node, Control(tuple(graphs)), types)

    def _repeated(self, node: Node, body: Subgraph, carried: int) -> None:
        """A `Loop` whose steps a run knows: its body is a graph, for carried values of any size they take."""
        names = body.inputs
        state = [self._kind(self.as_list(value)) for value in node.inputs[2:]]
        types: list[Kind] = [TensorType("i64", ()), TensorType("bool", ()), *state]
        while True:
            graph = self._graph(body, dict(zip(names, types, strict=True)))
            again = False
            for at in range(carried):
                made = kind_of(graph, graph.outputs[1 + at])
                given = types[2 + at]
                found = _carried(given, made, graph)
                if found is None:
                    self._refuse(node, f"what it carries from {names[2 + at]!r} changes its kind: {made}")
                    return
                again |= found != given
                types[2 + at] = found
            if not again:
                break
        first = [kind_of(graph, v) for v in graph.outputs[1 : len(body.outputs)]]
        rows = [TensorType(t.dtype, ("?", *t.shape)) for t in first[carried:] if isinstance(t, TensorType)]
        if len(rows) < len(first) - carried:
            self._refuse(node, "it collects lists")
            return
        kinds: list[list[Kind]] = [[types[2 + at], t] for at, t in enumerate(first[:carried])]
        kinds += [[t] for t in rows]
        self._controlled(node, Control((graph,), names, carried), kinds[: len(node.outputs)])

    @abstractmethod
    def _graph(self, body: Subgraph, inputs: Mapping[str, Kind]) -> Graph:
        """A body as a graph: what it reads around it is given to it."""

    def _controlled(self, node: Node, control: Control, types: Sequence[Sequence[Kind]]) -> None:
        """Note a node that runs graphs: its outputs have sizes that only a run knows where theirs differ."""
        inner = frozenset(symbol for graph in control.graphs for symbol in graph.counts)
        outside = [value for graph in control.graphs for value in graph.inputs if value not in control.takes]
        for output, every in zip(node.outputs, types, strict=True):
            kinds = [kind for kind in every if isinstance(kind, TensorType)]
            if len(kinds) < len(every):
                joined = in_common(every, inner)
                if joined is None:
                    self._refuse(
                        node, f"its output {quoted(output)} is of another kind where it runs otherwise"
                    )
                    return
                self.lists[output] = joined
                continue
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
        for value in (*(v for v in node.inputs if v), *outside):
            if is_sized(self.constants.get(value)):
                self.give(value)
        # two of the node's own inputs may be one value, which its steps change apart
        own = tuple(v for v in node.inputs if v)
        inputs = (*own, *dict.fromkeys(v for v in outside if v not in own))
        self.controls[node.used_outputs[0]] = control
        # `loops` keeps the places of inputs that are absent
        loops = {"inputs": ",".join(str(int(bool(v))) for v in node.inputs)}
        made = Node(node.op, inputs, node.outputs, loops, node.name, OWN, 1, node.origin)
        self.nodes.append(made)

    def _map(self, node: Node) -> None:
        """Write a `SequenceMap` out: its body for each element, other sequences taken element by element."""
        body = _body(node, len(node.inputs), len(node.outputs))
        if not node.inputs or node.inputs[0] not in {**self.sequences, **self.lists}:
            raise node_error(node, "its input 0 is no sequence")
        if any(value in self.lists for value in node.inputs):
            self._map_of_run(node, body)
            return
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

    def _map_of_run(self, node: Node, body: Subgraph) -> None:
        """A `SequenceMap` over lists of a run: a `Loop` that takes an element of each, and adds to others."""
        prefix = f"{node.used_outputs[0]}/map/"
        steps, at, go, on = (f"{prefix}{name}" for name in ("steps", "at", "go", "on"))
        listed = [v in self.sequences or v in self.lists for v in node.inputs]
        own = tuple(
            f"{prefix}in{k}" if many else v
            for k, (v, many) in enumerate(zip(node.inputs, listed, strict=True))
        )
        step = instance(body, own, f"{prefix}body/")
        before, after = (
            [f"{prefix}{name}{k}" for k in range(len(node.outputs))] for name in ("before", "after")
        )

        def do(op: str, inputs: Sequence[str], output: str) -> Node:
            return Node(op, tuple(inputs), (output,), {}, node.name, version=VERSION, origin=node.origin)

        nodes = [
            do("SequenceAt", (v, at), name)
            for v, name, many in zip(node.inputs, own, listed, strict=True)
            if many
        ]
        nodes += step.nodes
        nodes += [
            do("SequenceInsert", each[:2], each[2]) for each in zip(before, step.outputs, after, strict=True)
        ]
        loop = Subgraph((at, go, *before), (on, *after), (*nodes, do("Identity", (go,), on)), step.constants)
        self._list(do("SequenceLength", node.inputs[:1], steps))
        none = f"{prefix}none"
        self.sequences[none] = ()
        made = Node(
            "Loop",
            (steps, "", *[none] * len(before)),
            node.outputs,
            {"body": loop},
            node.name,
            version=VERSION,
            origin=node.origin,
        )
        self._repeated(made, loop, len(before))


def kind_of(graph: Graph, value: str) -> Kind:
    """The type of a value of a graph."""
    return graph.lists[value] if value in graph.lists else graph.types[value]


def _carried(given: Kind, made: Kind, graph: Graph) -> Kind | None:
    """What a loop carries that is given something first, and then what its steps make; None for unlike."""
    if isinstance(given, ListType) or isinstance(made, ListType):
        return in_common([given, made], graph.counts)
    # sizes that are any already fit whatever is made
    fits = zip(given.shape, made.shape, strict=False)
    known = tuple(m if isinstance(n, str) else n for n, m in fits)
    inner = frozenset(graph.counts) if "?" not in given.shape else frozenset()
    apart = unlike([TensorType(given.dtype, known), made], inner)
    if given.rank != made.rank or apart is None:
        return None
    shape = tuple("?" if moves else n for n, moves in zip(given.shape, apart, strict=True))
    return TensorType(made.dtype, shape)


def _is_of_run(array: Array | None) -> bool:
    """Whether only a run knows what a value holds."""
    return array is None or is_sized(array)


def _zeros(type_: TensorType) -> TensorType:
    """A type with 0 for each size that is not known yet."""
    return TensorType(type_.dtype, tuple(0 if isinstance(n, str) else n for n in type_.shape))


def _copies(values: Sequence[str], outputs: Sequence[str]) -> list[Node]:
    """Nodes that give values the names of a node's outputs."""
    pairs = zip(values, outputs, strict=False)
    return [Node("Identity", (inner,), (outer,), version=VERSION) for inner, outer in pairs if outer]


def _branch_body(node: Node, name: str) -> Subgraph:
    """A branch of an `If`."""
    body = node.attributes.get(name)
    if not isinstance(body, Subgraph) or len(body.outputs) != len(node.outputs):
        raise node_error(node, "a branch is missing, or has other outputs than the node")
    return body


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
