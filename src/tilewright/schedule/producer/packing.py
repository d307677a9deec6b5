"""Layouts of staged tiles, written as strings: ``("j//48", "k", "j%48")`` packs columns into panels of 48.

Each string is one physical dimension: the name of a logical dimension, counted from the tile's origin,
followed by any number of ``//n`` and ``%n``, applied from left to right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Index, IndexMap, floordiv, mod, prove_ge0, var
from tilewright.schedule.footprint import Box, map_dims
from tilewright.support import ScheduleError, known_names

_TERM = re.compile(r"\s*([A-Za-z_]\w*)((?:\s*(?://|%)\s*\d{1,9})*)\s*\Z")
_STEP = re.compile(r"(//|%)\s*(\d+)")


@dataclass(frozen=True, slots=True)
class _Term:
    """``(d // divisor) % modulus`` of the logical dimension ``d`` (``modulus`` ``None``: no remainder)."""

    dim: int
    divisor: int
    modulus: int | None

    def of(self, x: Index) -> Index:
        x = floordiv(x, self.divisor)
        return x if self.modulus is None else mod(x, self.modulus)

    def size(self, extent: Index) -> Index:
        n = floordiv(extent + (self.divisor - 1), self.divisor)
        if self.modulus is None or (n.is_const and n.const <= self.modulus):
            return n
        return Index(self.modulus)


def packed_map(layout: Sequence[str], names: Sequence[str], box: Box) -> IndexMap:
    """The index map that stores ``box`` as ``layout`` says; ``names`` are those of its dimensions.

    A dimension ``n`` may also be called ``dn``. Raises ScheduleError for a string that cannot be read, an
    unknown dimension, or a layout that would put two elements into one place.
    """
    dims = map_dims(len(names))
    terms = [_read(text, names) for text in layout]
    for d, name in enumerate(names):
        _check_injective(name, [t for t in terms if t.dim == d], box.extents[d])
    return IndexMap(
        dims,
        tuple(t.of(var(dims[t.dim]) - box.lo[t.dim]) for t in terms),
        tuple(t.size(box.extents[t.dim]) for t in terms),
    )


def _read(text: str, names: Sequence[str]) -> _Term:
    found = _TERM.match(text)
    if found is None:
        raise ScheduleError(
            f"{text[:80]!r} is no dimension of a layout",
            hint="write a dimension's name followed by any number of //n and %n, such as 'j//48'",
        )
    name = found.group(1)
    known = {**{f"d{n}": n for n in range(len(names))}, **{n: d for d, n in enumerate(names)}}
    if name not in known:
        raise ScheduleError(
            f"layout {text!r}: there is no dimension {name!r}",
            hint=known_names(name, known, "the dimensions"),
        )
    divisor, modulus = 1, None
    for op, digits in _STEP.findall(found.group(2)):
        n = int(digits)
        if n == 0:
            raise ScheduleError(f"layout {text!r} divides by zero")
        if op == "%":
            if modulus is not None and modulus % n:
                raise ScheduleError(f"layout {text!r}: {n} does not divide {modulus}")
            modulus = n
        else:
            if modulus is not None and modulus % n:
                raise ScheduleError(f"layout {text!r}: {n} does not divide {modulus}")
            divisor *= n
            modulus = None if modulus is None else modulus // n
    return _Term(known[name], divisor, modulus)


def _check_injective(name: str, terms: list[_Term], extent: Index) -> None:
    """Refuse unless the terms of one dimension tell its index, as the digits of a mixed-radix number."""
    at: int | None = 1
    for t in sorted(terms, key=lambda t: t.divisor):
        if at is not None and t.divisor <= at:
            at = None if t.modulus is None else max(at, t.divisor * t.modulus)
    if at is None or prove_ge0(at - extent, {}):
        return
    raise ScheduleError(
        f"the layout puts several elements of dimension {name!r} (extent {extent}) into one place",
        hint=f"a quotient needs its remainder: '{name}//n' and '{name}%n'",
    )
