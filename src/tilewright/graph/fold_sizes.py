"""Arithmetic on sizes of a run: what shapes and numbers computed of shapes are, as expressions.

Where an array of integers holds sizes that only a run knows, its elements are Python's integers and sizes
(dtype ``object``). What models compute of shapes stays such an array as long as it is an expression of sizes;
what is none is data, computed in each run by kernels that are given the sizes.
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tilewright.graph.model import Array, Node, TensorType
from tilewright.graph.program import nodes_program
from tilewright.graph.registry import OWN, AxesAsked, Context, Kind, Operator
from tilewright.graph.size_values import is_sized, without_sizes
from tilewright.ir import OpenSizeError, Size, dtype_of, index_of, int_lower, int_upper, least, most

#: Elements up to which integers computed of sizes are looked at: shapes and pads are smaller.
_FEW: Final = 256


def folded(ctx: Context, entry: Operator) -> list[tuple[Array, str]] | None:
    """The outputs of a node as arrays of sizes with their element types; ``None`` where that is data."""
    values = [value for value in ctx.values if value is not None]
    absent = any(value is None and name for value, name in zip(ctx.values, ctx.node.inputs, strict=True))
    if absent or any(value.size > _FEW or value.dtype.kind not in "iubO" for value in values):
        return None
    if entry.kind in (Kind.VIEW, Kind.MOVEMENT, Kind.GATHER):
        return _moved(ctx, entry)
    made = _computed(ctx)
    if made is None:
        return None
    dtype = ctx.type(0).dtype
    if ctx.node.op == "Cast":
        dtype = ctx.text("to")
        if not dtype_of(dtype).is_integer:
            return None
    elif ctx.node.op in _COMPARISONS:
        dtype = "bool"
    elif ctx.node.op == "Where":
        dtype = ctx.type(1).dtype
    return [(without_sizes(made, dtype), dtype)]


def run_time_node(node: Node, ctx: Context) -> Node | None:
    """The node that computes in a run what its operator makes when compiling, of sizes that are known."""
    if node.op == "Range" and not node.domain:
        attributes = {"dtype": ctx.type(0).dtype}
        return replace(node, op="RunRange", domain=OWN, version=1, attributes=attributes)
    if node.op == "ConstantOfShape" and not node.domain:
        value = ctx.tensor("value").reshape(-1) if ctx.has("value") else np.zeros(1, np.float32)
        return replace(node, op="RunFill", domain=OWN, version=1, attributes={"value": value})
    return None


def sizes_node(array: Array, dtype: str, output: str) -> Node:
    """The node that makes sizes of a run a tensor: what is computed of them is data from here on."""
    return Node("RunSizes", (), (output,), {"values": array, "dtype": dtype}, domain=OWN)


def _moved(ctx: Context, entry: Operator) -> list[tuple[Array, str]] | None:
    """Movement of sizes: that of their numbers, which the operator's own definition moves."""
    data = [at for at, value in enumerate(ctx.values) if value is not None and at not in entry.static]
    data = data[:1] if entry.kind is not Kind.MOVEMENT else data
    if any(is_sized(value) for at, value in enumerate(ctx.values) if at not in data):
        return None
    elements: list[Any] = []
    constants: dict[str, Array] = {}
    names: list[str] = []
    types: dict[str, TensorType] = {}
    for at, value in enumerate(ctx.values):
        names.append("" if value is None else f"v{at}")
        if value is None:
            continue
        if at in data:
            first = len(elements)
            elements += value.reshape(-1).tolist()
            value = np.arange(first, len(elements), dtype=np.int64).reshape(value.shape)
        constants[names[-1]] = value
        type_ = ctx.type(at)
        types[names[-1]] = replace(type_, dtype="i64") if at in data else type_
    outputs = tuple(f"o{at}" if name else "" for at, name in enumerate(ctx.node.outputs))
    node = replace(ctx.node, inputs=tuple(names), outputs=outputs)
    program = nodes_program([node], types, constants, [name for name in outputs if name])
    made = program.evaluate({name: value for name, value in constants.items() if not is_sized(value)})
    dtype = ctx.type(data[0]).dtype
    found = []
    for name in outputs:
        places = made[name] if name else np.zeros(0, np.int64)
        array = np.empty(places.shape, object)
        array.reshape(-1)[:] = [elements[place] for place in places.reshape(-1).tolist()]
        found.append((without_sizes(array, dtype), dtype))
    return found


