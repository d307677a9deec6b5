"""Operators that are taken apart: the nodes of simpler operators that compute the same.

    @decomposition("BiasGelu", domain=MICROSOFT)
    def bias_gelu(p: Parts, x: str, bias: str) -> None:
        p.give(p.add("Gelu", (p.add("Add", (x, bias)),)))

Types are inferred node by node, so passes and fusion see what they know already: a fused operator of another
runtime's is as fast here as what it was fused from. A decomposition is given the names of the node's inputs
("" for one that is absent) and adds nodes to `Parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import numpy as np

from tilewright.graph.model import Array, Attribute, Node, Repeat, TensorType
from tilewright.graph.program import blaming
from tilewright.graph.registry import Context, arity, standard_domain
from tilewright.graph.size_values import array_of_sizes
from tilewright.graph.unroll import VERSION
from tilewright.ir import dtype_of, is_open
from tilewright.support import InternalError


@dataclass(slots=True)
class Parts:
    """The nodes of an operator taken apart, and their constants; `ctx` says what is known of it."""

    ctx: Context
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """What the names of all values begin with that are made here."""
        return f"{self.ctx.node.used_outputs[0]}/"

    def type(self, at: int) -> TensorType:
        """The type of an input that must be present."""
        return self.ctx.type(at)

    def shape(self, at: int) -> tuple[int, ...]:
        """The shape of an input that must be present."""
        return self.ctx.type(at).sizes

    def constant(self, array: Array, name: str = "") -> str:
        """A constant under a name of the operator's own."""
        value = f"{self.prefix}{name or f'c{len(self.constants)}'}"
        self.constants[value] = array
        return value

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        output: str = "",
        domain: str = "",
        attributes: Mapping[str, Attribute] | None = None,
        **more: Attribute,
    ) -> str:
        """A node of one output, and the value's name: one of its own unless `output` says which."""
        return self.several(
            op, inputs, (output or f"{self.prefix}v{len(self.nodes)}",), domain, attributes, None, **more
        )[0]

    def several(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: int | Sequence[str],
        domain: str = "",
        attributes: Mapping[str, Attribute] | None = None,
        repeat: Repeat | None = None,
        **more: Attribute,
    ) -> tuple[str, ...]:
        """A node of several outputs: their names, or how many there are."""
        if isinstance(outputs, int):
            outputs = [f"{self.prefix}v{len(self.nodes)}.{at}" for at in range(outputs)]
        kept = list(inputs)
        while kept and not kept[-1]:
            kept.pop()
        name = self.ctx.node.name
        made = Node(
            op,
            tuple(kept),
            tuple(outputs),
            {**(attributes or {}), **more},
            name=name,
            domain=domain,
            version=VERSION,
            repeat=repeat,
        )
        self.nodes.append(made)
        return tuple(outputs)

    def ints(self, values: Sequence[int]) -> str:
        """A constant of integers, as operators take shapes and axes."""
        return self.constant(array_of_sizes(values))

    def filled(self, shape: Sequence[int], value: float, dtype: str, name: str = "") -> str:
        """A tensor of one value: a constant, or made in each run where only that knows the shape."""
        made = np.full((), value, dtype_of(dtype).numpy)
        if not any(map(is_open, shape)):
            return self.constant(np.full(tuple(shape), made), name)
        output = f"{self.prefix}{name}" if name else ""
        return self.add("ConstantOfShape", (self.ints(shape),), output, value=made.reshape(1))

    def places(self, count: int, dtype: str = "i64", name: str = "") -> str:
        """0, 1 … before a count: a constant, or made in each run where only that knows how many there are."""
        if not is_open(count):
            return self.constant(np.arange(count, dtype=dtype_of(dtype).numpy), name)
        ends = (
            self.number(0, "i64"),
            self.constant(array_of_sizes([count]).reshape(())),
            self.number(1, "i64"),
        )
        made = self.add("Range", ends)
        return made if dtype == "i64" else self.add("Cast", (made,), to=dtype)

    def number(self, value: float, dtype: str) -> str:
        """A constant of one element."""
        return self.constant(np.array(value, dtype_of(dtype).numpy))

    def reshape(self, value: str, shape: Sequence[int], output: str = "") -> str:
        """Another shape, with the meaning of 0 and -1 that Reshape gives them."""
        return self.add("Reshape", (value, self.ints(shape)), output)

    def transpose(self, value: str, *perm: int) -> str:
        """The axes in another order."""
        return self.add("Transpose", (value,), perm=perm)

    def split(self, value: str, sizes: Sequence[int], axis: int = -1) -> tuple[str, ...]:
        """Consecutive parts along an axis."""
        return self.several("Split", (value, self.ints(sizes)), len(sizes), axis=axis)

    def give(self, value: str, output: int = 0) -> None:
        """Let a value be an output of the node, where anyone wants that one."""
        if self.ctx.wants(output):
            self.add("Identity", (value,), self.ctx.node.outputs[output])

    def refuse_outputs(self, *outputs: int) -> None:
        """Refuse the node where an output is wanted that is not computed."""
        for output in outputs:
            if self.ctx.wants(output):
                raise self.ctx.unsupported(f"its output {output} is not supported")


#: Adds the nodes to the parts; False where the node stays one.
Decomposition: TypeAlias = Callable[..., bool | None]
_D = TypeVar("_D", bound=Decomposition)

_DECOMPOSITIONS: Final[dict[tuple[str, str], Decomposition]] = {}


def decomposition(*names: str, domain: str = "") -> Callable[[_D], _D]:
    """Register the decorated decomposition under one or more names."""

    def register(take_apart: _D) -> _D:
        for name in names:
            if (domain, name) in _DECOMPOSITIONS:
                raise InternalError(f"the decomposition of {name} is defined twice")
            _DECOMPOSITIONS[domain, name] = take_apart
        return take_apart

    return register


def is_decomposed(domain: str, op: str) -> bool:
    """Whether there is a decomposition of that operator (some attributes may still be refused)."""
    return (standard_domain(domain), op) in _DECOMPOSITIONS


def decomposed_operators() -> frozenset[tuple[str, str]]:
    """Domain and name of the operators that may be taken apart."""
    return frozenset(_DECOMPOSITIONS)


def taken_apart(context: Context) -> Parts | None:
    """The parts of a node; None where it stays one.

    Raises UnsupportedOperatorError or ModelError as the decomposition decides.
    """
    node = context.node
    found = _DECOMPOSITIONS.get((standard_domain(node.domain), node.op))
    if found is None or not node.used_outputs:
        return None
    least, most = arity(found)
    fits = least <= len(node.inputs) and (most is None or len(node.inputs) <= most)
    context.require(fits, f"it has {len(node.inputs)} inputs, which is not what it takes")
    parts = Parts(context)
    with blaming(node):
        applies = found(parts, *node.inputs)
    return None if applies is False else parts
