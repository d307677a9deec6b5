"""Values of indices and integer expressions over numpy columns, and the loads that a store executes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.ir import (
    Access,
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Index,
    Load,
    MinMax,
    Mod,
    OfIndex,
    Opaque,
    Param,
    Select,
    Store,
    Unary,
    Var,
    children,
)

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


def evaluate(x: Index, env: Mapping[str, Ints | int]) -> Ints | int:
    """The value of an index over columns; ``KeyError`` for data-dependent atoms and unknown names."""
    total: Ints | int = x.const
    for atom, c in x.terms:
        v: Ints | int
        match atom:
            case Var(name):
                v = env[name]
            case Param():
                v = env[atom.name]
            case FloorDiv(arg, d):
                v = evaluate(arg, env) // d
            case Mod(arg, d):
                v = evaluate(arg, env) % d
            case MinMax(op, args):
                v = evaluate(args[0], env)
                for a in args[1:]:
                    w = evaluate(a, env)
                    v = np.minimum(v, w) if op == "min" else np.maximum(v, w)
            case Opaque():
                raise KeyError(str(atom))
        total = total + (v if c == 1 else v * c)
    return total


def is_opaque(x: Index) -> bool:
    """Whether a data-dependent value takes part in an index."""
    for atom, _ in x.terms:
        match atom:
            case Opaque():
                return True
            case FloorDiv() | Mod():
                if is_opaque(atom.arg):
                    return True
            case MinMax():
                if any(map(is_opaque, atom.args)):
                    return True
            case _:
                pass
    return False


_COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def scalar(e: Expr, env: Mapping[str, Ints | int]) -> Ints | Bools | int | bool | None:
    """The value of an integer or boolean expression where no memory decides it, else ``None``."""
    match e:
        case Const() if isinstance(e.value, int):
            return e.value
        case OfIndex():
            return None if is_opaque(e.index) else evaluate(e.index, env)
        case Compare():
            a, b = scalar(e.a, env), scalar(e.b, env)
            if a is None or b is None:
                return None
            return _COMPARE[e.op](a, b)
        case Unary(op="not"):
            a = scalar(e.a, env)
            return None if a is None else np.logical_not(a)
        case Binary(op="and" | "or"):
            a, b = scalar(e.a, env), scalar(e.b, env)
            if a is None or b is None:
                return None
            return np.logical_and(a, b) if e.op == "and" else np.logical_or(a, b)
        case Binary(op="add" | "sub" | "mul") if e.dtype.is_integer:
            a, b = scalar(e.a, env), scalar(e.b, env)
            if a is None or b is None:
                return None
            return a + b if e.op == "add" else a - b if e.op == "sub" else a * b
        case Cast() if e.dtype.is_integer and e.mode == "wrap":
            return scalar(e.a, env)
        case _:
            return None


def store_loads(s: Store, env: Mapping[str, Ints | int], n: int) -> Iterator[tuple[Load, Bools | None]]:
    """Loads of a store in a fixed order, each with the instances that execute it (``None``: all)."""
    for w in s.writes:
        yield from _index_loads(w, env, n)
        yield from _expr_loads(w.value, None, env, n)


def _index_loads(
    w: Access | Load, env: Mapping[str, Ints | int], n: int
) -> Iterator[tuple[Load, Bools | None]]:
    for x in w.indices:
        yield from _opaque_loads(x, None, env, n)


def _opaque_loads(
    x: Index, mask: Bools | None, env: Mapping[str, Ints | int], n: int
) -> Iterator[tuple[Load, Bools | None]]:
    for atom, _ in x.terms:
        match atom:
            case Opaque(expr):
                yield from _expr_loads(expr, mask, env, n)
            case FloorDiv() | Mod():
                yield from _opaque_loads(atom.arg, mask, env, n)
            case MinMax():
                for a in atom.args:
                    yield from _opaque_loads(a, mask, env, n)
            case _:
                pass


def _expr_loads(
    e: Expr, mask: Bools | None, env: Mapping[str, Ints | int], n: int
) -> Iterator[tuple[Load, Bools | None]]:
    match e:
        case Load():
            for x in e.indices:
                yield from _opaque_loads(x, mask, env, n)
            yield e, mask
        case OfIndex():
            yield from _opaque_loads(e.index, mask, env, n)
        case Select():
            yield from _expr_loads(e.cond, mask, env, n)
            value = scalar(e.cond, env)
            if value is None:
                yield from _expr_loads(e.a, mask, env, n)
                yield from _expr_loads(e.b, mask, env, n)
            else:
                chosen = np.broadcast_to(np.asarray(value, np.bool_), (n,))
                yield from _expr_loads(e.a, chosen if mask is None else mask & chosen, env, n)
                yield from _expr_loads(e.b, ~chosen if mask is None else mask & ~chosen, env, n)
        case _:
            for k in children(e):
                yield from _expr_loads(k, mask, env, n)