class _DataError(Exception):
    """A result that is no expression of sizes."""


def _difference(a: int, b: int) -> tuple[int | None, int | None]:
    x = index_of(a) - index_of(b)
    return (int_lower(x, {}), int_upper(x, {})) if x.terms else (x.const, x.const)


def _equal(a: int, b: int) -> bool:
    low, high = _difference(a, b)
    if low == high == 0:
        return True
    if (low is not None and low > 0) or (high is not None and high < 0):
        return False
    raise _DataError


def _quotient(a: int, b: int) -> int:
    """Division towards zero, where it is that towards minus infinity."""
    if not isinstance(b, Size) and b == 0:
        raise _DataError
    return a // b if a >= 0 and b >= 0 else -(-a // b)


def _remainder(a: int, b: int) -> int:
    if not b > 0:
        raise _DataError
    return a % b


_COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = MappingProxyType({
    "Equal": _equal, "Less": python.lt, "Greater": python.gt,
    "LessOrEqual": python.le, "GreaterOrEqual": python.ge,
})  # fmt: skip
_PAIRS: Final[Mapping[str, Callable[[int, int], int]]] = MappingProxyType({
    "Add": python.add, "Sub": python.sub, "Mul": python.mul, "Div": _quotient, "Mod": _remainder,
    "Max": most, "Min": least,
})  # fmt: skip
_SUMS: Final[Mapping[str, Callable[[int, int], int]]] = MappingProxyType({
    "ReduceProd": python.mul, "ReduceSum": python.add, "ReduceMax": most, "ReduceMin": least,
})  # fmt: skip


def _computed(ctx: Context) -> Array | None:
    op, values = ctx.node.op, [np.asarray(value, object) for value in ctx.values if value is not None]
    try:
        if op in ("Cast", "Identity"):
            return values[0]
        if op == "Where":
            # the condition is one of numbers: comparisons of sizes that are not decided are data
            return None if is_sized(ctx.values[0]) else _each(lambda c, a, b: a if c else b, *values)
        if op == "Neg":
            return _each(python.neg, *values)
        if op == "Abs":
            return _each(lambda a: most(a, -a), *values)
        if op == "Mod" and ctx.flag("fmod", False):
            return None
        pair = _PAIRS.get(op) or _COMPARISONS.get(op)
        if pair is not None:
            made = values[0]
            for other in values[1:]:
                made = _each(pair, made, other)
            return made
        if op in _SUMS and ctx.values[0] is not None:
            axes = ctx.axes_from("axes", 1, AxesAsked(values[0].ndim))
            every = axes or tuple(range(values[0].ndim))
            if not axes and ctx.flag("noop_with_empty_axes", False):
                return values[0]
            sums = np.frompyfunc(_SUMS[op], 2, 1)
            made = values[0]
            for axis in sorted((axis % values[0].ndim for axis in every), reverse=True):
                made = np.asarray(sums.reduce(made, axis=axis, keepdims=ctx.flag("keepdims", True)), object)
            return made
    except (OpenSizeError, _DataError):
        return None
    return None


def _each(fn: Callable[..., object], *arrays: Array) -> Array:
    """A function of the elements of arrays, which broadcast."""
    every = np.broadcast_arrays(*arrays)
    made = np.empty(every[0].shape, object)
    made.reshape(-1)[:] = [fn(*row) for row in zip(*(a.reshape(-1).tolist() for a in every), strict=True)]
    return made
