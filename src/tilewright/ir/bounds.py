"""Ranges of index expressions: bounds, proofs, range-based simplification and box footprints.

An environment maps variable names to inclusive bounds ``(lo, hi)``, outermost loop first; bounds of an inner
variable may mention outer ones (triangular nests). Everything here errs on the safe side: a bound holds for
all values in the environment, and a failed proof only means "not shown".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import gcd, lcm, prod
from typing import TypeAlias

from tilewright.ir.expr import Binary, Cast, Const, Expr, map_indices
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
from tilewright.ir.piecewise import corner_bound
from tilewright.ir.program import Stage
from tilewright.ir.stmt import For, Iter, Pred
from tilewright.ir.substitution import substitute_index

Env: TypeAlias = Mapping[str, tuple[Index, Index]]


#: Minima and maxima in one sum up to which all combinations of their arguments are bounded.
_JOINT_MINMAX = 3
#: Choices of arguments, of a minimum or maximum and of the bounds of the loops around, up to which those
#: arguments are sought that never decide: 80 take seconds in wavefronts, whose bounds isl has simplified.
_CASES = 64


def loop_env(loops: Iterable[For]) -> dict[str, tuple[Index, Index]]:
    """The environment of nested loops, outermost first."""
    return {f.var: (f.lo, f.hi - 1) for f in loops}


def iter_env(iters: Iterable[Iter]) -> dict[str, tuple[Index, Index]]:
    """The environment of a block's iterators."""
    return {it.name: (it.lo, it.hi - 1) for it in iters}


def upper(x: Index, env: Env, names: Iterable[str] | None = None) -> Index | None:
    """An index without ``names`` (default: all of ``env``) that is >= ``x``; ``None`` where unbounded."""
    return _eliminate(x, env, names, True)


def lower(x: Index, env: Env, names: Iterable[str] | None = None) -> Index | None:
    """An index without ``names`` (default: all of ``env``) that is <= ``x``; ``None`` where unbounded."""
    return _eliminate(x, env, names, False)


def loop_bound(least: Index, name: str) -> tuple[str, Index] | None:
    """What ``least >= 0`` says of a variable: ``("hi", exclusive bound)`` or ``("lo", bound)``.

    ``None`` where it is not linear in the variable.
    """
    a = least.coefficient(name)
    if a == 0:
        return None
    rest = Index(
        least.const, tuple(t for t in least.terms if not (isinstance(t[0], Var) and t[0].name == name))
    )
    if name in rest.vars:
        return None
    if a < 0:
        return "hi", floordiv(rest, -a) + 1
    return "lo", -floordiv(rest, a)


def _eliminate(x: Index, env: Env, names: Iterable[str] | None, up: bool) -> Index | None:
    wanted = set(env) if names is None else set(names)
    result: Index | None = x
    for name in reversed(list(env)):
        if name in wanted and result is not None and name in result.vars:
            lo, hi = env[name]
            result = _replace(result, name, lo, hi, up)
    return result


def _replace(x: Index, name: str, lo: Index, hi: Index, up: bool) -> Index | None:
    """Bound ``x`` by giving the variable or parameter ``name`` its extreme values."""
    out = Index(x.const)
    for atom, c in x.terms:
        bound = _replace_atom(atom, name, lo, hi, up if c > 0 else not up)
        if bound is None:
            return None
        out = out + bound * c
    return out


def _replace_atom(atom: Atom, name: str, lo: Index, hi: Index, up: bool) -> Index | None:
    match atom:
        case Var(n):
            return (hi if up else lo) if n == name else index(atom)
        case Param():
            return (hi if up else lo) if atom.name == name else index(atom)
        case FloorDiv(arg, d):
            b = _replace(arg, name, lo, hi, up)
            return None if b is None else floordiv(b, d)
        case Mod(arg, d):
            if name not in arg.vars and not _has_param(arg, name):
                return index(atom)
            return Index(d - 1) if up else Index(0)
        case MinMax(op, args):
            bounds = [_replace(a, name, lo, hi, up) for a in args]
            known = [b for b in bounds if b is not None]
            # an unbounded side leaves a bound only where the other side limits it
            if len(known) < len(bounds) and not (known and (op == "min") == up):
                return None
            return imin(*known) if op == "min" else imax(*known)
        case Opaque(expr):
            return _of_type(atom, up) if name in expr.vars else index(atom)


