"""From a graph of ATen operators with fake tensors to a typed graph, and what of it cannot be read."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import fx

from tilewright.frontend.torch import complex
from tilewright.frontend.torch.dtypes import as_array, tensor_type
from tilewright.frontend.torch.sizes import Sizes, evaluated, expression_of, hint_of
from tilewright.frontend.torch.table import rule_of
from tilewright.frontend.torch.writer import Number, Value, Writer
from tilewright.graph import Graph, Limits, TensorType
from tilewright.ir import OpenSignError, OpenSizeError, RelationError, Size
from tilewright.support import NodeLocation, UserError

#: Tensors in a graph module of at most so many elements are constants of the compiled model.
_SMALL: Final = 1 << 16

Read: TypeAlias = Any
"""What a node was read as: a Value, a number, sequences of them; `_LOST` for what is no tensor here."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that is left to torch: where it comes from in the user's code, its operator, and why."""

    place: str
    operator: str
    reason: str

    @property
    def location(self) -> NodeLocation:
        """The node, for messages."""
        return NodeLocation(self.place, self.operator)

    def __str__(self) -> str:
        return f"{self.operator} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that a run gives: which argument it is, and its axes in the order of memory."""

    at: int
    name: str
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """A result: of the graph, under an order of axes, maybe of `pairs`; or an argument; or a number."""

    value: str = ""
    order: tuple[int, ...] = ()
    argument: int | None = None
    number: Any = None
    pairs: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ReadModule:
    """A graph of torch as it was read; `graph` is None where there are refusals."""

    graph: Graph | None
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    refused: Mapping[fx.Node, Refusal]


class _Lost:
    """What a node that cannot be read makes besides tensors."""


_LOST: Final = _Lost()


def memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """The axes from the one with the largest stride on, where the elements fill memory; else as they are.

    Where sizes are open, as it was when the tensor was traced.
    """
    sizes, strides = ([hint_of(n) for n in each] for each in (tensor.shape, tensor.stride()))
    axes = tuple(range(tensor.dim()))
    if 0 in sizes:
        return axes
    # axes of one element have any strides
    order = sorted(axes, key=lambda axis: (-strides[axis], axis))
    plain = [axis for axis in axes if sizes[axis] != 1]
    if [axis for axis in order if sizes[axis] != 1] == plain:
        order = [*axes]
    step = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != step:
            return axes
        step *= sizes[axis]
    return tuple(order)


def _is_row_major(tensor: torch.Tensor) -> bool:
    sizes, strides = ([hint_of(n) for n in each] for each in (tensor.shape, tensor.stride()))
    steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return all(size == 1 or a == b for size, a, b in zip(sizes, strides, steps, strict=True))


def number_of(w: Writer, expression: Any, sizes: Sizes) -> Number | Value:
    """A number that torch computes of sizes: a size, or a tensor of rank 0 in double precision."""
    operations = {"IntTrueDiv": "Div", "FloatTrueDiv": "Div", "Add": "Add", "Mul": "Mul", "FloatPow": "Pow"}
    name = type(expression).__name__
    if expression.is_Float:
        return float(expression)
    if expression.is_integer and name != "ToFloat":
        return evaluated(expression, sizes)
    parts = [w.to(number_of(w, part, sizes), "f64") for part in expression.args]
    if name == "ToFloat":
        return parts[0]
    if name == "OpaqueUnaryFn_sqrt":
        return w.add("Sqrt", *parts)
    if name not in operations or len(parts) < 2:
        raise OpenSizeError(f"{expression} is no number that is computed here")
    return functools.reduce(lambda a, b: w.add(operations[name], a, b), parts)


def read_module(
    module: fx.GraphModule,
    *,
    frozen: Mapping[int, torch.Tensor] | None = None,
    name: str = "torch",
    limits: Limits | None = None,
    sizes: Sizes | None = None,
) -> ReadModule:
    """Read a graph module of ATen operators, its nodes' ``meta["val"]`` fake tensors of known sizes.

    Sizes may be open where ``sizes`` says what the symbols are. Raises OpenSignError or RelationError then,
    where there is one graph for some sizes and another for others.

    ``frozen`` are arguments whose elements are known: constants of the model, over their own memory.
    Nodes that cannot be read are listed, each with its reason; nothing is raised for them.
    """
    return _Reader(module, dict(frozen or {}), Writer(limits or Limits()), sizes).read(name)


