"""Sums of products by matrix multiplication: the fast way of the evaluator."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.analysis import two_factors
from tilewright.ir import Access, Expr
from tilewright.lang.evaluation.domains import Array, Box, view
from tilewright.lang.evaluation.expressions import Evaluator, Memory

#: Elements of one operand that are copied at once (an unfolded image).
OPERAND_LIMIT: Final = 1 << 24
#: Boxes smaller than this are not worth the rearranging.
SMALLEST: Final = 1 << 10


def contract(target: Access, value: Expr, box: Box, red: tuple[int, ...], memory: Memory) -> bool:
    """Add ``sum over red of a * b`` to the target; ``False`` where that is not its form."""
    factors = two_factors(value)
    if factors is None or box.size < SMALLEST:
        return False
    if not value.dtype.is_float or value.dtype.bits < 32:
        return False
    used = [_dims(f, box) for f in factors]
    if not any(used[0] & used[1] & set(red)):
        return False
    par = [n for n in range(len(box.names)) if n not in red]
    if not set(par) <= used[0] | used[1]:
        return False
    # the parallel dimension that both or the larger operand has is split until the operand fits
    for part in _parts(box, par, used):
        ev = Evaluator(memory, part)
        (a, ma), (b, mb) = map(ev.value, factors)
        outer = Box(tuple(part.names[n] for n in par), tuple(part.ranges[n] for n in par), part.params)
        arrays = [(memory.arrays[target.buffer], _multiply(a, b, part, par, red))]
        if memory.magnitudes is not None and ma is not None and mb is not None:
            arrays.append((memory.magnitudes[target.buffer], _multiply(ma, mb, part, par, red)))
        for array, product in arrays:
            out = view(array, target.indices, outer)
            if out is None or out.shape != outer.shape:
                return False
            out += product
    return True


def _dims(e: Expr, box: Box) -> set[int]:
    return {n for n, name in enumerate(box.names) if name in e.vars}


def _parts(box: Box, par: list[int], used: list[set[int]]) -> list[Box]:
    parts = [box]
    for dims in used:
        for at in par:
            if at not in dims:
                continue
            size = 1
            for n in dims:
                size *= parts[0].shape[n]
            if size <= OPERAND_LIMIT:
                break
            inner = max(1, size // max(1, parts[0].shape[at]))
            limit = max(1, OPERAND_LIMIT // inner)
            parts = [
                p.narrowed(at, s, min(p.ranges[at][1], s + limit))
                for p in parts
                for s in range(p.ranges[at][0], p.ranges[at][1], limit)
            ]
    return parts


def _multiply(a: Array, b: Array, box: Box, par: list[int], red: tuple[int, ...]) -> Array:
    """``sum over red of a * b`` with one dimension for each of ``par``."""
    rank = len(box.names)
    a = a.reshape([1] * (rank - a.ndim) + list(a.shape))
    b = b.reshape([1] * (rank - b.ndim) + list(b.shape))
    has_a, has_b = _present(a, box), _present(b, box)
    # a reduction that only one side knows is a sum of that side, or a factor where none does
    only_a = tuple(n for n in red if n in has_a and n not in has_b)
    only_b = tuple(n for n in red if n in has_b and n not in has_a)
    if only_a:
        a = a.sum(axis=only_a, keepdims=True)
    if only_b:
        b = b.sum(axis=only_b, keepdims=True)
    factor = 1
    for n in red:
        if n not in has_a and n not in has_b:
            factor *= box.shape[n]
    batch = [n for n in par if n in has_a and n in has_b]
    rows = [n for n in par if n in has_a and n not in has_b]
    cols = [n for n in par if n not in has_a]
    inner = [n for n in red if n in has_a and n in has_b]
    left = _matrix(a, batch, rows, inner, box)
    right = _matrix(b, batch, inner, cols, box)
    product: npt.NDArray[Any] = np.matmul(left, right)
    if factor != 1:
        product = product * np.asarray(factor, product.dtype)
    order = [*batch, *rows, *cols]
    shaped = product.reshape([box.shape[n] for n in order])
    return shaped.transpose([order.index(n) for n in par])


def _present(a: Array, box: Box) -> set[int]:
    """Dimensions along which an operand has all its values (one of extent 1 counts as absent)."""
    return {n for n in range(len(box.names)) if a.shape[n] == box.shape[n] and box.shape[n] > 1}


def _matrix(a: Array, batch: list[int], rows: list[int], cols: list[int], box: Box) -> Array:
    rest = [n for n in range(a.ndim) if n not in batch and n not in rows and n not in cols]
    moved = a.transpose([*batch, *rows, *cols, *rest])

    def extent(dims: list[int]) -> int:
        n = 1
        for d in dims:
            n *= box.shape[d]
        return n

    batched = moved.shape[: len(batch)]
    # absent dimensions of `cols` (extent 1 in the box) do not change the size
    return moved.reshape((*batched, extent(rows), extent(cols)))
