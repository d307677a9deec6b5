"""Sequences whose length a run knows: elements of one shape, stacked to one tensor.

Loop(…, s) with s = SequenceInsert(s, v) at its end      rows = Loop(…) that collects v
SequenceAt(s, i)                                         Gather(rows, i)
ConcatFromSequence(s)                                    rows, transposed and reshaped
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.graph.control import read_outside
from tilewright.graph.counting import Counting
from tilewright.graph.model import Attribute, Node, Subgraph
from tilewright.graph.program import context_of
from tilewright.graph.sequences import on_sequences
from tilewright.graph.size_values import array_of_sizes
from tilewright.graph.unroll import VERSION, stacked


class Stacks(Counting):
    """A walk that meets sequences."""

    def _on_stack(self, node: Node) -> bool:
        """Take in a node on a sequence that is a tensor, or of which data says a place; False for others."""
        value = node.inputs[0] if node.inputs else ""
        if node.domain or not (value in self.stacks or value in self.sequences):
            return False
        at_run = node.op == "SequenceAt" and node.inputs[1] not in self.constants and self.counted is not None
        if value not in self.stacks and not at_run:
            return False
        output = node.outputs[0]
        if node.op == "Identity":
            self.stacks[output] = self.stacks[value]
        elif node.op == "SequenceAt":
            rows = self._rows(node, value)
            self._nodes(node, [("Gather", (rows, node.inputs[1]), output, {"axis": 0})] if rows else [])
        elif node.op == "SequenceLength":
            count = self.types[self.stacks[value]].sizes[0]
            self._enter({f"{output}/count": array_of_sizes([count]).reshape(())})
            self._nodes(node, [("Identity", (f"{output}/count",), output, {})])
        elif node.op == "ConcatFromSequence":
            self._joined(node, self.stacks[value])
        elif on_sequences(node, {}):
            self._refuse(node, "the length of its sequence is known only in a run")
        else:
            return False
        return True

    def _rows(self, node: Node, value: str) -> str:
        """The tensor of a sequence, stacked where it is none yet; "" where the node is refused."""
        if value not in self.stacks:
            items = self.sequences[value]
            types = [self.types[item] for item in items]
            if not items or any(t != types[0] for t in types):
                self._refuse(node, "the elements of its sequence are none, or unlike each other")
                return ""
            rows = f"{value}/rows"
            if rows not in self.types:
                nodes, constants = stacked(items, rows, 0, f"{rows}/")
                self._enter(constants)
                self.run(nodes)
            self.stacks[value] = rows
        return self.stacks[value]

    def _joined(self, node: Node, rows: str) -> None:
        """All elements along an axis, or along a new one."""
        sizes, output = self.types[rows].sizes, node.outputs[0]
        new = bool(node.attributes.get("new_axis", 0))
        context = context_of(node, self.types, self.constants, self.limits.tensor_bytes)
        axis = context.axis("axis", len(sizes) if new else len(sizes) - 1)
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(sizes))]
        if new:
            self._nodes(node, [("Transpose", (rows,), output, {"perm": tuple(order)})])
            return
        element = sizes[1:]
        shape = array_of_sizes([*element[:axis], sizes[0] * element[axis], *element[axis + 1 :]])
        self._enter({f"{output}/shape": shape})
        self._nodes(
            node,
            [
                ("Transpose", (rows,), f"{output}/turned", {"perm": tuple(order)}),
                ("Reshape", (f"{output}/turned", f"{output}/shape"), output, {"allowzero": 1}),
            ],
        )

    def _nodes(
        self, node: Node, parts: Sequence[tuple[str, tuple[str, ...], str, Mapping[str, Attribute]]]
    ) -> None:
        for op, inputs, output, attributes in parts:
            self.visit(Node(op, inputs, (output,), attributes, node.name, "", VERSION, node.origin))

    def _collecting(self, node: Node, body: Subgraph) -> bool:
        """Take in a loop that carries sequences, each with one more element at its end in a step.

        False where it carries none. Else it is refused, or a loop that collects the elements.
        """
        carried = [
            k for k, value in enumerate(node.inputs[2:]) if value in self.sequences or value in self.stacks
        ]
        if not carried:
            return False
        inserts = {}
        for k in carried:
            name, made = body.inputs[2 + k], body.outputs[1 + k]
            makers = [n for n in body.nodes if made in n.used_outputs and n.op == "SequenceInsert"]
            insert = makers[0] if makers else node
            rest = tuple(v for at, v in enumerate(body.outputs) if at != 1 + k)
            others = tuple(n for n in body.nodes if n is not insert)
            reads = read_outside(Subgraph((), rest, others, {}))
            alone = len(insert.used_inputs) == 2 and insert.inputs[0] == name
            if not makers or not alone or not {name, made}.isdisjoint(reads):
                self._refuse(
                    node, f"the sequence {name!r} that it carries is no list of one element more a step"
                )
                return True
            inserts[k] = insert
        count, at = len(node.inputs) - 2, range(len(node.inputs) - 2)
        rows = {k: f"{node.used_outputs[0]}/rows{k}" for k in carried}
        loop = Subgraph(
            (*body.inputs[:2], *(body.inputs[2 + k] for k in at if k not in carried)),
            (
                body.outputs[0],
                *(body.outputs[1 + k] for k in at if k not in carried),
                *body.outputs[1 + count :],
                *(inserts[k].inputs[1] for k in carried),
            ),
            tuple(n for n in body.nodes if not any(n is i for i in inserts.values())),
            body.constants,
        )
        outputs = [*node.outputs, *[""] * (len(body.outputs) - 1 - len(node.outputs))]
        made_ = (*(v for k, v in enumerate(outputs) if k not in carried), *rows.values())
        inputs = (*node.inputs[:2], *(v for k, v in enumerate(node.inputs[2:]) if k not in carried))
        again = replace(node, inputs=inputs, outputs=made_, attributes={"body": loop})
        self._repeated(again, loop, count - len(carried))
        for k, new in rows.items():
            self._appended(node, node.inputs[2 + k], new, node.outputs[k])
        return True

    @abstractmethod
    def _repeated(self, node: Node, body: Subgraph, carried: int) -> None:
        """Take in a `Loop` whose steps a run knows."""

    def _appended(self, node: Node, before: str, rows: str, output: str) -> None:
        """A sequence with rows at its end."""
        if not output or rows in self.blocked:
            self.blocked.update({output} - {""})
            return
        if self.sequences.get(before, ("",)):
            start = self._rows(node, before)
            if not start:
                return
            self._nodes(node, [("Concat", (start, rows), f"{output}/rows", {"axis": 0})])
            rows = f"{output}/rows"
        self.stacks[output] = rows
