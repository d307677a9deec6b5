"""Scalar expressions over a box, as numpy arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import ir
from tilewright.ir import DType, Expr, Index, Load, Pred
from tilewright.lang.evaluation import magnitude, scalars
from tilewright.lang.evaluation.domains import Array, Box, positions, values_of, view


@dataclass(frozen=True, slots=True)
class Memory:
    """Arrays of the buffers by name; ``magnitudes`` beside them where those are wanted.

    ``wide`` holds every float in double precision, but for small ones, which are as exact as integers.
    """

    arrays: dict[str, Array]
    magnitudes: dict[str, Array] | None
    wide: bool

    def numpy(self, dtype: DType) -> np.dtype[Any]:
        """The numpy type that holds elements of ``dtype``."""
        return np.dtype(np.float64) if self.wide and dtype.is_float and not dtype.small else dtype.numpy


#: A value over a box (broadcastable to it) and its magnitude where wanted.
Value = tuple[Array, "Array | None"]


class Evaluator:
    """Evaluates expressions over one box; ``mask`` arguments say where the result is looked at."""

    __slots__ = ("box", "cache", "memory")

    def __init__(self, memory: Memory, box: Box) -> None:
        self.memory = memory
        self.box = box
        self.cache: dict[int, tuple[Expr, Value]] = {}

    def opaque(self, mask: Array | None) -> Any:
        """Evaluation of the expressions inside opaque indices."""
        return lambda e: self.value(e, mask)[0]

    def index(self, x: Index, mask: Array | None) -> Array:
        """The values of an index."""
        return values_of(x, self.box, self.opaque(mask))

    def pred(self, p: Pred, mask: Array | None) -> Array | None:
        """Where all conditions hold; ``None`` for everywhere."""
        out = mask
        for c in p:
            if c.index is not None:
                x = self.index(c.index, out)
                here = x >= 0 if c.op == "ge" else x == 0
            else:
                assert c.expr is not None
                here = self.value(c.expr, out)[0]
            out = here if out is None else out & here
        return out

    def load(self, e: Load, mask: Array | None) -> Value:
        """The elements of a load."""
        array = self.memory.arrays[e.buffer]
        mags = None if self.memory.magnitudes is None else self.memory.magnitudes[e.buffer]
        found = view(array, e.indices, self.box)
        if found is not None:
            return found, None if mags is None else view(mags, e.indices, self.box)
        if 0 in array.shape and self.box.size == 0:
            shape = tuple(min(1, n) for n in self.box.shape)
            return np.zeros(shape, array.dtype), None if mags is None else np.zeros(shape)
        at = positions(array, e.indices, self.box, mask, self.opaque(mask))
        if 0 in array.shape:
            return np.zeros((), array.dtype), None if mags is None else np.zeros(())
        return array[at], None if mags is None else mags[at]

    def value(self, e: Expr, mask: Array | None = None) -> Value:
        """The value of an expression; shared nodes are evaluated once where no mask restricts them."""
        if mask is not None or isinstance(e, ir.Const):
            return self._value(e, mask)
        hit = self.cache.get(id(e))
        if hit is None:
            hit = (e, self._value(e, mask))
            self.cache[id(e)] = hit
        return hit[1]

    def _value(self, e: Expr, mask: Array | None) -> Value:
        wanted = self.memory.magnitudes is not None
        match e:
            case ir.Const():
                v: Array = np.asarray(e.value, self.memory.numpy(e.dtype))
                # an infinity is exact: the start of a maximum
                size = abs(float(e.value)) if math.isfinite(e.value) else 0.0
                return v, np.asarray(size) if wanted else None
            case ir.OfIndex():
                v = self.index(e.index, mask).astype(self.memory.numpy(e.dtype))
                return v, np.abs(np.asarray(v, np.float64)) if wanted else None
            case Load():
                return self.load(e, mask)
            case ir.Unary():
                a, ma = self.value(e.a, mask)
                if e.op == "not" and e.dtype.kind != "bool":
                    return np.invert(a), ma
                return scalars.UNARY[e.op](a), ma
            case ir.Binary():
                a, ma = self.value(e.a, mask)
                b, mb = self.value(e.b, mask)
                v = np.asarray(scalars.BINARY[e.op](a, b))
                if ma is None or mb is None:
                    return v, None
                return v, magnitude.binary(e.op, a, ma, b, mb, v)
            case ir.Compare():
                v = np.asarray(scalars.COMPARE[e.op](self.value(e.a, mask)[0], self.value(e.b, mask)[0]))
                return v, v.astype(np.float64) if wanted else None
            case ir.Select():
                return self._select(e, mask)
            case ir.Cast():
                a, ma = self.value(e.a, mask)
                v = scalars.cast(a, e.a.dtype, e.dtype, e.mode, self.memory.numpy(e.dtype))
                exact = not (e.dtype.is_float and e.a.dtype.is_float) or e.dtype.small or e.a.dtype.small
                return v, None if ma is None else np.abs(v.astype(np.float64)) if exact else ma
            case ir.Call():
                parts = [self.value(a, mask) for a in e.args]
                args = [p[0] for p in parts]
                v = np.asarray(scalars.CALLS[e.fn](*args))
                mags = [p[1] for p in parts if p[1] is not None]
                return v, magnitude.call(e.fn, args, mags, v) if wanted else None

    def _select(self, e: ir.Select, mask: Array | None) -> Value:
        cond = self.value(e.cond, mask)[0]
        yes = cond if mask is None else cond & mask
        no = ~cond if mask is None else ~cond & mask
        a, ma = self.value(e.a, yes)
        b, mb = self.value(e.b, no)
        v: Array = np.where(cond, a, b)
        if ma is None or mb is None:
            return v, None
        return v, np.where(cond, ma, mb)


def bounds(it: ir.Iter, ranges: Mapping[str, tuple[int, int]], params: Mapping[str, int]) -> tuple[int, int]:
    """The hull of an iterator's range while outer iterators run over ``ranges``."""
    env = {n: (ir.Index(lo), ir.Index(hi - 1)) for n, (lo, hi) in ranges.items()}
    fixed = dict(params)
    lo = _extreme(it.lo, env, fixed, False)
    hi = _extreme(it.hi, env, fixed, True)
    return lo, hi


def _extreme(x: Index, env: Mapping[str, tuple[Index, Index]], params: Mapping[str, int], up: bool) -> int:
    if not x.vars:
        return ir.evaluate_index(x, params)
    bound = ir.upper(x, env) if up else ir.lower(x, env)
    if bound is None:
        raise ValueError(f"no bound is known for the range end {x}")
    return ir.evaluate_index(bound, params)
