"""From expressions of sizes to the numbers of a run: each expression once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir import FloorDiv, Index, MinMax, Mod, Param, Size, index, index_of
from tilewright.runtime import Amount, ParamRef, SizeProgram


class SizeNumbers:
    """Collects the numbers that a run computes of its sizes.

    ``symbols`` are the sizes that it is given, by name and in order; a step of more than one says what a
    symbol counts.
    """

    def __init__(self, symbols: Mapping[str, int]) -> None:
        self._known: dict[tuple[str, int, int], int] = {}
        self._instructions: list[tuple[str, int, int]] = []
        self._count = len(symbols)
        self._places: dict[str, int] = {}
        for at, (name, step) in enumerate(symbols.items()):
            self._places[name] = at if step == 1 else self._add("div", at, self._number(step))

    def given(self, at: int) -> Amount:
        """A size that a run is given, by number."""
        return ParamRef(at)

    def amount(self, value: int) -> Amount:
        """A size, or a number, as one of a run."""
        return self.of(value.index) if isinstance(value, Size) else value

    def of(self, x: Index) -> Amount:
        """An expression as a number of a run."""
        return ParamRef(self._place(x)) if x.terms else x.const

    def largest(self, values: Sequence[int]) -> ParamRef:
        """The largest of some sizes and numbers."""
        first, *rest = dict.fromkeys(self._place(index_of(value)) for value in values)
        for place in rest:
            first = self._add("max", first, place)
        return ParamRef(first)

    def within(self, shapes: Sequence[Sequence[Index]], above: int, until: int | None) -> ParamRef:
        """1 where arrays have more than ``above`` elements together and no more than ``until``, else 0."""
        total = self._number(0)
        for shape in shapes:
            count = self._number(1)
            for extent in shape:
                count = self._add("mul", count, self._place(extent))
            total = self._add("add", total, count)
        over = self._add("add", total, self._number(-above))
        if until is not None:
            under = self._add("add", self._number(until + 1), self._add("mul", total, self._number(-1)))
            over = self._add("min", over, under)
        return ParamRef(self._add("max", self._number(0), self._add("min", over, self._number(1))))

    def program(self) -> SizeProgram:
        """All that a run computes."""
        return SizeProgram(self._count, tuple(self._instructions))

    def _add(self, op: str, a: int, b: int = 0) -> int:
        key = (op, a, b)
        if key not in self._known:
            self._known[key] = self._count + len(self._instructions)
            self._instructions.append(key)
        return self._known[key]

    def _number(self, n: int) -> int:
        return self._add("number", n)

    def _place(self, x: Index) -> int:
        total: int | None = self._number(x.const) if x.const or not x.terms else None
        for atom, c in x.terms:
            place = self._atom(index(atom))
            place = place if c == 1 else self._add("mul", place, self._number(c))
            total = place if total is None else self._add("add", total, place)
        assert total is not None
        return total

    def _atom(self, x: Index) -> int:
        ((atom, _),) = x.terms
        match atom:
            case Param() if atom.name in self._places:
                return self._places[atom.name]
            case Param():
                first, *rest = (self._atom(index(factor)) for factor in atom.factors)
                for place in rest:
                    first = self._add("mul", first, place)
                return first
            case FloorDiv(arg, divisor):
                return self._add("div", self._place(arg), self._number(divisor))
            case Mod(arg, divisor):
                return self._add("mod", self._place(arg), self._number(divisor))
            case MinMax(op, args):
                first, *rest = map(self._place, args)
                for place in rest:
                    first = self._add(op, first, place)
                return first
            case _:
                raise ValueError(f"{atom} is no expression of sizes")
