"""Boxes of iterations and the elements of arrays that affine and other indices touch in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from tilewright import ir
from tilewright.ir import Expr, Index

Array: TypeAlias = npt.NDArray[Any]
Opaque: TypeAlias = Callable[[Expr], Array]


class OutOfBoundsError(Exception):
    """An access outside of its array; the evaluator turns it into an error at the stage's line."""


@dataclass(frozen=True, slots=True)
class Box:
    """Iterators with their half-open ranges; arrays over it have one dimension an iterator, in this order."""

    names: tuple[str, ...]
    ranges: tuple[tuple[int, int], ...]
    params: Mapping[str, int]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each iterator."""
        return tuple(max(0, hi - lo) for lo, hi in self.ranges)

    @property
    def size(self) -> int:
        """Number of points."""
        n = 1
        for s in self.shape:
            n *= s
        return n

    def grid(self, name: str) -> Array:
        """The values of an iterator, along its dimension."""
        at = self.names.index(name)
        lo, hi = self.ranges[at]
        return np.arange(lo, hi, dtype=np.int64).reshape(
            [-1 if n == at else 1 for n in range(len(self.names))]
        )

    def narrowed(self, at: int, lo: int, hi: int) -> Box:
        """The box with another range of its iterator number ``at``."""
        return replace(self, ranges=(*self.ranges[:at], (lo, hi), *self.ranges[at + 1 :]))

    def chunks(self, limit: int, order: tuple[int, ...]) -> Iterator[Box]:
        """Boxes of at most ``limit`` points (or one) that make up this one, split along ``order`` first."""
        if self.size <= limit or not order:
            yield self
            return
        at, rest = order[0], order[1:]
        lo, hi = self.ranges[at]
        inner = max(1, self.size // max(1, hi - lo))
        step = max(1, limit // inner)
        for start in range(lo, hi, step):
            yield from self.narrowed(at, start, min(hi, start + step)).chunks(limit, rest)


def values_of(x: Index, box: Box, opaque: Opaque) -> Array:
    """The values of an index over a box (broadcastable)."""
    total: Array = np.asarray(x.const, np.int64)
    for atom, c in x.terms:
        match atom:
            case ir.Var(name):
                v = box.grid(name)
            case ir.Param():
                v = np.asarray(box.params[atom.name], np.int64)
            case ir.FloorDiv(arg, d):
                v = np.floor_divide(values_of(arg, box, opaque), d)
            case ir.Mod(arg, d):
                v = np.mod(values_of(arg, box, opaque), d)
            case ir.MinMax(op, args):
                parts = [values_of(a, box, opaque) for a in args]
                v = parts[0]
                for p in parts[1:]:
                    v = np.minimum(v, p) if op == "min" else np.maximum(v, p)
            case ir.Opaque(expr):
                v = np.asarray(opaque(expr), np.int64)
        total = total + v * c
    return total


def _affine(x: Index, box: Box) -> tuple[int, list[tuple[int, int]]] | None:
    """``(value at the box's first point, [(dimension, coefficient)])`` of a purely affine index."""
    const, coefs = x.const, []
    for atom, c in x.terms:
        match atom:
            case ir.Var(name):
                at = box.names.index(name)
                const += c * box.ranges[at][0]
                coefs.append((at, c))
            case ir.Param():
                const += c * box.params[atom.name]
            case _:
                return None
    return const, coefs


def view(array: Array, indices: tuple[Index, ...], box: Box) -> Array | None:
    """A strided view with the elements that affine indices touch; ``None`` where that is not one.

    Dimensions of iterators that do not occur have extent 1.
    """
    sizes = box.shape
    if 0 in sizes:
        return None
    start: list[int] = []
    steps = [0] * len(sizes)
    used = [False] * len(sizes)
    for d, x in enumerate(indices):
        found = _affine(x, box)
        if found is None:
            return None
        first, coefs = found
        lo = hi = first
        for at, c in coefs:
            reach = c * (sizes[at] - 1)
            lo, hi = lo + min(reach, 0), hi + max(reach, 0)
            steps[at] += c * array.strides[d]
            used[at] = True
        if lo < 0 or hi >= array.shape[d]:
            return None
        start.append(first)
    # the ellipsis keeps a 0-d array an array
    corner: tuple[Any, ...] = (*(slice(s, None) for s in start), ...)
    origin = array[corner]
    shape = [n if u else 1 for n, u in zip(sizes, used, strict=True)]
    # numpy knows no strides of some element types that are not its own
    raw = origin.view(np.uint8) if array.itemsize == 1 else origin
    return as_strided(raw, shape, steps).view(array.dtype)


def positions(
    array: Array, indices: tuple[Index, ...], box: Box, mask: Array | None, opaque: Opaque
) -> tuple[Array, ...]:
    """Index arrays for ``array[…]``, clipped into bounds.

    Raises OutOfBoundsError where the mask holds at a point that needs that.
    """
    out = []
    for d, x in enumerate(indices):
        v = values_of(x, box, opaque)
        n = array.shape[d]
        outside = (v < 0) | (v >= n)
        if np.any(outside):
            bad = np.broadcast_to(outside if mask is None else outside & mask, box.shape)
            if np.any(bad):
                point = tuple(int(p) for p in np.argwhere(bad)[0])
                where = ", ".join(
                    f"{name}={lo + p}" for name, (lo, _), p in zip(box.names, box.ranges, point, strict=True)
                )
                value = int(np.broadcast_to(v, box.shape)[point])
                raise OutOfBoundsError(f"index {d} ({x}) is {value} at {where}; the extent is {n}")
            v = np.clip(v, 0, max(n - 1, 0))
        out.append(v)
    return tuple(out)
