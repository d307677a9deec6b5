"""Quasi-affine index expressions, canonical by construction.

    Index := c0 + sum(ci * atom)
    atom  := Var | Param | floordiv(Index, c) | mod(Index, c) | min(Index+) | max(Index+) | Opaque(Expr)

Two indices that the rules below identify are equal as Python values: there is no rewrite loop.
Division rounds towards minus infinity and ``mod`` has the sign of its (positive) divisor, as in Python.
Rules that need to know the range of a variable are in :mod:`tilewright.ir.bounds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    # expressions hold indices, and opaque atoms hold expressions: that file imports this one
    from tilewright.ir.expr import Expr

Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable or block iterator, identified by its name."""

    name: str

    @property
    def key(self) -> Key:
        """Position in the canonical order of terms."""
        return (0, self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Param:
    """A symbolic size: an integer in ``[lo, hi]``, a multiple of ``multiple_of``, checked at entry.

    A size that is a product of others says of which, ``factors``: indices stay linear in it. Its name says
    the same, so that equal products are equal sizes.
    """

    name: str
    lo: int = 1
    hi: int = 1 << 31
    multiple_of: int = 1
    factors: tuple[Atom, ...] = field(default=(), compare=False, repr=False)

    @property
    def key(self) -> Key:
        """Position in the canonical order of terms."""
        return (1, self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """``floor(arg / divisor)`` with a positive constant divisor; build with :func:`floordiv`."""

    arg: Index
    divisor: int
    key: Key = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (2, self.arg.key, self.divisor))

    def __str__(self) -> str:
        return f"{_operand(self.arg)}//{self.divisor}"


@dataclass(frozen=True, slots=True)
class Mod:
    """``arg - divisor * floor(arg / divisor)`` with a positive constant divisor; build with :func:`mod`."""

    arg: Index
    divisor: int
    key: Key = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (3, self.arg.key, self.divisor))

    def __str__(self) -> str:
        return f"{_operand(self.arg)}%{self.divisor}"


@dataclass(frozen=True, slots=True)
class MinMax:
    """``min`` or ``max`` of two or more indices; build with :func:`imin` and :func:`imax`."""

    op: str  # "min" | "max"
    args: tuple[Index, ...]
    key: Key = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (4, self.op, tuple(a.key for a in self.args)))

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class Opaque:
    """A data-dependent integer: the value of a scalar expression. Clamp it with ``imin``/``imax``."""

    expr: Expr
    key: Key = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (5, str(self.expr)))

    def __str__(self) -> str:
        return f"int({self.expr})"


def _operand(arg: Index) -> str:
    """What is divided, in parentheses unless it is a single name."""
    return str(arg) if str(arg).isidentifier() else f"({arg})"


class OpenIndexError(ValueError):
    """A number is asked of an index that is none."""


Atom: TypeAlias = Var | Param | FloorDiv | Mod | MinMax | Opaque
IndexLike: TypeAlias = "Index | Var | Param | int"


