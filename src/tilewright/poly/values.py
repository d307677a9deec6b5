"""Values of indices and integer expressions over numpy columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.ir import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Index,
    MinMax,
    Mod,
    OfIndex,
    Opaque,
    Param,
    Unary,
    Var,
    is_opaque,
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


_COMPARE: Final = {
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
            return evaluate(e.index, env) if e.dtype.holds_indices and not is_opaque(e.index) else None
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
        case Binary(op="add" | "sub" | "mul") if e.dtype.holds_indices:
            a, b = scalar(e.a, env), scalar(e.b, env)
            if a is None or b is None:
                return None
            return a + b if e.op == "add" else a - b if e.op == "sub" else a * b
        case Cast() if e.dtype.holds_indices and e.mode == "wrap":
            return scalar(e.a, env)
        case _:
            return None