#: Bits of an integer type up to which it bounds a data-dependent index.
_NARROW = 16


def _of_type(atom: Opaque, up: bool) -> Index | None:
    """The end of the range of a data-dependent index that its expression gives; ``None`` for wide ones."""
    known = value_range(atom.expr)
    return None if known is None else Index(known[up])


def value_range(e: Expr) -> tuple[int, int] | None:
    """The least and the greatest value that an integer expression of data may have, where that is known.

    From its type where that is narrow, and from remainders, masks and shifts by constants.
    """
    t = e.dtype
    if not t.is_integer:
        return None
    whole = int(t.min_value), int(t.max_value)
    known = whole if t.bits <= _NARROW else None
    match e:
        case Binary("mod", _, Const(int(n))) if n > 0:
            return 0, min(n - 1, whole[1])
        case Binary("and", a, b):
            masks = [x.value for x in (a, b) if isinstance(x, Const) and isinstance(x.value, int)]
            return (0, min(masks)) if masks and min(masks) >= 0 else known
        case Binary("shr", a, Const(int(n))) if t.kind == "uint" and 0 <= n < t.bits:
            return 0, (value_range(a) or whole)[1] >> n
        case Cast(inner) if inner.dtype.is_integer:
            within = value_range(inner)
            return within if within is not None and whole[0] <= within[0] <= within[1] <= whole[1] else known
    return known


def _has_param(x: Index, name: str) -> bool:
    for atom, _ in x.terms:
        match atom:
            case Param():
                if atom.name == name:
                    return True
            case FloorDiv() | Mod():
                if _has_param(atom.arg, name):
                    return True
            case MinMax():
                if any(_has_param(a, name) for a in atom.args):
                    return True
            case _:
                pass
    return False


def int_upper(x: Index, env: Env) -> int | None:
    """The best known integer >= ``x`` over the environment and all parameters; ``None`` if unbounded."""
    return _int_bound(x, env, True)


def int_lower(x: Index, env: Env) -> int | None:
    """The best known integer <= ``x`` over the environment and all parameters; ``None`` if unbounded."""
    return _int_bound(x, env, False)


def most_iterations(stage: Stage, kind: str) -> int:
    """At most so many iterations has a nest of a stage's iterators of one kind, whatever those around are.

    Raises ValueError where an extent has no bound.
    """
    env = iter_env(stage.iters)
    counts = [int_upper(it.extent, env) for it in stage.iters if it.kind == kind]
    bounded = [max(0, n) for n in counts if n is not None]
    if len(bounded) < len(counts):
        raise ValueError(f"the iterators of stage {stage.name!r} have no bound")
    return prod(bounded)


def _int_bound(x: Index, env: Env, up: bool) -> int | None:
    total = x.const
    for atom, c in x.terms:
        bounds = env.get(atom.name) if isinstance(atom, Var) else None
        end = None if bounds is None else bounds[1] if (c > 0) == up else bounds[0]
        if end is None or end.terms:
            break
        total += c * end.const
    else:
        return total  # the usual case: variables of constant ranges
    if sum(isinstance(atom, MinMax) for atom, _ in x.terms) > _JOINT_MINMAX:
        return _separate_bound(x, env, up)
    minmaxes = [(n, atom, c) for n, (atom, c) in enumerate(x.terms) if isinstance(atom, MinMax)]
    if minmaxes:
        joint = corner_bound(x, up, lambda y, end: _int_bound(y, env, end))
        if joint is not None and joint[1]:
            return joint[0]
        others = _case_bound(x, minmaxes, env, up)
        return others if joint is None else _best([others, joint[0]], up)
    best = _one_bound(x, env, up)
    if any(isinstance(a, FloorDiv | Mod) for a, _ in x.terms):
        best = _best([best, _relaxed_bound(x, env, up)], up)
    return best


