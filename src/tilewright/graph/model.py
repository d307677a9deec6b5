"""The model graph: what a front end hands over, and what the passes rewrite.

    Graph      := inputs, outputs, constants (value name -> array), nodes in topological order,
                  types (value name -> TensorType, of every value)
    Node       := operator (domain, name, version), inputs, outputs, attributes, name in the user's model
    TensorType := dtype, shape
    Dim        := int | Size | str              a Size is one of a run, a string an unknown size, by name

A *value* is a tensor known by its name. Each value is made once: it is an input, a constant or one output of
one node. The empty string stands for an optional input that is absent, or an output nobody wants. Names come
from the user's model: they may hold anything, so they are keys and appear in messages, never in generated
code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy.typing as npt

from tilewright.ir import Size, dtype_of
from tilewright.support import InternalError, ModelError, NodeLocation, digest, quoted

Array = npt.NDArray[Any]
Dim = int | str


@dataclass(frozen=True, slots=True, eq=False)
class Subgraph:
    """A graph in an attribute, such as a branch of `If`, before types are known.

    Its nodes may read values of the graph around it; its names differ from all names there.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]


Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Array | Subgraph


@dataclass(frozen=True, slots=True)
class TensorType:
    """The element type and the shape of a tensor, dense and row-major."""

    dtype: str
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every size is known, be it as one of a run."""
        return all(isinstance(size, int | Size) for size in self.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape, all of it known. Raises InternalError where it is not."""
        known = tuple(size for size in self.shape if isinstance(size, int | Size))
        if len(known) != len(self.shape):
            raise InternalError(f"the shape {self} has unknown sizes")
        return known

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)

    @property
    def nbytes(self) -> int:
        """The bytes of a dense buffer."""
        return self.elements * dtype_of(self.dtype).bytes

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class ListType:
    """A list of tensors that only a run knows, or unless ``many`` one tensor; ``optional``: or nothing.

    The sizes of elements may be any ("?"), their rank too (the shape is ``None``); "" is the type of none.
    """

    dtype: str
    shape: tuple[Dim, ...] | None
    many: bool = True
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """An operator applied `count` times in a row: a loop over time.

    Of the inputs `sliced` application t gets element t of the first dimension, of others the same value each
    time. The node's outputs are those of all applications, one after another along a first dimension more.
    `carried` pairs an input with an output: the given value is that of the first application, later ones get
    what the one before has made. A loop that runs `backwards` begins with the last element.
    """

    count: int
    sliced: tuple[int, ...]
    carried: tuple[tuple[int, int], ...]
    backwards: bool = False

    @property
    def order(self) -> range:
        """The elements in the order of the applications."""
        return range(self.count - 1, -1, -1) if self.backwards else range(self.count)

    def step_type(self, at: int, type_: TensorType) -> TensorType:
        """The type of input `at` in one application."""
        return TensorType(type_.dtype, type_.shape[1:]) if at in self.sliced else type_


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One application of an operator.

    `version` is the version of the operator set `domain` that the model is written in: the registry picks the
    meaning an operator had then. `origin` is what a front end knows the node by; copies keep it. `repeat`
    says that the operator is applied again and again.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    name: str = ""
    domain: str = ""
    version: int = 1
    origin: str = ""
    repeat: Repeat | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", MappingProxyType(dict(self.attributes)))

    @property
    def location(self) -> NodeLocation:
        """Where the node is in the user's model: its name there, or else the name of its first output."""
        name = self.name or next((value for value in self.outputs if value), "")
        return NodeLocation(name, self.op if not self.domain else f"{self.domain}.{self.op}")

    @property
    def used_inputs(self) -> tuple[str, ...]:
        """The inputs that are present."""
        return tuple(value for value in self.inputs if value)

    @property
    def used_outputs(self) -> tuple[str, ...]:
        """The outputs that have a name."""
        return tuple(value for value in self.outputs if value)

    def key(self) -> str:
        """A digest of all that determines the node's results: equal keys, equal outputs."""
        return digest(
            self.domain,
            self.op,
            self.version,
            self.inputs,
            len(self.outputs),
            dict(self.attributes),
            None if self.repeat is None else astuple(self.repeat),
        )

    def __str__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.op}({', '.join(self.inputs)})"


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A model: nodes in topological order, and the type of every value.

    `outputs` are values, `output_names` what the model calls them: two outputs may be one value, and an
    output may be an input or a constant. Construction freezes the mappings and checks nothing; `check` does.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    types: Mapping[str, TensorType]
    output_names: tuple[str, ...] = ()
    name: str = ""
    counts: Mapping[str, tuple[str, int, bool]] = field(default_factory=dict)
    """Symbols of sizes that data decides: the value that says each, and whether by the number of elements
    along an axis or by an element, which is numbered."""
    controls: Mapping[str, object] = field(default_factory=dict)
    """What nodes do that run graphs, or work on lists (``control.py``), by their first outputs."""
    lists: Mapping[str, ListType] = field(default_factory=dict)
    """The types of values that are lists of a run, or may be absent."""
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Inputs and outputs, by the model's names, of numbers that stand for texts, and these in their order."""
    maps: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    """Outputs whose rows are maps, by the model's names, and their keys."""
    relations: tuple[tuple[int, int, str], ...] = ()
    """Sizes that data says and that have to be equal, which each run checks, and the node that needs it."""
    returned: int | None = None
    """How many of the outputs the graph is for; others are values that say sizes. All, where it is None."""
    _producers: dict[str, Node] = field(default_factory=dict, init=False, repr=False)
    _consumers: dict[str, tuple[Node, ...]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))
        object.__setattr__(self, "types", MappingProxyType(dict(self.types)))
        if not self.output_names:
            object.__setattr__(self, "output_names", self.outputs)
        consumers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.used_inputs):
                consumers.setdefault(value, []).append(node)
            for value in node.used_outputs:
                self._producers[value] = node
        self._consumers.update({value: tuple(nodes) for value, nodes in consumers.items()})

    def producer(self, value: str) -> Node | None:
        """The node that makes `value`; None for inputs and constants."""
        return self._producers.get(value)

    def consumers(self, value: str) -> tuple[Node, ...]:
        """The nodes that read `value`, in order, each once."""
        return self._consumers.get(value, ())

    def is_output(self, value: str) -> bool:
        """Whether the model returns `value`."""
        return value in self.outputs

    def use_count(self, value: str) -> int:
        """How many nodes read the value, plus one if the model returns it."""
        return len(self.consumers(value)) + (1 if self.is_output(value) else 0)

    def constant(self, value: str) -> Array | None:
        """The array of a constant; None for other values."""
        return self.constants.get(value)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def check(self) -> None:
        """Raise where the graph is not well formed.

        ModelError for what a model's author can get wrong (a value used before it is made, made twice, an
        output nobody makes); InternalError for a value without a type.
        """
        made: set[str] = set(self.inputs)
        if len(made) != len(self.inputs):
            raise ModelError("two inputs of the model have the same name")
        for value in self.constants:
            if value in made:
                raise ModelError(f"the value {quoted(value)} is both an input and a constant")
            made.add(value)
        for node in self.nodes:
            for value in node.used_inputs:
                if value not in made:
                    raise ModelError(f"reads {quoted(value)}, which nothing made before", where=node.location)
            for value in node.used_outputs:
                if value in made:
                    raise ModelError(f"makes {quoted(value)}, which was made before", where=node.location)
                made.add(value)
        for value in self.outputs:
            if value not in made:
                raise ModelError(f"nothing makes the model's output {quoted(value)}")
        for value in made:
            if value not in self.types and value not in self.lists:
                raise InternalError(f"the value {quoted(value)} has no type")

    def __str__(self) -> str:
        def typed(values: Sequence[str]) -> str:
            return ", ".join(f"{value}: {self.types.get(value, '?')}" for value in values)

        lines = [f"graph {self.name}({typed(self.inputs)}) -> ({typed(self.outputs)})"]
        lines += [f"  {node}  : {typed(node.used_outputs)}" for node in self.nodes]
        return "\n".join(lines)


def type_of(array: Array) -> TensorType:
    """The type of a numpy array; of one that holds sizes of a run, that of sizes.

    Raises ModelError for an element type that tensors do not have.
    """
    if array.dtype == object:
        return TensorType("i64", tuple(array.shape))
    try:
        return TensorType(dtype_of(array.dtype).name, tuple(array.shape))
    except (KeyError, TypeError):
        raise ModelError(f"arrays of {array.dtype} are not supported") from None