class Index:
    """An immutable canonical sum ``const + sum(coefficient * atom)``, terms sorted by their atoms' keys."""

    __slots__ = ("_hash", "_key", "_vars", "const", "terms")

    const: int
    terms: tuple[tuple[Atom, int], ...]

    def __init__(self, const: int, terms: tuple[tuple[Atom, int], ...] = ()) -> None:
        """Trusts ``terms`` to be canonical: use :func:`index`, :func:`linear` or arithmetic instead."""
        self.const = const
        self.terms = terms
        self._hash: int | None = None
        self._key: Key | None = None
        self._vars: frozenset[str] | None = None

    @property
    def key(self) -> Key:
        """A tuple that orders indices and is equal exactly for equal ones."""
        if self._key is None:
            self._key = (self.const, tuple((a.key, c) for a, c in self.terms))
        return self._key

    def __canonical__(self) -> tuple[object, ...]:
        """What a digest of this is made of."""
        return self.const, self.terms

    @property
    def vars(self) -> frozenset[str]:
        """Names of the variables that occur, inside of divisions and opaque expressions too."""
        if self._vars is None:
            out: set[str] = set()
            for atom, _ in self.terms:
                if type(atom) is Var:
                    out.add(atom.name)
                else:
                    out |= atom_vars(atom)
            self._vars = frozenset(out)
        return self._vars

    @property
    def is_const(self) -> bool:
        """Whether the value is a known integer."""
        return not self.terms

    def as_int(self) -> int:
        """The value of a constant index; OpenIndexError where it is not constant."""
        if self.terms:
            raise OpenIndexError(f"index {self} is not a constant")
        return self.const

    def coefficient(self, name: str) -> int:
        """The coefficient of the variable ``name`` as a plain term (0 where it has none)."""
        for atom, c in self.terms:
            if isinstance(atom, Var) and atom.name == name:
                return c
        return 0

    def as_var(self) -> str | None:
        """The variable's name where the index is exactly one variable, else ``None``."""
        if self.const == 0 and len(self.terms) == 1:
            atom, c = self.terms[0]
            if c == 1 and isinstance(atom, Var):
                return atom.name
        return None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Index) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.const, self.terms))
        return self._hash

    def __add__(self, other: IndexLike) -> Index:
        if isinstance(other, int):
            return self if other == 0 else Index(self.const + other, self.terms)
        o = other if type(other) is Index else index(other)
        if not o.terms:
            return self if o.const == 0 else Index(self.const + o.const, self.terms)
        if not self.terms:
            return o if self.const == 0 else Index(self.const + o.const, o.terms)
        acc: dict[Atom, int] = dict(self.terms)
        for atom, c in o.terms:
            acc[atom] = acc.get(atom, 0) + c
        return linear(self.const + o.const, acc)

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: IndexLike) -> Index:
        if isinstance(other, int):
            return self if other == 0 else Index(self.const - other, self.terms)
        o = other if type(other) is Index else index(other)
        if not o.terms:
            return self if o.const == 0 else Index(self.const - o.const, self.terms)
        if self.terms == o.terms:
            return Index(self.const - o.const)
        acc: dict[Atom, int] = dict(self.terms)
        for atom, c in o.terms:
            acc[atom] = acc.get(atom, 0) - c
        return linear(self.const - o.const, acc)

    def __rsub__(self, other: IndexLike) -> Index:
        return self * -1 + other

    def __mul__(self, other: IndexLike) -> Index:
        if isinstance(other, int):
            k = other
        else:
            o = index(other)
            if o.terms:
                if not self.terms:
                    return o * self.const
                raise ValueError(f"product of two non-constant indices: ({self}) * ({o})")
            k = o.const
        if k == 1:
            return self
        if k == 0:
            return ZERO
        return Index(self.const * k, tuple((a, c * k) for a, c in self.terms))

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Index:
        return floordiv(self, divisor)

    def __mod__(self, divisor: int) -> Index:
        return mod(self, divisor)

    def __str__(self) -> str:
        if not self.terms:
            return str(self.const)
        out = ""
        for atom, c in self.terms:
            # 2*(i//2) is not 2*i//2, nor -(i//2) -i//2
            text = f"({atom})" if isinstance(atom, FloorDiv | Mod) and c != 1 else str(atom)
            sign = "-" if c < 0 else ("+" if out else "")
            mag = "" if abs(c) == 1 else f"{abs(c)}*"
            out += f" {sign} {mag}{text}" if out else f"{sign}{mag}{text}"
        if self.const:
            out += f" {'-' if self.const < 0 else '+'} {abs(self.const)}"
        return out

    def __repr__(self) -> str:
        return f"Index({self})"


ZERO = Index(0)
ONE = Index(1)


def index(value: IndexLike | Atom) -> Index:
    """Wrap an integer, a variable, a parameter or an atom as an :class:`Index`."""
    if isinstance(value, Index):
        return value
    if isinstance(value, int):
        return Index(value)
    return Index(0, ((value, 1),))


def var(name: str) -> Index:
    """The index that is just the variable ``name``."""
    return Index(0, ((Var(name), 1),))


def _term_key(term: tuple[Atom, int]) -> Key:
    return term[0].key


def linear(const: int, coefficients: Mapping[Atom, int] | Iterable[tuple[Atom, int]]) -> Index:
    """Build ``const + sum(c * atom)`` in canonical form; ``c*(x//d)*d + c*(x%d)`` becomes ``c*x``."""
    if isinstance(coefficients, dict | Mapping):  # a test for dict is quick
        acc = {a: c for a, c in coefficients.items() if c}
    else:
        acc = {}
        for atom, c in coefficients:
            c += acc.get(atom, 0)
            if c:
                acc[atom] = c
            else:
                acc.pop(atom, None)
    if len(acc) < 2:
        return Index(const, tuple(acc.items()))
    for atom in acc:
        if type(atom) is Mod:
            joined = _join_division(const, acc)
            if joined is not None:
                return joined
            break
    return Index(const, tuple(sorted(acc.items(), key=_term_key)))


