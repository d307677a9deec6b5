"""Regions of loop iterations: are the boxes of different iterations disjoint, do they cover a domain?

``lo`` of each dimension is read as a sum of *pieces* of loop variables, ``coefficient * ((v // a) % m)``;
a split gives plain variables, a fused loop ``v`` gives ``v // n`` and ``v % n``. Both questions are then
mixed-radix arithmetic. Everything not of that form answers "not shown".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.ir import ONE, Atom, Env, FloorDiv, For, Index, Mod, Span, Var, floordiv, prove_ge0


@dataclass(frozen=True, slots=True)
class Piece:
    """``(v // divisor) % modulus`` of the loop variable ``v`` (``modulus`` ``None``: no remainder taken)."""

    var: str
    divisor: int = 1
    modulus: int | None = None

    def count(self, loop: For) -> Index:
        """Number of values while ``loop``, which starts at 0 unless the piece is the plain variable, runs."""
        n = floordiv(loop.extent + (self.divisor * loop.step - 1), self.divisor * loop.step)
        if self.modulus is None or (n.is_const and n.const <= self.modulus):
            return n
        return Index(self.modulus)


def _piece(atom: Atom) -> Piece | None:
    """The piece that an atom is, or ``None``."""
    match atom:
        case Var(name):
            return Piece(name)
        case FloorDiv(arg, d):
            inner = _of(arg)
            if inner is None or (inner.modulus is not None and inner.modulus % d):
                return None
            return Piece(inner.var, inner.divisor * d, None if inner.modulus is None else inner.modulus // d)
        case Mod(arg, m):
            inner = _of(arg)
            if inner is None or (inner.modulus is not None and inner.modulus % m):
                return None
            return Piece(inner.var, inner.divisor, m)
        case _:
            return None


def _of(x: Index) -> Piece | None:
    if x.const == 0 and len(x.terms) == 1 and x.terms[0][1] == 1:
        return _piece(x.terms[0][0])
    return None


@dataclass(frozen=True, slots=True)
class _Form:
    """One dimension's ``lo`` as ``base + sum(coefficient * piece)``."""

    base: Index
    pieces: tuple[tuple[int, Piece], ...]


def _form(lo: Index, loops: dict[str, For]) -> _Form | None:
    base, coefficients = Index(lo.const), dict[Piece, int]()
    for atom, c in lo.terms:
        used = Index(0, ((atom, 1),)).vars & loops.keys()
        if not used:
            base = base + Index(0, ((atom, c),))
            continue
        p = _piece(atom)
        if p is None or c <= 0:
            return None
        loop = loops[p.var]
        if p == Piece(p.var):
            # count iterations from 0: v = lo + step * k
            if not loop.lo.vars.isdisjoint(loops):
                return None
            base = base + loop.lo * c
            c *= loop.step
        elif loop.step != 1 or loop.lo != Index(0):
            return None
        # one piece may be written in two ways: (v % 4) // 2 and (v // 2) % 2
        coefficients[p] = coefficients.get(p, 0) + c
    return _Form(base, tuple(sorted(((c, p) for p, c in coefficients.items()), key=lambda item: item[0])))


def disjoint(spans: Sequence[Span], loops: Sequence[For]) -> tuple[str, ...]:
    """Names of the loops whose iterations are not shown to have disjoint boxes; ``()`` where all have.

    ``spans`` is the box of one iteration point of ``loops`` (outermost first).
    """
    by_name = {f.var: f for f in loops}
    determined: dict[str, list[Piece]] = {f.var: [] for f in loops}
    for s in spans:
        form = _form(s.lo, by_name)
        if form is None:
            continue
        reach: Index | None = s.extent
        for c, p in form.pieces:
            if reach is None or not prove_ge0(c - reach, {}):
                break
            n = p.count(by_name[p.var])
            reach = (n - 1) * c + reach
        else:
            for _, p in form.pieces:
                determined[p.var].append(p)
    return tuple(
        v for v, pieces in determined.items() if by_name[v].extent != ONE and not _whole(pieces, by_name[v])
    )


def _whole(pieces: list[Piece], loop: For) -> bool:
    """Whether the pieces together tell the loop variable's value."""
    at = 1
    for p in sorted(pieces, key=lambda p: (p.divisor, -(p.modulus or 1 << 62))):
        if p.divisor > at:
            return False
        if p.modulus is None:
            return True
        at = max(at, p.divisor * p.modulus)
    return loop.extent.is_const and loop.extent.const <= at


def uncovered(
    spans: Sequence[Span], domain: Sequence[tuple[Index, Index]], loops: Sequence[For], env: Env
) -> int | None:
    """The first dimension in which the boxes of all iterations of ``loops`` may miss part of ``domain``.

    ``domain`` is ``[lo, hi)`` a dimension; ``env`` bounds the variables around ``loops``. ``None`` where the
    boxes together are shown to hold the whole domain.
    """
    by_name = {f.var: f for f in loops}
    used: set[Piece] = set()
    for d, (s, (lo, hi)) in enumerate(zip(spans, domain, strict=True)):
        form = _form(s.lo, by_name)
        if form is None or not used.isdisjoint(p for _, p in form.pieces):
            return d
        used.update(p for _, p in form.pieces)
        reach = s.extent
        for c, p in form.pieces:
            if not prove_ge0(reach - c, env):
                return d
            reach = (p.count(by_name[p.var]) - 1) * c + reach
        if not (prove_ge0(lo - form.base, env) and prove_ge0(form.base + reach - hi, env)):
            return d
    return None if _independent(used, by_name) else 0


def _independent(used: Iterable[Piece], loops: dict[str, For]) -> bool:
    """Whether pieces of one variable take all combinations of their values."""
    by_var: dict[str, list[Piece]] = {}
    for p in used:
        by_var.setdefault(p.var, []).append(p)
    for name, pieces in by_var.items():
        if len(pieces) == 1:
            continue  # v runs from 0 on, so a single piece takes all its values
        extent = loops[name].extent
        at: int | None = 1  # the digits below this are taken; None: all are
        for p in sorted(pieces, key=lambda p: p.divisor):
            if at is None or p.divisor % at or not extent.is_const:
                return False
            at = None if p.modulus is None else p.divisor * p.modulus
            if extent.const % (p.divisor if at is None else at):
                return False
    return True