def _case_bound(x: Index, minmaxes: list[tuple[int, MinMax, int]], env: Env, up: bool) -> int | None:
    """Bound a sum with minima and maxima case by case."""
    # max(a, b) + r is bounded above by the larger of the sums' bounds, below by each of them; taking the
    # cases of those that need all first loses nothing, while of the others only the best bound is kept
    every = {n: ((atom.op == "max") == (c > 0)) == up for n, atom, c in minmaxes}
    n, atom, c = next((m for m in minmaxes if every[m[0]]), minmaxes[0])
    rest = Index(x.const, x.terms[:n] + x.terms[n + 1 :])
    values = [_int_bound(rest + a * c, env, up) for a in atom.args]
    if every[n]:
        return None if None in values else _pick(values, up)
    return _best(values, up)


def _separate_bound(x: Index, env: Env, up: bool) -> int | None:
    """Bound every minimum and maximum by itself, and the rest together: taking all cases is exponential."""
    total = _int_bound(Index(x.const, tuple(t for t in x.terms if not isinstance(t[0], MinMax))), env, up)
    for atom, c in x.terms:
        if isinstance(atom, MinMax) and total is not None:
            one = _int_bound(Index(0, ((atom, c),)), env, up)
            total = None if one is None else total + one
    return total


def _pick(values: list[int | None], up: bool) -> int | None:
    known = [v for v in values if v is not None]
    if not known:
        return None
    return max(known) if up else min(known)


def _one_bound(x: Index, env: Env, up: bool) -> int | None:
    bound = _eliminate(x, env, None, up)
    if bound is None:
        return None
    if any(isinstance(a, MinMax) for a, _ in bound.terms):
        return _int_bound(bound, {}, up)
    best = _params_bound(bound, up)
    if bound is not x and any(isinstance(a, FloorDiv | Mod) for a, _ in bound.terms):
        # the same parameter in two terms, one of them a division: n - 4*((n + 3)//4) + 3 >= 0
        best = _best([best, _relaxed_bound(bound, {}, up)], up)
    return best


def _best(values: list[int | None], up: bool) -> int | None:
    """The tightest of several bounds of one thing."""
    return _pick(values, not up)


