"""Sizes that data says: numbers that a run computes, and how many elements a condition holds for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tilewright.graph.model import Attribute, Node, TensorType
from tilewright.graph.registry import (
    OWN,
    NotStaticError,
)
from tilewright.graph.size_values import array_of_sizes
from tilewright.graph.unroll import VERSION
from tilewright.graph.walk import Walk
from tilewright.ir import (
    MAX_RANK,
    Param,
    RelationError,
    as_size,
    base_symbols,
    index,
    index_of,
    is_open,
    most_of,
)

#: The largest size that data may say.
MOST_COUNTED: Final = 1 << 31


#: How what data says is called, as sizes, behind the name of the value.
SAID: Final = "/said"


class Counting(Walk):
    """A walk that meets sizes that data says."""

    def _count(self, value: str, at: int, most: int, *, axis: bool = False) -> int:
        """The size that an element, or an axis, of a value says in a run."""
        assert self.counted is not None
        symbol = f"count{next(self.counted.numbers)}"
        self.counted.symbols.add(symbol)
        self.counts[symbol] = (value, at, axis)
        known = self.counted.said.get(symbol)
        return as_size(index(Param(symbol, 0, most)) if known is None else known)

    def _with_sizes(self, node: Node, error: NotStaticError) -> Node | None:
        """The node with the elements of an input as sizes of a run; None where they are not sizes."""
        type_ = self.types.get(error.value)
        if type_ is None or type_.dtype not in ("i32", "i64") or type_.rank > 1 or not type_.is_static:
            return None
        if is_open(type_.elements):
            # sizes that are one by one cut out of others: each run checks that it is one
            alone = self._resized(node, error.value, type_, (1,)) if type_.rank else None
            if alone is None:
                return None
            return replace(node, inputs=tuple(alone if v == error.value else v for v in node.inputs))
        if type_.elements > MAX_RANK:
            return None
        name = f"{error.value}{SAID}"
        if name not in self.constants:
            most = MOST_COUNTED
            if node.op == "TopK" and not is_open(known := self._sorted(node)):
                most = known
            sizes = [self._count(error.value, at, most) for at in range(type_.elements)]
            self.constants[name] = array_of_sizes(sizes).reshape(type_.sizes)
            self.types[name] = type_
        return replace(node, inputs=tuple(name if v == error.value else v for v in node.inputs))

    def _sorted(self, node: Node) -> int:
        """The elements of the axis that a selection takes the largest of."""
        shape, axis = self.types[node.inputs[0]].sizes, node.attributes.get("axis", -1)
        return shape[axis] if isinstance(axis, int) and -len(shape) <= axis < len(shape) else MOST_COUNTED

    def _with_equal_sizes(self, node: Node, error: RelationError) -> Node | None:
        """The node with inputs whose sizes are equal, as each run checks; None where data says neither.

        What compares one size with a number is no such thing: that is known then, but in a branch or loop.
        """
        symbols = base_symbols(error.difference)
        single = [atom for atom, _ in error.difference.terms if isinstance(atom, Param) and not atom.factors]
        if self.counted is None or not any(name in self.counted.symbols for name in symbols):
            return None
        if len(error.difference.terms) == len(single) == 1 and not self.inner:
            return None
        for kept, other in (error.sizes, error.sizes[::-1]):
            if len(error.difference.terms) == len(single) == 1 and not is_open(other):
                continue
            reads = {v: self.types[v] for v in node.used_inputs if other in self.types[v].sizes}
            if not reads:
                continue
            names = {
                value: self._resized(node, value, type_, [kept if n == other else n for n in type_.sizes])
                for value, type_ in reads.items()
            }
            return replace(node, inputs=tuple(names.get(v) or v for v in node.inputs))
        return None

    def _resized(self, node: Node, value: str, type_: TensorType, shape: Sequence[int]) -> str | None:
        """A value with another shape, which each run checks to be its own; None where no data says it."""
        apart = [(n, m) for n, m in zip(shape, type_.sizes, strict=True) if n != m]
        symbols = {name for n, m in apart for name in base_symbols(index_of(n) - index_of(m))}
        if self.counted is None or symbols.isdisjoint(self.counted.symbols):
            return None
        name = f"{value}/equal{len(self.relations)}"
        self.relations += [(n, m, str(node.location)) for n, m in apart]
        made = {"shape": array_of_sizes(shape)}
        self.visit(Node("Resized", (value,), (name,), made, node.name, OWN, 1, node.origin))
        return name

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