@dataclass(slots=True)
class _Reader:
    module: fx.GraphModule
    frozen: Mapping[int, torch.Tensor]
    writer: Writer
    sizes: Sizes | None = None
    known: dict[fx.Node, Read] = field(default_factory=dict)
    refused: dict[fx.Node, Refusal] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    arguments: dict[fx.Node, int] = field(default_factory=dict)

    def read(self, name: str) -> ReadModule:
        outputs: tuple[Output, ...] = ()
        for node in self.module.graph.nodes:
            self.writer.name = node.name
            match node.op:
                case "placeholder":
                    self._placeholder(node)
                case "get_attr":
                    self._attribute(node)
                case "output":
                    outputs = tuple(self._output(each) for each in _flat(node.args[0]))
                case _:
                    self._call(node)
        if self.refused:
            return ReadModule(None, (), (), self.refused)
        wanted = list(dict.fromkeys(each.value for each in outputs if each.value))
        graph = self.writer.walk.graph([each.name for each in self.inputs], wanted, name)
        named = {value: at for at, value in enumerate(wanted)}
        graph = replace(graph, output_names=tuple(f"output_{named[value]}" for value in graph.outputs))
        return ReadModule(graph, tuple(self.inputs), outputs, {})

    def _placeholder(self, node: fx.Node) -> None:
        at = len(self.arguments)
        self.arguments[node] = at
        found = node.meta.get("val")
        users = [user for user in node.users if user.op != "output"]
        if not isinstance(found, torch.Tensor):
            self.known[node] = self._number(found)
            return
        type_ = tensor_type(found, self.sizes)
        if type_ is None or not users:
            self.known[node] = _LOST
            return
        if at in self.frozen:
            self.known[node] = self._constant(self.frozen[at])
            return
        order = memory_order(found)
        shape = tuple(type_.sizes[axis] for axis in order)
        value = self.writer.input(
            node.name, TensorType(type_.dtype, (*shape, 2) if found.is_complex() else shape)
        )
        self.inputs.append(Input(at, node.name, order))
        self.known[node] = self._in_order(value, order, found.is_complex())

    def _number(self, found: Any) -> Read:
        """A number that torch computes with, where it is known; sizes of a run are as well."""
        if isinstance(found, torch.SymInt | torch.SymFloat) and self.sizes is not None:
            try:
                return number_of(self.writer, expression_of(found), self.sizes)
            except OpenSizeError:
                return _LOST
        return found if isinstance(found, bool | int | float) else _LOST

    def _constant(self, tensor: torch.Tensor) -> Read:
        order = memory_order(tensor)
        array = as_array(tensor.permute(order))
        value = self.writer.constant(np.ascontiguousarray(array).reshape(array.shape))
        return self._in_order(value, order, tensor.is_complex())

    def _in_order(self, value: Value, order: Sequence[int], pairs: bool) -> Read:
        """What lies in memory in an order of axes, complex numbers in ``pairs``, as torch counts the axes."""
        back = [order.index(axis) for axis in range(len(order))]
        if not pairs:
            return self.writer.transpose(value, back)
        return complex.split(self.writer, self.writer.transpose(value, [*back, len(back)]))

    def _attribute(self, node: fx.Node) -> None:
        found: Any = self.module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        plain = isinstance(found, torch.Tensor) and type(found) in (torch.Tensor, torch.nn.Parameter)
        if not plain or tensor_type(found) is None or found.numel() > _SMALL:
            self._refuse(node, "it is a tensor of the graph's own, of a kind that is not read")
            return
        self.known[node] = self._constant(found)

    def _output(self, node: Any) -> Output:
        if not isinstance(node, fx.Node):
            return Output(number=node)
        if node.op == "placeholder":
            return Output(argument=self.arguments[node])
        found = self.known[node]
        if not isinstance(found, Value | complex.Complex):
            if isinstance(found, _Lost) and not self.refused:
                self._refuse(node, "sizes of a run decide a number that is no size")
            # one of a run is what torch says of it
            return Output(number=node.meta["val"] if isinstance(found, Size) else found)
        fake = node.meta["val"]
        order = memory_order(fake)
        self.writer.name = f"{node.name}/out"
        if isinstance(found, complex.Complex):
            pairs = complex.joined(self.writer, found)
            return Output(self.writer.transpose(pairs, [*order, len(order)]).name, order, pairs=True)
        return Output(self.writer.transpose(found, order).name, order)

    def _call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            source, at = node.args
            found = self.known[source] if isinstance(source, fx.Node) else source
            if source in self.refused:
                self._lost(node)
            else:
                self.known[node] = found[at]
            return
        made = node.meta.get("val")
        if isinstance(made, bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
            self.known[node] = self._number(made)
            return
        try:
            self.known[node] = self._written(node, made)
        except (OpenSignError, RelationError):
            raise
        except UserError as error:
            self._refuse(node, error.what)

    def _written(self, node: fx.Node, made: Any) -> Read:
        writer = self.writer
        fakes = made if isinstance(made, list | tuple) else [made]
        args = [self._argument(arg) for arg in node.args]
        options = {key: self._argument(arg) for key, arg in node.kwargs.items()}
        flat = [*_flat([*args, *options.values()])]
        writer.complex = any(isinstance(x, torch.Tensor) and x.is_complex() for x in fakes)
        pairs = writer.complex or any(isinstance(x, complex.Complex) for x in flat)
        rule = rule_of(node.target, pairs)
        if rule is None:
            writer.refuse("the operator is not read" + (" for complex numbers" if pairs else ""))
        writer.outs = tuple(
            tensor_type(x, self.sizes) if isinstance(x, torch.Tensor) else None for x in fakes
        )
        writer.wanted = frozenset(
            int(user.args[1]) if user.target is operator.getitem else 0 for user in node.users
        )
        writer.location = place_of(node)
        if any(x is _LOST for x in flat):
            writer.refuse("it takes what is no tensor of this machine's types")
        if node.target._schema.name == "aten::as_strided":
            source = node.args[0].meta["val"]
            plain = _is_row_major(source) and hint_of(source.storage_offset()) == 0
            writer.require(plain, "it reads the memory of a tensor that is not row-major")
        try:
            inspect.signature(rule).bind(writer, *args, **options)
        except TypeError as error:
            writer.refuse(f"its arguments are not read: {error}")
        result = rule(writer, *args, **options)
        results = [result] if isinstance(result, Value | complex.Complex) else result
        for at, (value, wanted) in enumerate(zip(results, writer.outs, strict=False)):
            if value is None or (len(results) > 1 and at not in writer.wanted):
                continue
            if wanted is None or (value.dtype, value.shape) != (wanted.dtype, wanted.shape):
                writer.refuse(f"it was read as {value.dtype}{list(value.shape)}, and is {wanted}")
        return result

    def _argument(self, arg: Any) -> Read:
        if isinstance(arg, fx.Node):
            return self.known[arg]
        if isinstance(arg, list | tuple):
            return [self._argument(each) for each in arg]
        return arg

    def _refuse(self, node: fx.Node, reason: str) -> None:
        target = node.target
        name = (
            str(target)
            if isinstance(target, torch._ops.OpOverload | str)
            else getattr(target, "__name__", "")
        )
        self.refused[node] = Refusal(place_of(node), name or str(target), reason)
        self._lost(node)

    def _lost(self, node: fx.Node) -> None:
        """Go on behind a node that torch runs: its results come from outside."""
        found = node.meta.get("val")
        self.known[node] = self._outside(node.name, found)

    def _outside(self, name: str, found: Any) -> Read:
        if isinstance(found, list | tuple):
            return [self._outside(f"{name}/{at}", each) for at, each in enumerate(found)]
        if isinstance(found, bool | int | float):
            return found
        type_ = tensor_type(found, self.sizes) if isinstance(found, torch.Tensor) else None
        if type_ is None:
            return _LOST
        if found.is_complex():
            parts = [self._part(f"{name}/{at}", type_) for at in ("real", "imaginary")]
            return complex.Complex(*parts)
        return self._part(name, type_)

    def _part(self, name: str, type_: TensorType) -> Value:
        if name in self.writer.walk.types:
            return Value(name, type_.dtype, type_.sizes)
        return self.writer.input(name, type_)


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, list | tuple):
        for each in values:
            yield from _flat(each)
    else:
        yield values


def place_of(node: fx.Node) -> str:
    """Where a node is in the user's code: the module's path and the line, as far as torch knows them."""
    modules: Sequence[Any] = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(modules[-1][0]) if modules else ""
    path = re.sub(r"^L\['\w+'\]\.?", "", path)
    lines = [line.strip() for line in str(node.meta.get("stack_trace") or "").splitlines()]
    files = [at for at, line in enumerate(lines) if line.startswith("File ")]
    line = lines[files[-1]] if files else ""
    return ", ".join(part for part in (path, line) if part) or node.name