def _join_division(const: int, acc: Mapping[Atom, int]) -> Index | None:
    """The sum with a quotient and a remainder of it put together; ``None`` where there are no such two."""
    for atom, c in acc.items():
        if not isinstance(atom, Mod):
            continue
        quotient = floordiv(atom.arg, atom.divisor)
        # x//d may itself be a sum (divisible terms leave the division); match it as a whole
        if quotient.terms and all(acc.get(a) == c * k * atom.divisor for a, k in quotient.terms):
            rest = {a: k for a, k in acc.items() if a != atom and a not in dict(quotient.terms)}
            return linear(const - c * quotient.const * atom.divisor, rest) + atom.arg * c
        # the remainder knows x only up to multiples of d
        for other, k in acc.items():
            if isinstance(other, FloorDiv) and other.divisor == atom.divisor and k == c * atom.divisor:
                if _congruent(other.arg, atom.arg, atom.divisor):
                    rest = {a: n for a, n in acc.items() if a not in (atom, other)}
                    return linear(const, rest) + other.arg * c
    return None


def _congruent(x: Index, y: Index, divisor: int) -> bool:
    """Whether two indices are seen to differ by multiples of a divisor."""
    if all(n % divisor == 0 for n in _coefficients(x - y)):
        return True
    # remainders in them that drop multiples of this divisor alone
    return all(n % divisor == 0 for n in _coefficients(_unwrapped(x, divisor) - _unwrapped(y, divisor)))


def _unwrapped(x: Index, divisor: int) -> Index:
    """An index that differs by multiples of a divisor: ``c*(y%m)`` becomes ``c*y`` where ``c*m`` is one."""
    for atom, c in x.terms:
        if isinstance(atom, Mod) and c * atom.divisor % divisor == 0:
            return _unwrapped(x + (atom.arg - Index(0, ((atom, 1),))) * c, divisor)
    return x


def _coefficients(x: Index) -> tuple[int, ...]:
    return (x.const, *(c for _, c in x.terms))


