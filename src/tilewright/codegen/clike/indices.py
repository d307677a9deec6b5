"""Indices and conditions on them as text: floor division and remainders by what their ranges allow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from tilewright.ir import (
    Atom,
    Condition,
    Env,
    Expr,
    FloorDiv,
    Index,
    MinMax,
    Mod,
    Opaque,
    Param,
    Var,
    int_lower,
    int_upper,
    prove_ge0,
    simplify,
)
from tilewright.support import InternalError

WIDE: Final = 1 << 31


class Indices(ABC):
    """Indices as text of one signed integer type.

    ``names`` are the texts of variables and parameters, ``env`` what is known of their ranges.
    """

    def __init__(self, index_type: str, unsigned_type: str, suffix: str) -> None:
        self.index_type = index_type
        self._unsigned = unsigned_type
        self._suffix = suffix
        self.names: dict[str, str] = {}
        self.env: dict[str, tuple[Index, Index]] = {}

    @abstractmethod
    def opaque(self, e: Expr) -> str:
        """A data-dependent integer as text."""

    @abstractmethod
    def extreme(self, op: str, a: str, b: str) -> str:
        """The smaller or larger of two indices as text."""

    def index(self, x: Index) -> str:
        """An index as text, in parentheses where it is more than a name or a number."""
        text = self.index_text(x)
        return text if text.isidentifier() or text.isdigit() else f"({text})"

    def index_text(self, x: Index) -> str:
        """An index as text that stands alone: between brackets or on one side of an assignment."""
        return self._sum(simplify(x, self.env))

    def _sum(self, x: Index) -> str:
        out = ""
        for atom, c in x.terms:
            text = self._atom(atom)
            term = text if abs(c) == 1 else f"{text} * {self._number(abs(c))}"
            if not out:
                out = term if c > 0 else f"-{term}"
            else:
                out += f" {'+' if c > 0 else '-'} {term}"
        if not out:
            return self._number(x.const)
        if x.const:
            out += f" {'+' if x.const > 0 else '-'} {self._number(abs(x.const))}"
        return out

    def _number(self, value: int) -> str:
        return f"{value}{self._suffix}" if abs(value) >= WIDE else str(value)

    def _atom(self, atom: Atom) -> str:
        match atom:
            case Var() | Param():
                try:
                    return self.names[atom.name]
                except KeyError:
                    raise InternalError(f"the variable {atom.name} is not in scope") from None
            case FloorDiv(arg, d):
                return self._quotient(arg, d)
            case Mod(arg, d):
                return self._remainder(arg, d)
            case MinMax(op, args):
                texts = [self.index(a) for a in args]
                acc = texts[0]
                for text in texts[1:]:
                    acc = self.extreme(op, acc, text)
                return acc
            case Opaque(expr):
                return f"(({self.index_type}){self.opaque(expr)})"
            case _:
                raise InternalError(f"unknown index atom {atom}")

    def _quotient(self, arg: Index, d: int) -> str:
        text = self.index(arg)
        if prove_ge0(arg, self.env):
            return f"({self.index_type})(({self._unsigned}){text} / {d}u)"
        if d & (d - 1) == 0:
            return f"({text} >> {d.bit_length() - 1})"
        # towards minus infinity: of negative numbers one less, so that truncation rounds down
        return f"(({text} - ({text} < 0 ? {d - 1} : 0)) / {d})"

    def _remainder(self, arg: Index, d: int) -> str:
        text = self.index(arg)
        if d & (d - 1) == 0:
            return f"({text} & {d - 1})"
        if prove_ge0(arg, self.env):
            return f"({self.index_type})(({self._unsigned}){text} % {d}u)"
        return f"(({text} % {d} + {d}) % {d})"

    def condition(self, c: Condition) -> str:
        """A conjunct as text; ``1`` where it always holds."""
        if c.expr is not None:
            return self.opaque(c.expr)
        assert c.index is not None
        x = simplify(c.index, self.env)
        if c.op == "ge" and prove_ge0(x, self.env):
            return "1"
        return f"{self.index(x)} {'>=' if c.op == 'ge' else '=='} 0"


def fits_in_32_bits(extents: Mapping[str, tuple[Index, Index]], sizes: tuple[Index, ...], env: Env) -> bool:
    """Whether indices stay below 2**30 in buffers of these sizes (elements) and loops of these ranges.

    A factor of two is left for indices past an end that a condition keeps from being used.
    """
    limit = 1 << 30
    ranges = {**env, **extents}
    for size in (*sizes, *(x for pair in extents.values() for x in pair)):
        low, high = int_lower(size, ranges), int_upper(size, ranges)
        if low is None or high is None or low < -limit or high > limit:
            return False
    return True
