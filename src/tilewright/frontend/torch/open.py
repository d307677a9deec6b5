"""Graphs of torch whose sizes are open, as the compiler takes models of open sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import fx

from tilewright.frontend.onnx import Shapes
from tilewright.frontend.torch.dtypes import element_type
from tilewright.frontend.torch.reader import Input, Output, ReadModule, memory_order, read_module
from tilewright.frontend.torch.sizes import expression_of
from tilewright.graph import Array, Graph, ListType, TensorType
from tilewright.ir import Index, OpenSizeError
from tilewright.support import UnsupportedOperatorError

#: The largest size of a plan where torch knows no bound; also that of names of files where nobody says one.
LARGEST: Final = 4096


@dataclass(slots=True)
class OpenModule:
    """A graph module some of whose sizes are symbols: an :class:`tilewright.frontend.OpenSource`."""

    module: fx.GraphModule
    frozen: Mapping[int, torch.Tensor] = field(default_factory=lambda: MappingProxyType({}))
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The least and the largest value of each symbol that inputs show."""
    shown: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """Where a run shows each symbol: an argument, and its axis, or none where that is the number."""
    read: ReadModule | None = None
    """Inputs and outputs, as any graph of it has them."""
    _inputs: dict[str, TensorType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        for at, node in enumerate(places):
            found = node.meta.get("val")
            if isinstance(found, torch.SymInt):
                self._shown(found, at, None)
            if not isinstance(found, torch.Tensor):
                continue
            for axis, size in enumerate(found.shape):
                self._shown(size, at, axis)
            used = any(user.op != "output" for user in node.users)
            dtype = element_type(found)
            if used and at not in self.frozen and dtype is not None:
                dims = [_text(found.shape[axis]) for axis in memory_order(found)]
                dims += [2] if found.is_complex() else []
                self._inputs[node.name] = TensorType(dtype, tuple(dims))

    def _shown(self, size: int | torch.SymInt, at: int, axis: int | None) -> None:
        if isinstance(size, int) or not expression_of(size).is_Symbol:
            return
        symbol = str(expression_of(size))
        if axis is not None or symbol not in self.shown:
            self.shown[symbol] = (at, axis)
        bounds = size.node.shape_env.bound_sympy(expression_of(size))
        if axis is not None:
            largest = int(bounds.upper) if bounds.upper.is_Integer else LARGEST
            self.ranges[symbol] = (max(int(bounds.lower), 1), largest)

    @property
    def name(self) -> str:
        """What logs call it."""
        return "torch"

    def kinds(self) -> dict[str, TensorType | ListType]:
        """The tensors that a run gives; open sizes are torch's names and expressions."""
        return {**self._inputs}

    def inputs(self) -> dict[str, TensorType]:
        """The same."""
        return {**self._inputs}

    def graph(
        self,
        shapes: Shapes | None = None,
        constants: Mapping[str, Array] | None = None,
        open_sizes: Mapping[str, int] | None = None,
        said: Mapping[str, Index] = MappingProxyType({}),
    ) -> Graph:
        """The graph at sizes. Raises UnsupportedOperatorError listing nodes that are not read."""
        known = {**(shapes or {}), **(open_sizes or {})}
        sizes = {name: n for name, n in known.items() if not isinstance(n, Sequence)}
        read = read_module(self.module, frozen=self.frozen, sizes=sizes)
        if read.graph is None:
            raise UnsupportedOperatorError.of([(r.location, r.reason) for r in read.refused.values()])
        if self.read is not None and _ends(read) != _ends(self.read):
            raise OpenSizeError("which results are alike depends on sizes of a run")
        self.read = read
        return read.graph


def _ends(read: ReadModule) -> tuple[Any, ...]:
    """The inputs and outputs without the names of values."""
    values = [*dict.fromkeys(out.value for out in read.outputs)]
    told: list[Input | Output | tuple[int, Output]] = [*read.inputs]
    for out in read.outputs:
        told.append((values.index(out.value), Output("", out.order, out.argument, str(out.number))))
    return tuple(told)


def _text(size: int | torch.SymInt) -> int | str:
    """A size as inputs declare it: what is no sum of symbols and their multiples has a name of its own."""
    if isinstance(size, int):
        return size
    expression = expression_of(size)
    terms = expression.args if expression.is_Add else [expression]
    plain = all(term.is_Integer or term.as_coeff_Mul()[1].is_Symbol for term in terms)
    return str(expression) if plain else f"[{expression}]"
