"""Sizes that torch leaves open: its symbols and their expressions, as this package's."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch

from tilewright.ir import OpenSizeError, least, most

Sizes: TypeAlias = Mapping[str, int]
"""What each symbol is: a number, or a size of a run."""

_OPERATIONS: Final[Mapping[str, Callable[..., int]]] = MappingProxyType(
    {
        "Add": lambda *parts: functools.reduce(operator.add, parts),
        "Mul": lambda *parts: functools.reduce(operator.mul, parts),
        "FloorDiv": operator.floordiv,
        "CleanDiv": operator.floordiv,
        "Mod": operator.mod,
        "PythonMod": operator.mod,
        "Min": least,
        "Max": most,
    }
)


def size_of(size: int | torch.SymInt, sizes: Sizes) -> int:
    """A size of torch's, given what its symbols are. Raises OpenSizeError for what is no expression here."""
    return size if isinstance(size, int) else evaluated(expression_of(size), sizes)


def expression_of(size: torch.SymInt | torch.SymFloat) -> Any:
    """The expression that torch knows a size by."""
    return size.node.expr


def hint_of(size: int | torch.SymInt) -> int:
    """What a size was when it was traced. Raises OpenSizeError for one that data decides."""
    if isinstance(size, int):
        return size
    if not size.node.has_hint():
        raise OpenSizeError(f"data decides the size {size}")
    return int(size.node.hint)


def evaluated(expression: Any, sizes: Sizes) -> int:
    """An expression of symbols. Raises OpenSizeError for what is no expression here."""
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol and str(expression) in sizes:
        return sizes[str(expression)]
    parts = [evaluated(part, sizes) for part in expression.args]
    name = type(expression).__name__
    if name == "Pow":
        base, exponent = parts
        return _OPERATIONS["Mul"](*[base] * int(exponent))
    if name not in _OPERATIONS or not parts:
        raise OpenSizeError(f"{expression} is no expression of sizes of a run")
    return _OPERATIONS[name](*parts)
