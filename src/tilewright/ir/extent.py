"""Sizes that only a run knows, in place of integers: expressions, compared by the ranges of their symbols."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt, prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.ir.bounds import int_lower, int_upper
from tilewright.ir.index import Atom, FloorDiv, Index, MinMax, Mod, Param, floordiv, imax, imin, index, mod
from tilewright.ir.sizes import bind_params, param_value
from tilewright.support import UnsupportedOperatorError, digest

if TYPE_CHECKING:
    # to types a size is an integer; at run time it is none, so that what wants its digits has to ask
    _Integer = int
else:
    _Integer = object


class OpenSizeError(UnsupportedOperatorError):
    """A size of a run where a number is needed."""


class OpenSignError(OpenSizeError):
    """A comparison of sizes that their ranges do not decide: of what it asks whether that is negative."""

    def __init__(self, difference: Index) -> None:
        super().__init__(f"whether {difference} is negative depends on sizes of a run")
        self.difference = difference


class RelationError(OpenSizeError):
    """Two ``sizes`` that only a run knows have to be equal: their ``difference`` has to be 0."""

    def __init__(self, difference: Index, sizes: tuple[int, int]) -> None:
        super().__init__(f"the sizes of a run have to be such that {difference} is 0")
        self.difference, self.sizes = difference, sizes


class Size(_Integer):
    """A size that only a run knows, among integers: arithmetic gives sizes, or the integers that they are.

    What is equal for some values of the symbols alone is not equal: code for different sizes is right for
    equal ones, too. What is less for some values alone raises OpenSizeError, as does what asks for digits.

    >>> n = Size(index(Param("n", 2, 64)))
    >>> n * 2 // n, (n + 3) // 4, n > 1, n == 7
    (2, (n + 3)//4, True, False)
    """

    __slots__ = ("index",)
    index: Index

    if not TYPE_CHECKING:

        def __init__(self, x: Index) -> None:
            self.index = x

    else:

        def __new__(cls, x: Index) -> Size:  # noqa: D102
            return super().__new__(cls)

    def __canonical__(self) -> object:
        """What a digest of this is made of."""
        return self.index

    def __repr__(self) -> str:
        return str(self.index)

    def __str__(self) -> str:
        return str(self.index)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __hash__(self) -> int:
        return hash(self.index)

    #: numbers of numpy leave arithmetic with sizes to these
    __array_ufunc__ = None

    def __add__(self, other: int) -> int:
        return NotImplemented if (x := _operand(other)) is None else as_size(self.index + x)

    def __sub__(self, other: int) -> int:
        return NotImplemented if (x := _operand(other)) is None else as_size(self.index - x)

    def __rsub__(self, other: int) -> int:
        return NotImplemented if (x := _operand(other)) is None else as_size(x - self.index)

    def __mul__(self, other: int) -> int:
        return NotImplemented if (x := _operand(other)) is None else as_size(times(self.index, x))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> int:
        return as_size(-self.index)

    def __pos__(self) -> int:
        return self

    def __floordiv__(self, other: int) -> int:
        return NotImplemented if (x := _operand(other)) is None else _divided(self.index, x)

    def __rfloordiv__(self, other: int) -> int:
        return NotImplemented if (x := _operand(other)) is None else _divided(x, self.index)

    def __mod__(self, other: int) -> int:
        return NotImplemented if (x := _operand(other)) is None else _remainder(self.index, x)

    def __rmod__(self, other: int) -> int:
        return NotImplemented if (x := _operand(other)) is None else _remainder(x, self.index)

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def __index__(self) -> int:
        raise OpenSizeError(f"a number is needed where the size {self} is one of a run")

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __truediv__(self, other: float) -> float:
        return float(self)

    __rtruediv__ = __truediv__

    def __bool__(self) -> bool:
        return self != 0

    def __eq__(self, other: object) -> bool:
        x = _index(other)
        return x is not None and _zero(self.index - x)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: float) -> bool:
        return not self >= other

    def __le__(self, other: float) -> bool:
        return not self > other

    def __ge__(self, other: float) -> bool:
        return self._beyond(other, 0)

    def __gt__(self, other: float) -> bool:
        return self._beyond(other, 1)

    def _beyond(self, other: float, by: int) -> bool:
        """Whether ``self - other >= by``."""
        if other in (float("inf"), float("-inf")):
            return other < 0
        x = _index(other)
        if x is None:
            raise TypeError(f"a size and {other!r} are not compared")
        return is_nonnegative(self.index - x - by)


def as_size(x: Index) -> int:
    """A size, or the integer that it is."""
    return Size(x) if x.terms else x.const


def most_of(value: int) -> int:
    """The largest that a size may be."""
    high = int_upper(index_of(value), {})
    assert high is not None  # symbols have bounds
    return high


def index_of(value: int) -> Index:
    """An integer or a size as an index."""
    return value.index if isinstance(value, Size) else Index(value)


def least(first: int, *others: int) -> int:
    """The least of integers and sizes; an expression where the ranges of the symbols do not decide."""
    return _extreme(first, others, up=False)


def most(first: int, *others: int) -> int:
    """The largest of integers and sizes."""
    return _extreme(first, others, up=True)


def is_open(value: object) -> bool:
    """Whether a value is a size that only a run knows."""
    return isinstance(value, Size)


def is_nonnegative(x: Index) -> bool:
    """Whether an index without variables is at least 0 for all values of its symbols, or for none.

    Raises OpenSizeError where that depends on them.
    """
    low, high = _bounds(x)
    if low is not None and low >= 0:
        return True
    if high is not None and high < 0:
        return False
    raise OpenSignError(x)


def times(a: Index, b: Index) -> Index:
    """The product of two indices over symbols; of two of them, a symbol of its own.

    >>> n, m = index(Param("n", 1, 8)), index(Param("m", 1, 8))
    >>> print(times(n + 1, m * 2))
    2*m + 2*m_n
    """
    out = Index(a.const * b.const)
    for x, c in a.terms:
        out = out + index(x) * (c * b.const)
    for y, d in b.terms:
        out = out + index(y) * (d * a.const)
    for x, c in a.terms:
        for y, d in b.terms:
            out = out + _product([*_factors(x), *_factors(y)]) * (c * d)
    return out


def exact_quotient(a: Index, b: Index) -> Index | None:
    """``a / b`` where ``b`` is seen to divide ``a``.

    >>> n, m = index(Param("n", 1, 8)), index(Param("m", 1, 8))
    >>> print(exact_quotient(times(n + 1, m * 2), n + 1))
    2*m
    """
    if not b.terms:
        whole = b.const and all(c % b.const == 0 for c in (a.const, *(c for _, c in a.terms)))
        return Index(a.const // b.const, tuple((x, c // b.const) for x, c in a.terms)) if whole else None
    if a == b:
        return Index(1)
    if len(b.terms) == 1 and not b.const:
        (x, d), parts = b.terms[0], [*a.terms]
        if a.const:
            return None
        out = Index(0)
        for y, c in parts:
            rest = list(_factors(y))
            if c % d or not all(_taken(rest, factor) for factor in _factors(x)):
                return None
            out = out + _product(rest) * (c // d)
        return out
    # (past + seq)*batch by (past + seq): the quotient of one term by another, if that is it
    for x, c in a.terms:
        for y, d in b.terms:
            quotient = exact_quotient(index(x) * c, index(y) * d)
            if quotient is not None and times(quotient, b) == a:
                return quotient
    return None


def _divided(a: Index, b: Index) -> int:
    quotient = exact_quotient(a, b)
    if quotient is not None:
        return as_size(quotient)
    if not b.terms and b.const > 0:
        high = int_upper(a, {})
        # floor(-n / 2) as -ceil(n / 2): divisions of what is not negative, which may be multiplied
        down = high is not None and high <= 0
        return as_size(-floordiv(-a + (b.const - 1), b.const) if down else floordiv(a, b.const))
    if _is_within(a, b):
        return 0
    raise OpenSizeError(f"{a} is divided by {b}")


def _remainder(a: Index, b: Index) -> int:
    if exact_quotient(a, b) is not None:
        return 0
    if not b.terms and b.const > 0:
        return as_size(mod(a, b.const))
    if _is_within(a, b):
        return as_size(a)
    raise OpenSizeError(f"{a} is divided by {b}")


def _is_within(a: Index, b: Index) -> bool:
    """Whether ``0 <= a < b`` for all values of the symbols."""
    low, room = int_lower(a, {}), int_lower(b - a, {})
    return low is not None and room is not None and low >= 0 and room > 0


def _extreme(first: int, others: tuple[int, ...], *, up: bool) -> int:
    kept = [index_of(first)]
    for other in map(index_of, others):
        for at, known in enumerate(kept):
            low, high = _bounds(other - known if up else known - other)
            if high is not None and high <= 0:
                break
            if low is not None and low >= 0:
                kept[at] = other
                break
        else:
            kept.append(other)
    return as_size((imax if up else imin)(*kept))


def _bounds(x: Index) -> tuple[int | None, int | None]:
    """The range of an index; what has a factor in common is a product: ``n*m - n = n*(m - 1)``."""
    if not x.terms:
        return x.const, x.const
    low, high = int_lower(x, {}), int_upper(x, {})
    every = [factor for atom, _ in x.terms for factor in dict.fromkeys(_factors(atom))]
    for factor in dict.fromkeys(f for f in every if every.count(f) > 1):
        least_, most_ = _bounds(index(factor))
        inside = Index(0)
        for atom, c in x.terms:
            rest = [*_factors(atom)]
            if _taken(rest, factor):
                inside = inside + _product(rest) * c
        beside, within = _bounds(x - times(index(factor), inside)), _bounds(inside)
        if least_ is not None and most_ is not None and beside[0] is not None and within[0] is not None:
            bound = beside[0] + min(least_ * within[0], most_ * within[0])
            low = bound if low is None else max(low, bound)
        if least_ is not None and most_ is not None and beside[1] is not None and within[1] is not None:
            bound = beside[1] + max(least_ * within[1], most_ * within[1])
            high = bound if high is None else min(high, bound)
    return low, high


def _zero(x: Index) -> bool:
    return _bounds(x) == (0, 0)


def _factors(atom: Atom) -> tuple[Atom, ...]:
    return atom.factors if isinstance(atom, Param) and atom.factors else (atom,)


def _taken(factors: list[Atom], factor: Atom) -> bool:
    """Whether a factor is among some; it is taken out."""
    if factor not in factors:
        return False
    factors.remove(factor)
    return True


def _product(factors: list[Atom]) -> Index:
    """The product of atoms: one of them, or the symbol that stands for it."""
    if len(factors) < 2:
        return index(factors[0]) if factors else Index(1)
    factors = sorted(factors, key=lambda atom: atom.key)
    low, high = 1, 1
    for factor in factors:
        ends = _bounds(index(factor))
        if ends[0] is None or ends[1] is None or ends[0] < 0:
            raise OpenSizeError(f"{factor} is multiplied by a size, and may be negative or of any size")
        low, high = low * ends[0], high * ends[1]
    name = "_".join(f.name if isinstance(f, Param) else f"d{digest(str(f))[:12]}" for f in factors)
    step = prod(f.multiple_of for f in factors if isinstance(f, Param))
    return index(Param(name, low, high, step, tuple(factors)))


def _operand(value: Any) -> Index | None:
    """What is calculated with a size as an index, if it is an integer; raises OpenSizeError for fractions."""
    x = _index(value)
    if x is None and isinstance(value, float):
        raise OpenSizeError(f"a size of a run is calculated with {value!r}, which is no whole number")
    return x


def _index(value: Any) -> Index | None:
    """An integer, one of numpy among them, or a size as an index; ``None`` for anything else."""
    if isinstance(value, Size):
        return value.index
    if isinstance(value, float):
        return Index(int(value)) if value.is_integer() else None
    if isinstance(value, np.bool_):
        return Index(int(value))
    try:
        return Index(value.__index__())
    except (AttributeError, TypeError):
        return None


def base_symbols(x: Index) -> dict[str, Param]:
    """The symbols of an index by name, products taken apart into their factors."""
    found: dict[str, Param] = {}
    for atom, _ in x.terms:
        match atom:
            case Param():
                if not atom.factors:
                    found[atom.name] = atom
                for factor in atom.factors:
                    found |= base_symbols(index(factor))
            case FloorDiv() | Mod():
                found |= base_symbols(atom.arg)
            case MinMax():
                for arg in atom.args:
                    found |= base_symbols(arg)
            case _:
                pass
    return found


#: What a symbolic size is taken for where plans are priced, or a prime below it: no multiple of a tile, so
#: that remainders count.
TYPICAL: Final = 509


def typical_size(p: Param, part: float = 1.0) -> int:
    """A number near :data:`TYPICAL` that a symbolic size may have; of larger ones the geometric mean.

    Of another ``part`` it is on the way from the least one (0), or to the largest (2), by the logarithm.
    """
    first = -(-p.lo // p.multiple_of)
    near = min(p.hi, TYPICAL if p.lo < TYPICAL else isqrt(p.lo * p.hi))
    if part < 1:
        least = max(1, p.lo)
        near = round(least * (near / least) ** part)
    elif part > 1 and near > 0:
        near = round(near * (p.hi / near) ** (part - 1))
    last = max(first, near // p.multiple_of)
    return p.multiple_of * next((n for n in range(last, first, -1) if _is_prime(n)), last)


def typical_sizes(params: Iterable[Param], part: float = 1.0) -> dict[str, int]:
    """Numbers that symbolic sizes, and the factors of those that are products, may have together."""
    every = {name: p for param in params for name, p in base_symbols(index(param)).items()}
    sizes = {name: typical_size(p, part) for name, p in every.items()}
    return sizes | {p.name: param_value(p, sizes) for p in params}


def typical(value: int) -> int:
    """The number that a size is taken for where something is priced: no decision of meaning follows it."""
    if not isinstance(value, Size):
        return value
    return bind_params(value.index, typical_sizes(base_symbols(value.index).values())).as_int()


def _is_prime(n: int) -> bool:
    """Whether no tile but one element divides a size."""
    return n > 1 and all(n % d for d in range(2, isqrt(n) + 1))
