"""Cycle counts as formulas: integer arithmetic over an instruction's sizes, read from text.

m + 30        ((m + 15)//16) * ((n + 15)//16) + 20        max(m, 16)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice, product
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
MAX_CYCLES = 1 << 40
"""More than any instruction takes: a fraction of an hour at a gigahertz."""
MAX_CORNERS = 1 << 10
"""Combinations of the sizes' bounds at which a formula is tried when it is read."""


@dataclass(frozen=True, slots=True)
class Cycles:
    """A formula over sizes, kept as its text.

    >>> Cycles.of("max(m, 16) + 2*(n//4)", {"m": (1, 16), "n": (1, 8)}, "an example").at({"m": 3, "n": 8})
    20
    """

    text: str

    @classmethod
    def of(cls, text: str | int, sizes: Mapping[str, tuple[int, int]], owner: str) -> Cycles:
        """The formula in a text, over sizes within bounds; TargetError, naming ``owner``, where it is none.

        It is tried with the least and the greatest of each size: what fails in between, fails in :meth:`at`.
        """
        formula = cls(str(text))
        if len(formula.text) > MAX_TEXT:
            raise TargetError(f"{owner}: the formula of its cycles has more than {MAX_TEXT} characters")
        try:
            _value(ast.parse(formula.text, mode="eval").body, dict.fromkeys(sizes, 1))
        except ZeroDivisionError:  # not with these sizes, or with none
            pass
        except (SyntaxError, ValueError, KeyError, RecursionError) as error:
            raise TargetError(
                f"{owner}: {quoted(formula.text)} is no formula of cycles: {error}",
                hint=f"integers, + - * //, min, max over {', '.join(sizes) or 'no sizes'}",
            ) from None
        for corner in islice(product(*sizes.values()), MAX_CORNERS):
            try:
                formula.at(dict(zip(sizes, corner, strict=True)))
            except TargetError as error:
                raise TargetError(f"{owner}: {error.what}", hint=error.hint) from None
        return formula

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number of cycles for these sizes. Raises TargetError where they give none."""
        try:
            cycles = _value(ast.parse(self.text, mode="eval").body, sizes)
        except ZeroDivisionError:
            cycles = -1
        if not 0 <= cycles <= MAX_CYCLES:
            with_ = ", ".join(f"{name} = {n}" for name, n in sizes.items())
            raise TargetError(
                f"{quoted(self.text)} gives no number of cycles" + (f" with {with_}" if with_ else ""),
                hint=f"neither less than 0 nor more than 2**{MAX_CYCLES.bit_length() - 1}",
            )
        return cycles

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
