"""Quasi-affine indices and conditions away from borders: the affine piece that holds, and where it does.

Clamped, mirrored and wrapped indices are affine in pieces, and so are the conditions of constant borders: one
piece holds in the middle of a range, and all but the ends of it. All who cut or price borders take it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, lcm
from typing import Final, TypeAlias

from tilewright.ir import (
    I64,
    Atom,
    Compare,
    Env,
    Expr,
    FloorDiv,
    Index,
    MinMax,
    Mod,
    OfIndex,
    Param,
    Var,
    evaluate_index,
    floordiv,
    index,
    linear,
    mod,
    params_of,
    var,
)

#: An affine index, and the indices that are 0 or more where it is the one that is meant.
Piece: TypeAlias = tuple[Index, tuple[Index, ...]]
#: What a size counts for that only a run knows.
UNKNOWN: Final = 64
#: The part of a range that remainders' borders may be: axes fused into one wrap at more, and are no borders.
PART_WRAPPED: Final = 16


@dataclass(frozen=True, slots=True)
class Middle:
    """Where pieces are looked for: first, middle and last value of what runs, as far as they are known."""

    values: Mapping[str, tuple[int, int, int]]

    @classmethod
    def of(cls, env: Env) -> Middle:
        """The middle of ranges, each at the middle of those outside of it."""
        known: dict[str, tuple[int, int, int]] = {}
        for name, (lo, hi) in env.items():
            here = cls(known)
            first, last = here.value(lo), here.value(hi)
            if first is not None and last is not None:
                known[name] = first, (first + last) // 2, last
        return cls(known)

    def value(self, x: Index) -> int | None:
        """What an index is there; ``None`` where that depends on data, or on what is not known."""
        at = {p.name: min(max(UNKNOWN, p.lo), p.hi) for p in params_of(x)}
        at |= {name: middle for name, (_, middle, _) in self.values.items()}
        try:
            return evaluate_index(x, at, _unknown)
        except KeyError:
            return None

    def mostly(self, where: tuple[Index, ...], part: int = 2) -> bool:
        """Whether linear indices are negative for no more than a part of the values of each name in them.

        The other names have their middle values: a remainder that is another one in each tile is no border.
        """
        return all(self._along(where, name, part) for name in {v: 0 for x in where for v in x.vars})

    def _along(self, where: tuple[Index, ...], name: str, part: int) -> bool:
        if name not in self.values:
            return False
        first, middle, last = self.values[name]
        lo, hi = first, last
        for x in where:
            value, step = self.value(x), x.coefficient(name)
            if value is None or (step == 0 and value < 0) or _jumps(x, name):
                return False
            if step > 0:
                lo = max(lo, middle - value // step)
            elif step < 0:
                hi = min(hi, middle + value // -step)
        return part * (hi - lo + 1) >= (part - 1) * (last - first + 1)


def _jumps(x: Index, name: str) -> bool:
    """Whether an index moves with a name otherwise than by the same at each step."""
    return name in (x - var(name) * x.coefficient(name)).vars


def _unknown(_: Expr) -> int:
    raise KeyError


NOWHERE: Final = Middle({})


def piece(x: Index, name: str, middle: Middle = NOWHERE) -> Piece | None:
    """The affine index in ``name`` that an index is in the middle, and where it is; ``None`` for others.

    >>> from tilewright.ir import floordiv, imax, mod, var
    >>> x = var("x")
    >>> around = Middle.of({"x": (index(0), index(99))})
    >>> for each in (imax(x - 1, 1 - x), mod(x + 98, 100), imax(0, floordiv(x, 3) - 2)):
    ...     found, where = piece(each, "x", around)
    ...     print(found, "where", ", ".join(f"{i} >= 0" for i in where))
    x - 1 where 2*x - 2 >= 0
    x - 2 where x - 2 >= 0, -x + 101 >= 0
    x//3 - 2 where x - 6 >= 0

    Quotients and remainders that change often, of axes that are several in one, stay what they are.
    """
    out, where = Index(x.const), tuple[Index, ...]()
    for atom, c in x.terms:
        found = _of_atom(atom, name, middle)
        if found is None:
            return None
        out, where = out + found[0] * c, where + found[1]
    return out, where


def _of_atom(atom: Atom, name: str, middle: Middle) -> Piece | None:
    if name not in index(atom).vars or index(atom).as_var() == name:
        return index(atom), ()
    match atom:
        case MinMax(op, args):
            moved = [(a, found) for a in args if name in a.vars for found in (piece(a, name, middle),)]
            if any(found is None for _, found in moved):
                return None
            pieces = [found for _, found in moved if found is not None]
            at = [middle.value(x) for x, _ in pieces]
            known = [v for v in at if v is not None]
            if len(pieces) > 1 and len(known) < len(pieces):
                return None
            # what alone moves is meant: the others are limits
            chosen = at.index((min if op == "min" else max)(known)) if len(pieces) > 1 else 0
            x, where = pieces[chosen]
            others = [a for a in args if name not in a.vars]
            others += [y for n, (y, _) in enumerate(pieces) if n != chosen]
            for n, (_, also) in enumerate(pieces):
                where += also if n != chosen else ()
            where = (*where, *(_linear(a - x if op == "min" else x - a) for a in others))
            plain = len(pieces) == 1 and not any(_jumps(c, name) for c in where)
            return (x, where) if plain or middle.mostly(where) else None
        case FloorDiv(arg, d) | Mod(arg, d):
            inner = piece(arg, name, middle)
            value = None if inner is None else middle.value(inner[0])
            if inner is None or value is None:
                return None
            x, where, whole = inner[0], inner[1], value // d * d
            ends = (*where, _linear(x - whole), _linear(whole + d - 1 - x))
            if middle.mostly(ends, PART_WRAPPED):
                return (x - whole if isinstance(atom, Mod) else Index(value // d)), ends
            return (mod(x, d) if isinstance(atom, Mod) else floordiv(x, d)), where
        case _:
            return None


def _linear(x: Index) -> Index:
    """An index without the one quotient in another one, which is 0 or more only where that is, too."""
    parts = [(atom, c) for atom, c in x.terms if isinstance(atom, FloorDiv)]
    if len(parts) != 1:
        return x
    ((atom, c),) = parts
    n, const, whole = abs(c), x.const, list[tuple[Atom, int]]()
    for a, k in (term for term in x.terms if term[0] is not atom):
        times = (2 * k + n) // (2 * n)
        left = k - times * n
        if left and not isinstance(a, Param):
            return x
        if isinstance(a, Param):
            # the least that a size adds beside multiples of c
            const += left * (a.lo if left > 0 else a.hi)
        whole.append((a, times))
    least = linear(const // n, whole)
    # a // d >= -m: a >= -m*d;  a // d <= m: a < (m + 1)*d
    return atom.arg + least * atom.divisor if c > 0 else least * atom.divisor + atom.divisor - 1 - atom.arg


def decided(e: Compare, name: str, middle: Middle) -> tuple[bool, tuple[Index, ...]] | None:
    """What a comparison of indices that move with ``name`` gives in the middle, and where it gives that."""
    if not isinstance(e.a, OfIndex) or not isinstance(e.b, OfIndex) or e.a.dtype != I64:
        return None
    found = piece(e.a.index - e.b.index, name, middle)
    value = None if found is None else middle.value(found[0])
    if found is None or value is None:
        return None
    x, where = found
    if e.op in ("eq", "ne"):
        said, more = e.op == "ne", (x if value > 0 else -x) - 1
    else:
        least = 0 if e.op in ("ge", "lt") else 1
        over = value >= least
        said, more = over == (e.op in ("ge", "gt")), x - least if over else least - 1 - x
    where = (*where, _linear(more))
    return (said, where) if middle.mostly(where) else None


def period(x: Index, name: str) -> tuple[int, int] | None:
    """Steps of an iterator after which an index has moved by the same wherever it began, and by how much.

    ``None`` for indices that data move, or that a clamp stops.

    >>> from tilewright.ir import floordiv, mod, var
    >>> x = var("x")
    >>> period(x * 2 + 1, "x"), period(floordiv(x, 3) * 8 + mod(x + 1, 4), "x"), period(mod(x * 2, 6), "x")
    ((1, 2), (12, 32), (3, 0))
    """
    moves: list[tuple[int, int]] = []
    for atom, c in x.terms:
        if name not in index(atom).vars:
            continue
        match atom:
            case Var():
                moves.append((1, c))
            case FloorDiv(arg, d) | Mod(arg, d) if (inner := period(arg, name)) is not None:
                turns = d // gcd(inner[1], d)
                moved = c * inner[1] * turns // d if isinstance(atom, FloorDiv) else 0
                moves.append((inner[0] * turns, moved))
            case MinMax(_, args):
                for each in (period(arg, name) for arg in args):
                    if each is None or each[1]:
                        return None
                    moves.append(each)
            case _:
                return None
    steps = lcm(*(each for each, _ in moves))
    return steps, sum(moved * (steps // each) for each, moved in moves)


def inside(x: Index, name: str, env: Env) -> Index:
    """An index as it moves along ``name`` away from borders, where that is known."""
    if not any(isinstance(atom, MinMax | Mod | FloorDiv) for atom, _ in x.terms):
        return x
    middle, out = Middle.of(env), Index(x.const)
    for atom, c in x.terms:
        found = piece(index(atom), name, middle)
        out = out + (index(atom) if found is None else found[0]) * c
    return out