def _params_bound(x: Index, up: bool) -> int | None:
    """The bound over all values of the parameters, each at its extreme in every term on its own."""
    bound: Index | None = x
    if any(isinstance(a, Opaque) for a, _ in x.terms):
        bound = Index(x.const)
        for atom, c in x.terms:
            end = _of_type(atom, up if c > 0 else not up) if isinstance(atom, Opaque) else index(atom)
            if end is None:
                return None
            bound = bound + end * c
    for p in _params(x):
        assert bound is not None
        bound = _replace(bound, p.name, Index(-(-p.lo // p.multiple_of) * p.multiple_of), Index(p.hi), up)
        if bound is None:
            return None
    if bound is not None and not bound.terms:
        return bound.const
    # leftovers: divisions of unbounded things
    return None


def _params(x: Index) -> list[Param]:
    out: dict[Param, None] = {}
    for atom, _ in x.terms:
        match atom:
            case Param():
                out[atom] = None
            case FloorDiv() | Mod():
                out.update(dict.fromkeys(_params(atom.arg)))
            case MinMax():
                for a in atom.args:
                    out.update(dict.fromkeys(_params(a)))
            case _:
                pass
    return list(out)


def _relaxed_bound(x: Index, env: Env, up: bool) -> int | None:
    """Bound divisions by their real values, so that the same variable in two terms cancels."""
    scale = 1
    for atom, _ in x.terms:
        if isinstance(atom, FloorDiv):
            scale = lcm(scale, atom.divisor)
    total = Index(x.const * scale)
    for atom, c in x.terms:
        match atom:
            case FloorDiv(arg, d):
                # d * floor(a / d) lies in [a - (d - 1), a]
                slack = 0 if (c > 0) == up else -(d - 1)
                total = total + (arg + slack) * (c * (scale // d))
            case Mod(arg, d):
                r = _int_bound(arg, env, True), _int_bound(arg, env, False)
                if r[0] is not None and r[1] is not None and r[0] // d == r[1] // d:
                    total = total + (arg - (r[0] // d) * d) * (c * scale)
                else:
                    total = total + ((d - 1) if (c > 0) == up else 0) * (c * scale)
            case _:
                total = total + Index(0, ((atom, c * scale),))
    bound = _int_bound(total, env, up)
    if bound is None:
        return None
    return bound // scale if up else -(-bound // scale)


def prove_ge0(x: Index, env: Env) -> bool:
    """Whether ``x >= 0`` is shown for all values in the environment."""
    low = int_lower(x, env)
    return low is not None and low >= 0


def prove_lt(a: Index, b: Index, env: Env) -> bool:
    """Whether ``a < b`` is shown for all values in the environment."""
    return prove_ge0(b - a - 1, env)


def prove_pred(pred: Pred, env: Env) -> bool:
    """Whether all conditions are shown to hold always."""
    for c in pred:
        if c.index is None:
            return False
        if c.op == "ge" and not prove_ge0(c.index, env):
            return False
        if c.op == "eq" and not (prove_ge0(c.index, env) and prove_ge0(-c.index, env)):
            return False
    return True


def int_range(x: Index, env: Env) -> tuple[int | None, int | None]:
    """Lower and upper integer bounds, ``None`` where unknown."""
    return int_lower(x, env), int_upper(x, env)


def simplify(x: Index, env: Env) -> Index:
    """Remove divisions, remainders, minima and maxima that the ranges of the variables decide."""
    if not any(isinstance(a, FloorDiv | Mod | MinMax) for a, _ in x.terms):
        return x
    out = Index(x.const)
    plain: list[tuple[Atom, int]] = []
    for atom, c in x.terms:
        match atom:
            case FloorDiv(arg, d):
                out = out + _simplify_div(simplify(arg, env), d, env) * c
            case Mod(arg, d):
                out = out + _simplify_mod(simplify(arg, env), d, env) * c
            case MinMax(op, args):
                out = out + _simplify_minmax(op, [simplify(a, env) for a in args], env) * c
            case _:
                plain.append((atom, c))
    return out + linear(0, plain)


def _split_small(x: Index, d: int, env: Env) -> tuple[Index, int] | None:
    """``(y, g)`` with ``x = g*y + s`` and ``0 <= s < g``, ``g`` dividing ``d``, ``g > 1``."""
    coefs = sorted({abs(c) for _, c in x.terms})
    for start in range(1, len(coefs)):
        g = d
        for c in coefs[start:]:
            g = gcd(g, c)
        if g <= 1:
            continue
        big = tuple((a, c) for a, c in x.terms if c % g == 0)
        small = tuple((a, c) for a, c in x.terms if c % g)
        k, r = divmod(x.const, g)
        lo, hi = int_range(Index(r, small), env)
        if lo is not None and hi is not None and lo // g == hi // g:
            return Index(k + lo // g, tuple((a, c // g) for a, c in big)), g
    return None


def _simplify_div(x: Index, d: int, env: Env) -> Index:
    lo, hi = int_range(x, env)
    if lo is not None and hi is not None and lo // d == hi // d:
        return Index(lo // d)
    big = tuple((a, c) for a, c in x.terms if c % d == 0)
    if big:
        rest = Index(x.const % d, tuple((a, c) for a, c in x.terms if c % d))
        return Index(x.const // d, tuple((a, c // d) for a, c in big)) + (
            _simplify_div(rest, d, env) if rest.terms else floordiv(rest, d)
        )
    split = _split_small(x, d, env)
    if split is not None:
        y, g = split
        return floordiv(y, d // g) if d == g else _simplify_div(y, d // g, env)
    return floordiv(x, d)


def _simplify_mod(x: Index, d: int, env: Env) -> Index:
    x = Index(x.const % d, tuple((a, c) for a, c in x.terms if c % d))
    if not x.terms:
        return x
    lo, hi = int_range(x, env)
    if lo is not None and hi is not None and lo // d == hi // d:
        return x - (lo // d) * d
    split = _split_small(x, d, env)
    if split is not None:
        y, g = split
        return (x - y * g) + (_simplify_mod(y, d // g, env) * g if d > g else Index(0))
    return mod(x, d)


def _simplify_minmax(op: str, args: list[Index], env: Env) -> Index:
    if _cases(args, env) > _CASES:
        return imin(*args) if op == "min" else imax(*args)
    kept: list[Index] = []
    for n, a in enumerate(args):
        others = kept + args[n + 1 :]
        # drop an argument that another one always beats
        if not any(prove_ge0(a - b if op == "min" else b - a, env) for b in others):
            kept.append(a)
    return imin(*kept) if op == "min" else imax(*kept)


def _cases(args: list[Index], env: Env) -> int:
    """How many choices of arguments a bound of a difference would be sought over."""
    out = len(args)
    for low, high in env.values():
        out *= max(_most_arguments(low), _most_arguments(high))
    return out


def _most_arguments(x: Index) -> int:
    return max((len(atom.args) for atom, _ in x.terms if isinstance(atom, MinMax)), default=1)


def simplify_pred(pred: Pred, env: Env) -> Pred:
    """Drop conditions that are shown to hold always; the others stay as they are."""
    kept = [c for c in pred if not prove_pred((c,), env)]
    if len(kept) == len(pred):
        return pred
    return tuple(kept)


def simplify_expr(e: Expr, env: Env) -> Expr:
    """Simplify every index of an expression."""
    return map_indices(e, lambda i: simplify_deep(i, env))


def simplify_deep(x: Index, env: Env) -> Index:
    """:func:`simplify`, inside opaque expressions too."""
    new = simplify(x, env)
    return substitute_index(new, {}, lambda e: simplify_expr(e, env)) if is_opaque(new) else new


def is_opaque(x: Index) -> bool:
    """Whether a data-dependent value takes part in an index."""
    return any(
        isinstance(a, Opaque)
        or (isinstance(a, FloorDiv | Mod) and is_opaque(a.arg))
        or (isinstance(a, MinMax) and any(map(is_opaque, a.args)))
        for a, _ in x.terms
    )


@dataclass(frozen=True, slots=True)
class Span:
    """One dimension of a box: ``extent`` elements from ``lo`` on (``extent`` constant or over parameters)."""

    lo: Index
    extent: Index


def span(x: Index, env: Env, inner: Iterable[str]) -> Span | None:
    """The smallest known interval that holds ``x`` while the variables ``inner`` range over ``env``.

    ``lo`` mentions only the other variables; the extent is a constant or, for whole symbolic dimensions, an
    expression of parameters. ``None`` where no bound is known (unclamped data-dependent indices).
    """
    names = set(inner)
    x = simplify(x, env)
    lo, hi = lower(x, env, names), upper(x, env, names)
    if lo is None or hi is None:
        return None
    lo, hi = simplify(lo, env), simplify(hi, env)
    extent = _constant(hi - lo + 1, env)
    return None if extent is None else Span(lo, extent)


def union_span(spans: Iterable[Span], env: Env) -> Span | None:
    """An interval that holds all the given ones; ``None`` where no constant extent is known."""
    items = list(spans)
    if not items:
        return None
    if all(s == items[0] for s in items):
        return items[0]
    lo = simplify(_extreme([s.lo for s in items], imin), env)
    hi = simplify(_extreme([s.lo + s.extent for s in items], imax), env)
    extent = _constant(hi - lo, env)
    return None if extent is None else Span(lo, extent)


def _constant(extent: Index, env: Env) -> Index | None:
    """An upper bound without variables or minima: an integer, or for whole symbolic sizes of parameters."""
    if not extent.vars and not any(isinstance(a, MinMax) for a, _ in extent.terms):
        return extent
    bound = upper(extent, env)
    if (
        bound is not None
        and bound.terms
        and not bound.vars
        and not any(isinstance(a, MinMax) for a, _ in bound.terms)
    ):
        # a parameter is a better bound than the largest value it may have
        n = int_upper(extent, env)
        low = int_lower(bound, {})
        return Index(n) if n is not None and low is not None and n <= low else bound
    n = int_upper(extent, env)
    return None if n is None else Index(n)


def _extreme(values: list[Index], pick: Callable[..., Index]) -> Index:
    """The least or largest of indices; those that differ by a constant (a min() in them too) are compared."""
    if all(v.terms == values[0].terms for v in values):
        return Index(pick(*(v.const for v in values)).const, values[0].terms)
    return pick(*values)
