"""A walk through a model's nodes: what is known of each value, and how nodes with definitions are taken."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeAlias

import numpy as np

from tilewright.graph.alike import Key, node_key
from tilewright.graph.control import Control, Counted, Listing
from tilewright.graph.fold_sizes import folded, run_time_node, sizes_node
from tilewright.graph.model import Array, ListType, Node, TensorType, type_of
from tilewright.graph.operand import literal, placeholder
from tilewright.graph.program import apply, context_of, evaluate_static, nodes_program
from tilewright.graph.registry import (
    DEFAULT_MAX_BYTES,
    Context,
    IndexRange,
    Kind,
    NotStaticError,
    Operator,
    find_operator,
)
from tilewright.graph.rewrite import topological
from tilewright.graph.size_values import is_sized
from tilewright.ir import (
    dtype_of,
    is_open,
)
from tilewright.support import ModelError, NodeLocation, UnsupportedOperatorError, quoted


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model may ask for.

    `tensor_bytes` bounds each tensor, and `folded_bytes` all constants that are computed when compiling
    together: a node whose output would exceed it is left to be computed in each run.
    """

    tensor_bytes: int = DEFAULT_MAX_BYTES
    folded_bytes: int = 1 << 31


#: The nodes that a node is composed of, given its inputs' types; None if the front end knows none.
Expand: TypeAlias = Callable[[Node, Sequence[TensorType | None]], Sequence[Node] | None]


class Walk(ABC):
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
        self.controls: dict[str, Control | Listing] = {}
        self.relations: list[tuple[int, int, str]] = []
        self.types = types
        self.constants = constants
        self.limits = limits
        self.unreadable = unreadable
        self.nodes: list[Node] = []
        self.refused: list[tuple[NodeLocation, str]] = []
        self.blocked: set[str] = set()
        self.alike: dict[Key, tuple[tuple[TensorType, ...], tuple[IndexRange, ...]]] = {}
        self.sequences: dict[str, tuple[str, ...]] = {}
        self.lists: dict[str, ListType] = {}
        self.given = tuple(types)
        self.inner = False
        self.undetermined: dict[str, None] = {}
        self.folded = 0
        self.types.update({value: type_of(array) for value, array in constants.items()})

    def run(self, nodes: Sequence[Node]) -> None:
        """Take nodes in, in topological order. Raises ModelError where one reads what nothing makes."""
        known = self.types.keys() | self.blocked | self.sequences.keys() | self.lists.keys()
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
        """Have a kernel make a value that holds sizes of a run."""
        array = self.constants.pop(value)
        self.visit(sizes_node(array, self.types[value].dtype, value))

    @abstractmethod
    def visit(self, node: Node) -> None:
        """Take one node in: evaluate it, type it, or note why it cannot be compiled."""

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

    def _enter(self, constants: Mapping[str, Array]) -> None:
        for value, array in constants.items():
            self.constants[value] = array
            self.types[value] = type_of(array)

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
            self._enter({v: without_elements(made.type.dtype, made.type.sizes) for v, made in wanted})
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


def without_elements(dtype: str, shape: Sequence[int]) -> Array:
    """An array of a shape in which a size is 0."""
    return np.zeros(shape, dtype_of(dtype).numpy)


def _stays_quantised(node: Node, context: Context) -> bool:
    """Whether a node dequantises a matrix or more: passes may multiply the integers themselves."""
    first = context.values[0] if context.values else None
    return node.op == "DequantizeLinear" and not node.domain and first is not None and first.ndim > 1


def node_error(node: Node, problem: str) -> ModelError:
    """The error of a model that is wrong at a node."""
    return ModelError(problem, where=node.location)
