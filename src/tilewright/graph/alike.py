"""Nodes that are alike: what their definitions can see of them, as keys under which results are found again.

Large graphs repeat a few hundred kinds of nodes and groups thousands of times; each kind is built once. A
definition sees a node's operator and attributes, the types of its inputs, and of constants their elements: of
small ones any, of large ones those that are static (known when compiling by the operator's own word).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

from tilewright.graph.model import Array, Node, TensorType
from tilewright.graph.registry import find_operator

Key: TypeAlias = tuple[object, ...]

#: Constants of more elements are operands: only operators that declare them static look at what they hold.
SMALL: Final = 64


def node_key(node: Node, types: Sequence[TensorType | None], values: Sequence[Array | None]) -> Key | None:
    """What a definition sees of a node, but for names; None where that is too much to compare."""
    attributes = _attributes(node)
    entry = find_operator(node)
    if attributes is None or entry is None:
        return None
    constants: list[object] = []
    for at, value in enumerate(values):
        constant = None if value is None else _constant(value, at in entry.static)
        if constant is _UNLIKE:
            return None
        constants.append(constant)
    outputs = tuple(map(bool, node.outputs))
    return (
        node.domain,
        node.op,
        node.version,
        attributes,
        tuple(types),
        tuple(constants),
        outputs,
        node.repeat,
    )


def group_key(
    nodes: Sequence[Node],
    types: Mapping[str, TensorType],
    constants: Mapping[str, Array],
    outputs: Sequence[str],
    named: Sequence[Collection[str]] = (),
) -> tuple[Key, tuple[str, ...]] | None:
    """What the program of some nodes follows from but for names, and the names of their values in order.

    `named` are further groups of values that mean something to whoever builds it.
    """
    numbers: dict[str, int] = {}
    keys: list[Key] = []
    for node in nodes:
        own = node_key(
            node,
            [types[value] if value else None for value in node.inputs],
            [constants.get(value) if value else None for value in node.inputs],
        )
        if own is None:
            return None
        places = tuple(
            numbers.setdefault(value, len(numbers)) if value else -1
            for value in (*node.inputs, *node.outputs)
        )
        keys.append((own, places))
    made = tuple(numbers.setdefault(value, len(numbers)) for value in outputs)
    further = tuple(tuple(sorted(numbers.get(value, -1) for value in values)) for values in named)
    return (tuple(keys), made, further), tuple(numbers)


_UNLIKE: Final = object()


def _constant(value: Array, static: bool) -> object:
    if value.dtype == object:
        return (value.shape, tuple(value.flat))
    if value.size > SMALL:
        return _UNLIKE if static else "operand"
    return (value.dtype.str, value.shape, value.tobytes())


def _attributes(node: Node) -> Key | None:
    found = sorted(node.attributes.items())
    plain = all(isinstance(value, int | float | str | tuple) for _, value in found)
    # True and 1 are equal, and so are 0.0 and -0.0: what is compared is what is written
    return tuple((name, repr(value)) for name, value in found) if plain else None
