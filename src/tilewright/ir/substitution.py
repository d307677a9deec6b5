"""Indices whose variables get values: substitution, evaluation, and what an index mentions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from tilewright.ir.index import (
    Atom,
    FloorDiv,
    Index,
    MinMax,
    Mod,
    Opaque,
    Param,
    Var,
    floordiv,
    imax,
    imin,
    index,
    linear,
    mod,
)

if TYPE_CHECKING:
    # expressions hold indices, and opaque atoms hold expressions: that file imports this one
    from tilewright.ir.expr import Expr


def substitute_index(
    x: Index, mapping: Mapping[str, Index], opaque: Callable[[Expr], Expr] | None = None
) -> Index:
    """Replace variables by indices; ``opaque`` maps the expressions of opaque atoms where given.

    Returns ``x`` itself where nothing changes.
    """
    if opaque is None and x.vars.isdisjoint(mapping):
        return x
    const = x.const
    acc: dict[Atom, int] = {}
    changed = False
    for atom, c in x.terms:
        new = mapping.get(atom.name) if type(atom) is Var else _substitute_atom(atom, mapping, opaque)
        if new is None:
            acc[atom] = acc.get(atom, 0) + c
        else:
            changed = True
            const += new.const * c
            for a, k in new.terms:
                acc[a] = acc.get(a, 0) + k * c
    return linear(const, acc) if changed else x


def _substitute_atom(
    atom: Atom, mapping: Mapping[str, Index], opaque: Callable[[Expr], Expr] | None
) -> Index | None:
    match atom:
        case Var(name):
            return mapping.get(name)
        case Param():
            return None
        case FloorDiv(arg, d):
            new = substitute_index(arg, mapping, opaque)
            return None if new is arg else floordiv(new, d)
        case Mod(arg, d):
            new = substitute_index(arg, mapping, opaque)
            return None if new is arg else mod(new, d)
        case MinMax(op, args):
            news = tuple(substitute_index(a, mapping, opaque) for a in args)
            return (
                None
                if all(n is a for n, a in zip(news, args, strict=True))
                else (imin(*news) if op == "min" else imax(*news))
            )
        case Opaque(expr):
            if opaque is None:
                new_expr = expr.substitute(mapping)
            else:
                new_expr = opaque(expr)
            return None if new_expr is expr else index(Opaque(new_expr))


def params_of(x: Index) -> frozenset[Param]:
    """The symbolic parameters that occur in an index."""
    out: set[Param] = set()
    for atom, _ in x.terms:
        match atom:
            case Param():
                out.add(atom)
            case FloorDiv() | Mod():
                out |= params_of(atom.arg)
            case MinMax():
                for a in atom.args:
                    out |= params_of(a)
            case _:
                pass
    return frozenset(out)


def evaluate_index(x: Index, env: Mapping[str, int], opaque: Callable[[Expr], int] | None = None) -> int:
    """The integer value under ``env`` (names of variables and parameters to integers).

    ``opaque`` evaluates data-dependent atoms; ``KeyError`` for a name that ``env`` lacks.
    """
    total = x.const
    for atom, c in x.terms:
        match atom:
            case Var(name):
                v = env[name]
            case Param():
                v = env[atom.name]
            case FloorDiv(arg, d):
                v = evaluate_index(arg, env, opaque) // d
            case Mod(arg, d):
                v = evaluate_index(arg, env, opaque) % d
            case MinMax(op, args):
                values = [evaluate_index(a, env, opaque) for a in args]
                v = min(values) if op == "min" else max(values)
            case Opaque(expr):
                v = cast("Callable[[Expr], int]", opaque)(expr)
        total = total + c * v
    return total
