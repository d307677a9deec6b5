"""Index maps read backwards: from the place of an element to its indices.

A map of a layout writes places as mixed-radix numbers: a physical index is a sum of digits, each a quotient
and remainder of one linear form of the logical indices, which again is a mixed-radix number. So digits are
read off places, forms put together from their digits, and indices read off forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.ir import FloorDiv, Index, IndexMap, Iter, Mod, Var, floordiv, int_range, iter_env, mod
from tilewright.support import ScheduleError


@dataclass(frozen=True, slots=True)
class _Digit:
    """``form % high // low``; ``high`` 0 is no end. It is ``place // at``, below ``end`` (0: no end)."""

    form: Index
    low: int
    high: int
    axis: int
    at: int = 1
    end: int = 0
    offset: int = 0


def inverse_of(layout: IndexMap, shape: Sequence[Index]) -> Callable[[tuple[Index, ...]], tuple[Index, ...]]:
    """The indices of the element at a place; at a place of padding they leave the shape.

    Raises ScheduleError for a map that is not made of splits, permutations, fusions and padding at the ends
    of dimensions.
    """
    if not all(n.is_const for n in (*shape, *layout.shape)):
        raise _refused(layout, "it has symbolic extents")
    env = iter_env([Iter(d, Index(0), extent, "par") for d, extent in zip(layout.dims, shape, strict=True)])

    def size(form: Index) -> int:
        _, high = int_range(form, env)
        assert high is not None  # extents are constant
        return high + 1

    digits = [d for axis, place in enumerate(layout.exprs) for d in _digits_of(layout, axis, place, size)]
    known = sorted({digit.form for digit in digits}, key=lambda form: (-size(form), str(form)))
    forms: dict[Index, list[_Digit]] = {}
    for digit in digits:
        forms.setdefault(_whole_form(digit, known), []).append(digit)
    for form, own in forms.items():
        _check_complete(layout, form, own, size(form))
    places = {name: (form, low, high) for form in forms for name, low, high in _parts(layout, form, size)}
    single = {d for d, extent in zip(layout.dims, shape, strict=True) if extent == Index(1)}
    if set(places) | single != set(layout.dims) or sum(len(f.terms) for f in forms) != len(places):
        raise _refused(layout, "its places do not tell every index once")

    def inverse(new: tuple[Index, ...]) -> tuple[Index, ...]:
        values = {
            form: sum((_value(digit, new[digit.axis]) * digit.low for digit in own), start=Index(0))
            for form, own in forms.items()
        }
        found = []
        for name in layout.dims:
            if name not in places:
                found.append(Index(0))
                continue
            form, low, high = places[name]
            x = values[form] - form.const
            found.append(floordiv(mod(x, high) if high else x, low))
        return tuple(found)

    return inverse


def _whole_form(digit: _Digit, known: Sequence[Index]) -> Index:
    """The form that a digit is of: remainders are written with their coefficients reduced."""
    for form in known if digit.high else ():
        rest = form - digit.form
        if all(c % digit.high == 0 for c in (rest.const, *(c for _, c in rest.terms))):
            return form
    return digit.form


def _value(digit: _Digit, place: Index) -> Index:
    place = place - digit.offset
    return floordiv(mod(place, digit.end) if digit.end else place, digit.at)


def _digits_of(layout: IndexMap, axis: int, place: Index, size: Callable[[Index], int]) -> list[_Digit]:
    """The digits that a physical index adds up, from the lowest."""
    found: list[_Digit] = []
    terms = sorted(place.terms, key=lambda term: term[1])
    if not terms:
        if layout.shape[axis] != Index(1):
            raise _refused(layout, f"its dimension {axis} holds one place of {layout.shape[axis]}")
        return []
    ends = [c for _, c in terms[1:]] + [0]
    at = 1
    for (atom, c), end in zip(terms, ends, strict=True):
        if c < at or (end and end % c) or (not found and c != 1):
            raise _refused(layout, f"{place} is no number of digits")
        form, low, high = _digit(layout, Index(0, ((atom, 1),)))
        extent = (min(size(form), high or size(form)) - 1) // low + 1
        at = c * extent
        if end and end < at:
            raise _refused(layout, f"the digits of {place} overlap")
        found.append(_Digit(form, low, high, axis, c, end, place.const))
        room = (end or layout.shape[axis].as_int() - place.const) // c
        if high and high < size(form) and (room != extent or (not end and place.const)):
            raise _refused(layout, f"it has padding inside {form}")
    return found


def _digit(layout: IndexMap, x: Index) -> tuple[Index, int, int]:
    """``x`` as ``form % high // low``."""
    if x.const == 0 and len(x.terms) == 1 and x.terms[0][1] == 1:
        match x.terms[0][0]:
            case Var():
                return x, 1, 0
            case FloorDiv(arg=arg, divisor=n):
                form, low, high = _digit(layout, arg)
                if high == 0 or high % (low * n) == 0:
                    return form, low * n, high
            case Mod(arg=arg, divisor=n):
                form, low, high = _digit(layout, arg)
                if high == 0 or high % (low * n) == 0:
                    return form, low, low * n
    elif x.terms and all(isinstance(atom, Var) for atom, _ in x.terms):
        return x, 1, 0
    raise _refused(layout, f"{x} is no digit of an index")


def _check_complete(layout: IndexMap, form: Index, digits: list[_Digit], size: int) -> None:
    """Refuse unless the digits make up the whole form."""
    at = 1
    for digit in sorted(digits, key=lambda d: d.low):
        if digit.low != at:
            raise _refused(layout, f"its places leave out a part of {form}")
        at = digit.high or size
    if at < size:
        raise _refused(layout, f"its places leave out a part of {form}")


def _parts(layout: IndexMap, form: Index, size: Callable[[Index], int]) -> list[tuple[str, int, int]]:
    """The indices that a linear form is a number of: each as ``form % high // low``."""
    terms = sorted(form.terms, key=lambda term: term[1])
    ends = [c for _, c in terms[1:]] + [0]
    found: list[tuple[str, int, int]] = []
    for (atom, c), end in zip(terms, ends, strict=True):
        extent = size(Index(0, ((atom, 1),)))
        whole = isinstance(atom, Var) and c >= 1 and (found or c == 1)
        if not whole or (end and (end % c or end < c * extent)):
            raise _refused(layout, f"{form} is no number of indices")
        assert isinstance(atom, Var)
        found.append((atom.name, c, end))
    return found


def _refused(layout: IndexMap, why: str) -> ScheduleError:
    return ScheduleError(
        f"the layout {layout} cannot be read backwards: {why}",
        hint="lay the tensor out by splits, permutations, fusions and padding at the ends of dimensions",
    )
