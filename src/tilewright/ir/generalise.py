"""Programs of several sizes as one with symbolic sizes: what differs between them is affine in these.

A front end makes programs of known sizes. Those of one part of a model at some lengths, say 40, 41 and 64,
differ in integers only; where each of these is an affine function of the length, one program with a symbolic
length is all of them. Whether it is also the program of a further length is not taken for granted: bind the
size (``program_at``) and compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from tilewright.ir.index import Atom, Index, Param, index, linear
from tilewright.ir.program import Program

_T = TypeVar("_T")


class _DiffersError(Exception):
    """Two samples differ in more than integers that are affine in the sizes."""


def generalise(
    samples: Sequence[Program], at: Sequence[Mapping[str, int]], params: Sequence[Param]
) -> Program | None:
    """One program with the symbolic sizes ``params`` that is each of ``samples`` at its sizes ``at``.

    ``None`` where there is none: they differ in structure, or in an integer that is not affine in the sizes.
    Sample sizes must tell the parameters apart: one more than there are, no affine function zero on all.
    """
    try:
        made = _Samples([[sizes[p.name] for p in params] for sizes in at], params).one(samples)
    except _DiffersError:
        return None
    return replace(made, params=tuple(params)) if made is not samples[0] else made


class _Samples:
    """Finds what is common to values at several points, whose coordinates are sizes."""

    def __init__(self, points: Sequence[Sequence[int]], params: Sequence[Param]) -> None:
        self._points, self._params = points, params
        self._known: dict[tuple[int, ...], Index] = {}

    def one(self, values: Sequence[_T]) -> _T:
        """The value that is each of ``values`` at its point. Raises _DiffersError where there is none."""
        first: Any = values[0]
        if all(each is first for each in values):
            return values[0]
        if any(type(each) is not type(first) for each in values):
            raise _DiffersError
        if isinstance(first, Index):
            return self._index(values)  # type: ignore[arg-type, return-value]
        if isinstance(first, tuple):
            rows: list[Any] = list(values)
            if any(len(row) != len(first) for row in rows):
                raise _DiffersError
            items = [self.one(column) for column in zip(*rows, strict=True)]
            same = all(a is b for a, b in zip(items, first, strict=True))
            found: Any = first if same else type(first)(items)
            return found  # type: ignore[no-any-return]
        if not is_dataclass(first) or isinstance(first, type):
            if any(each != first for each in values):
                raise _DiffersError
            return values[0]
        changes = {}
        for each in fields(first):
            if each.init and each.compare:
                old = getattr(first, each.name)
                new = self.one([getattr(value, each.name) for value in values])
                if new is not old:
                    changes[each.name] = new
        made: Any = replace(first, **changes) if changes else first
        return made  # type: ignore[no-any-return]

    def _index(self, values: Sequence[Index]) -> Index:
        first = values[0]
        if all(each == first for each in values):
            return first
        if any(len(each.terms) != len(first.terms) for each in values):
            raise _DiffersError
        total = self._affine(tuple(each.const for each in values))
        terms: dict[Atom, int] = {}
        for at, (_, c) in enumerate(first.terms):
            if any(each.terms[at][1] != c for each in values):
                # a variable times a size is no index
                raise _DiffersError
            atom = self.one([each.terms[at][0] for each in values])
            terms[atom] = terms.get(atom, 0) + c
        return total + linear(0, terms)

    def _affine(self, values: tuple[int, ...]) -> Index:
        """The affine function of the sizes with these values at the points."""
        if len(set(values)) == 1:
            return index(values[0])
        if values not in self._known:
            self._known[values] = self._solve(values)
        return self._known[values]

    def _solve(self, values: tuple[int, ...]) -> Index:
        """By differences: for each size a pair of points that differ in it alone says its factor."""
        found: dict[Atom, int] = {}
        for axis, param in enumerate(self._params):
            found[param] = self._factor(axis, values)
        const = values[0] - sum(found[p] * x for p, x in zip(self._params, self._points[0], strict=True))
        for point, value in zip(self._points, values, strict=True):
            if const + sum(found[p] * x for p, x in zip(self._params, point, strict=True)) != value:
                raise _DiffersError
        return linear(const, found)

    def _factor(self, axis: int, values: tuple[int, ...]) -> int:
        for a, at in zip(self._points, values, strict=True):
            for b, to in zip(self._points, values, strict=True):
                alone = all(x == y for n, (x, y) in enumerate(zip(a, b, strict=True)) if n != axis)
                if alone and a[axis] != b[axis]:
                    step, left = divmod(to - at, b[axis] - a[axis])
                    if left:
                        raise _DiffersError
                    return step
        raise _DiffersError
