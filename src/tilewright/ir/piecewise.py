"""Minima and maxima over one linear form: functions of one number in pieces, bounded at their corners.

Windows that borders cut are such: ``min(511, max(0, 8*y - 2) + 13) - max(0, 8*y - 4)``. Case by case, either
bounds are loose or the cases multiply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd
from typing import Final, TypeAlias

from tilewright.ir.index import Atom, Index, MinMax, Var

#: A linear function of the form's value: slope and constant.
Line: TypeAlias = tuple[int, int]
Terms: TypeAlias = tuple[tuple[Atom, int], ...]
#: Lines of one minimum or maximum up to which it is worth looking at their corners.
MOST_LINES: Final = 12


@dataclass(frozen=True, slots=True)
class _Pieces:
    """A line plus multiples of minima and maxima of such."""

    slope: int
    const: int
    parts: tuple[tuple[int, bool, tuple[_Pieces, ...]], ...]

    def at(self, t: int) -> int:
        """The value at a value of the form."""
        total = self.slope * t + self.const
        for c, greatest, args in self.parts:
            values = [a.at(t) for a in args]
            total += c * (max(values) if greatest else min(values))
        return total

    def lines(self) -> set[Line]:
        """All lines that it may run along."""
        out = {(self.slope, self.const)}
        for c, _, args in self.parts:
            other = {line for a in args for line in a.lines()}
            if len(out) * len(other) > MOST_LINES:
                raise _Apart
            out = {(s + c * m, k + c * b) for s, k in out for m, b in other}
        return out

    def corners(self) -> Iterator[tuple[int, int]]:
        """Quotients between whose neighbours it is straight: crossings of the lines of each minimum."""
        for _, _, args in self.parts:
            lines = sorted({line for a in args for line in a.lines()})
            for n, (s, k) in enumerate(lines):
                yield from ((k - b, m - s) for m, b in lines[n + 1 :] if m > s)
            for a in args:
                yield from a.corners()


class _Apart(Exception):  # noqa: N818 - a signal inside of this file: not such a function
    pass


def corner_bound(x: Index, up: bool, bound: Callable[[Index, bool], int | None]) -> tuple[int, bool] | None:
    """The largest (or least) value of an index with minima and maxima over one linear form.

    ``bound`` bounds what has none. With it, whether the form stands alone: then the bound is exact, where the
    form takes all values of its range. ``None`` where the index is not such, or has no bound.
    """
    form: Terms | None = None
    for atom, _ in x.terms:
        for line in _forms(atom):
            if form is not None and line != form:
                return None
            form = line
    if form is None:
        return None
    try:
        f, beside = _split(x, form)
        corners = set(f.corners())
    except _Apart:
        return None
    whole = Index(0, form)
    lo, hi = bound(whole, False), bound(whole, True)
    rest = bound(beside, up)
    if lo is None or hi is None or rest is None:
        return None
    places = {lo, hi}
    for a, b in corners:
        at = a // b
        places.update(min(max(t, lo), hi) for t in (at, at + 1))
    values = [f.at(t) for t in places]
    return (max(values) if up else min(values)) + rest, not beside.terms


def _forms(atom: Atom) -> Iterator[Terms]:
    """The linear forms, in lowest terms, of the arguments of a minimum; of anything else none."""
    if not isinstance(atom, MinMax):
        return
    for arg in atom.args:
        plain = tuple(term for term in arg.terms if not isinstance(term[0], MinMax))
        if plain:
            d = gcd(*(c for _, c in plain)) * (1 if plain[0][1] > 0 else -1)
            yield tuple((a, c // d) for a, c in plain)
        for a, _ in arg.terms:
            yield from _forms(a)


def _split(x: Index, form: Terms) -> tuple[_Pieces, Index]:
    """An index as a function of the form, and what of it does not move with the form."""
    plain: dict[Atom, int] = {a: c for a, c in x.terms if not isinstance(a, MinMax)}
    slope, own = 0, [a for a, _ in form if a in plain]
    if own:
        first, unit = form[0]
        slope, left = divmod(plain.get(first, 0), unit)
        if left or any(plain.get(a, 0) != slope * c for a, c in form):
            raise _Apart
    names = {a for a, _ in form}
    beside = Index(0, tuple((a, c) for a, c in x.terms if a in plain and a not in names))
    if not all(isinstance(a, Var) for a, _ in form) or not form:
        raise _Apart
    parts = []
    for atom, c in x.terms:
        if isinstance(atom, MinMax):
            args = []
            for arg in atom.args:
                inner, more = _split(arg, form)
                if more.terms:
                    raise _Apart
                args.append(inner)
            parts.append((c, atom.op == "max", tuple(args)))
    return _Pieces(slope, x.const, tuple(parts)), beside
