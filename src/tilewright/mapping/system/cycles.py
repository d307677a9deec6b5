"""Cycle counts as formulas: integer arithmetic over an instruction's sizes, read from text.

m + 30        ((m + 15)//16) * ((n + 15)//16) + 20        max(m, 16)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.support import TargetError, quoted

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = MappingProxyType(
    {
        ast.Add: lambda a, b: a + b,
        ast.Sub: lambda a, b: a - b,
        ast.Mult: lambda a, b: a * b,
        ast.FloorDiv: lambda a, b: a // b,
    }
)
MAX_TEXT = 200
"""Characters of the longest formula: machine files are untrusted."""


@dataclass(frozen=True, slots=True)
class Cycles:
    """A formula over sizes, kept as its text.

    >>> Cycles.of("max(m, 16) + 2*(n//4)", ("m", "n"), "an example").at({"m": 3, "n": 8})
    20
    """

    text: str

    @classmethod
    def of(cls, text: str | int, sizes: Collection[str], owner: str) -> Cycles:
        """The formula in a text, over the given sizes; TargetError, naming ``owner``, where it is none."""
        formula = cls(str(text))
        if len(formula.text) > MAX_TEXT:
            raise TargetError(f"{owner}: the formula of its cycles has more than {MAX_TEXT} characters")
        try:
            formula.at(dict.fromkeys(sizes, 1))
        except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError) as error:
            raise TargetError(
                f"{owner}: {quoted(formula.text)} is no formula of cycles: {error}",
                hint=f"integers, + - * //, min, max over {', '.join(sizes) or 'no sizes'}",
            ) from None
        return formula

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number of cycles for these sizes."""
        return _value(ast.parse(self.text, mode="eval").body, sizes)

    def __str__(self) -> str:
        return self.text


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(v)) if not isinstance(v, bool) and 0 <= v < 1 << 40:
            return v
        case ast.Name(id=name):
            return sizes[name]
        case ast.BinOp(op=op) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(node.left, sizes), _value(node.right, sizes))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, _, *_] as args, keywords=[]):
            values = [_value(a, sizes) for a in args]
            return min(values) if name == "min" else max(values)
    raise ValueError(f"{ast.unparse(node)} is not allowed")