def floordiv(x: IndexLike, divisor: int) -> Index:
    """``floor(x / divisor)``; ``ValueError`` unless the divisor is positive."""
    x = index(x)
    if divisor <= 0:
        raise ValueError(f"division of {x} by {divisor}: the divisor must be positive")
    if divisor == 1 or (not x.terms and x.const == 0):
        return x
    if not x.terms:
        return Index(x.const // divisor)
    outside = [(a, c // divisor) for a, c in x.terms if c % divisor == 0]
    inside = tuple((a, c) for a, c in x.terms if c % divisor)
    q, const = divmod(x.const, divisor)
    if not inside:
        return linear(q, outside)
    g = divisor
    for _, c in inside:
        g = gcd(g, c)
    if g > 1:
        divisor //= g
        const //= g
        inside = tuple((a, c // g) for a, c in inside)
        if divisor == 1:
            return linear(q + const, outside + list(inside))
    rest = Index(const, inside)
    if len(inside) == 1 and inside[0][1] == 1 and isinstance(inside[0][0], FloorDiv):
        inner = inside[0][0]
        rest, divisor = inner.arg + const * inner.divisor, inner.divisor * divisor
        return linear(q, outside) + floordiv(rest, divisor)
    return linear(q, [*outside, (FloorDiv(rest, divisor), 1)])


def mod(x: IndexLike, divisor: int) -> Index:
    """``x - divisor * floor(x / divisor)``; ``ValueError`` unless the divisor is positive."""
    x = index(x)
    if divisor <= 0:
        raise ValueError(f"remainder of {x} by {divisor}: the divisor must be positive")
    if divisor == 1:
        return ZERO
    const = x.const % divisor
    inside: list[tuple[Atom, int]] = []
    for a, c in x.terms:
        r = c % divisor if c > 0 else -((-c) % divisor)
        if r:
            inside.append((a, r))
    if not inside:
        return Index(const)
    g = divisor
    for _, c in inside:
        g = gcd(g, c)
    if g > 1:
        # (g*y + g*k1 + k0) mod (g*d) = g * ((y + k1) mod d) + k0   with 0 <= k0 < g
        k1, k0 = divmod(const, g)
        return mod(Index(k1, tuple((a, c // g) for a, c in inside)), divisor // g) * g + k0
    if len(inside) == 1 and inside[0][1] == 1 and isinstance(inside[0][0], Mod):
        inner = inside[0][0]
        if inner.divisor % divisor == 0:
            return mod(inner.arg + const, divisor)
    return Index(0, ((Mod(Index(const, tuple(inside)), divisor), 1),))


def _minmax(op: str, args: Iterable[IndexLike]) -> Index:
    flat: dict[Index, None] = {}
    for arg in args:
        arg = index(arg)
        inner = _shifted(arg)
        flat.update(dict.fromkeys(inner[1] if inner is not None and inner[0] == op else (arg,)))
    # of arguments that differ by a constant only the extreme one counts
    best: dict[tuple[tuple[Atom, int], ...], int] = {}
    pick = min if op == "min" else max
    for arg in flat:
        best[arg.terms] = pick(best[arg.terms], arg.const) if arg.terms in best else arg.const
    kept = sorted((Index(c, t) for t, c in best.items()), key=lambda i: i.key[::-1])
    if not kept:
        raise ValueError(f"{op} of no arguments")
    if len(kept) > 1 and any(_shifted(a) is not None for a in kept):
        kept = _unbeaten(op, kept)
        if len(kept) == 2 and not kept[1].terms:
            kept = kept[::-1]
        if len(kept) == 2 and not kept[0].terms:
            flipped = _flipped(op, *kept)
            if flipped is not None:
                return flipped
    if len(kept) == 1:
        return kept[0]
    return Index(0, ((MinMax(op, tuple(kept)), 1),))


def _shifted(x: Index) -> tuple[str, tuple[Index, ...]] | None:
    """A minimum or maximum plus a constant as the operation and its arguments, each plus the constant."""
    if len(x.terms) != 1 or x.terms[0][1] != 1 or not isinstance(x.terms[0][0], MinMax):
        return None
    atom = x.terms[0][0]
    return atom.op, tuple(a + x.const for a in atom.args) if x.const else atom.args


def _unbeaten(op: str, args: list[Index]) -> list[Index]:
    """Arguments without those that another one always beats, by the structure of both."""
    kept: list[Index] = []
    for n, a in enumerate(args):
        others = kept + args[n + 1 :]
        if not any(_at_most(b, a) if op == "min" else _at_most(a, b) for b in others):
            kept.append(a)
    return kept


def _at_most(a: Index, b: Index) -> bool:
    """Whether ``a <= b`` follows from the minima and maxima in both, whatever the variables are."""
    if a.terms == b.terms:
        return a.const <= b.const
    left, right = _shifted(a), _shifted(b)
    if left is not None and left[0] == "max":
        return all(_at_most(x, b) for x in left[1])
    if right is not None and right[0] == "min":
        return all(_at_most(a, x) for x in right[1])
    return (left is not None and any(_at_most(x, b) for x in left[1])) or (
        right is not None and any(_at_most(a, x) for x in right[1])
    )


def _flipped(op: str, end: Index, inner: Index) -> Index | None:
    """``max(end, min(far, max(low, x)))`` as a clamp again, ``min(max(end, far), max(end, low, x))``."""
    between = _shifted(inner)
    if between is None or len(between[1]) != 2:
        return None
    far = next((a for a in between[1] if not a.terms), None)
    core = next((_shifted(a) for a in between[1] if a.terms), None)
    if far is None or core is None or core[0] != op:
        return None
    return _minmax(between[0], (_minmax(op, (end, far)), _minmax(op, (end, *core[1]))))


def imin(*args: IndexLike) -> Index:
    """The smallest of the arguments."""
    return _minmax("min", args)


def imax(*args: IndexLike) -> Index:
    """The largest of the arguments."""
    return _minmax("max", args)


def atom_vars(atom: Atom) -> frozenset[str]:
    """Names of the variables inside an atom."""
    match atom:
        case Var(name):
            return frozenset((name,))
        case Param():
            return frozenset()
        case FloorDiv() | Mod():
            return atom.arg.vars
        case MinMax():
            return frozenset().union(*(a.vars for a in atom.args))
        case Opaque():
            return atom.expr.vars
