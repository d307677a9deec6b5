"""Products with constant matrices by seven products of quarters instead of eight (Strassen's method).

In Winograd's form (Strassen, "Gaussian elimination is not optimal", 1969; Winograd's variant in Higham,
"Accuracy and Stability of Numerical Algorithms", section 23.1) with 4 sums of quarters of the left matrix, 4
of the right one, and 7 additions of products. The right matrix, known when compiling, is stored in another
basis of as many elements: ``b11, b21, b22, b22 - b12 + b11``. In it the right operands of four products
are stored blocks, and those of the other three are differences of two. Those are made where they are
multiplied, in registers: nothing more is read or written for them.

The halves of the columns alternate by panels of ``width``: what a pair of panels needs lies together. Columns
that fill up the last pair are zeros, and left out of the result. The halves of the rows alternate likewise by
panels of ``height``: threads that share the rows have neighbouring ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from tilewright.analysis import reduction_of
from tilewright.ir import (
    CONST,
    F32,
    I64,
    LOCAL,
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    Index,
    Iter,
    Load,
    OfIndex,
    Program,
    Select,
    Stage,
    floordiv,
    index,
    mod,
    stmt_loads,
    store,
    substitute_index,
    var,
)

#: The right operands of the seven products: blocks of the right matrix in its basis, the second subtracted
#: from the first. The left ones are those of :func:`_left` of the same number.
PRODUCTS: Final[tuple[tuple[int, ...], ...]] = ((0,), (1,), (2,), (3, 1), (2, 3), (3,), (3, 0))
#: Those left operands that are quarters of the left matrix as it is, by row and column.
QUARTERS: Final = MappingProxyType({0: (0, 0), 1: (0, 1), 3: (1, 1)})
#: How many blocks the right matrix has in its basis.
BLOCKS: Final = 4


@dataclass(frozen=True, slots=True)
class ProductMatch:
    """Products ``C[m, n] = sum over k of data[m, k] * weights[k, n]`` with one constant matrix.

    ``m``, ``n`` and ``k`` are iterators of the stage, ``outer`` those that number the left matrices; its
    others have one iteration.
    """

    stage: Stage
    m: str
    n: str
    k: str
    data: Load
    weights: Load
    outer: tuple[str, ...] = ()

    def extent(self, name: str) -> int:
        """Extent of an iterator."""
        return self.stage.extent(name)

    @property
    def count(self) -> int:
        """How many left matrices there are."""
        return prod(map(self.extent, self.outer))

    def half(self, width: int) -> int:
        """Columns of half of the result, in whole panels of ``width``."""
        return -(-self.extent(self.n) // (2 * width)) * width


def match_product(program: Program, stage: Stage) -> ProductMatch | None:
    """The parts of a product of f32 matrices that divides into quarters, ``None`` for other stages.

    Rows and the reduction must be even; columns are filled up to a multiple of two panels of ``width``.
    """
    update = reduction_of(stage)
    pars = [it.name for it in stage.iters if it.kind == "par"]
    reds = [it.name for it in stage.iters if it.kind == "red"]
    if update is None or update.guard or len(reds) != 1 or len(pars) < 2:
        return None
    if not all(it.lo == Index(0) and it.extent.is_const for it in stage.iters):
        return None
    if [i.as_var() for i in update.write.indices] != pars or update.old.dtype != F32:
        return None
    found = update.loaded_factors
    constants = {b.name for b in program.inputs if b.scope == CONST and b.layout is None}
    if found is None:
        return None
    data, weights = found if found[1].buffer in constants else found[::-1]
    k, n = reds[0], pars[-1]
    uses = [ld for s in program.stages for ld in stmt_loads(s.body) if ld.buffer == weights.buffer]
    if weights.buffer not in constants or len(uses) != 1 or {data.dtype, weights.dtype} != {F32}:
        return None
    if sorted(i.as_var() or "" for i in weights.indices) != sorted((k, n)):
        return None
    size = {it.name: it.extent.as_int() for it in stage.iters}
    rows = tuple(name for name in pars[:-1] if size[name] > 1)
    if not rows or any(n in i.vars for i in data.indices) or size[rows[-1]] % 2 or size[k] % 2:
        return None
    return ProductMatch(stage, rows[-1], n, k, data, weights, rows[:-1])


def quarter_weights(
    match: ProductMatch, width: int, array: npt.NDArray[np.generic]
) -> npt.NDArray[np.float32]:
    """The right matrix in the method's basis: blocks ``(4, k/2, n/2)``, sums computed in f64."""
    return _in_basis(_by_columns(match, width, array), width)


def _by_columns(match: ProductMatch, width: int, array: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """The right matrix, its columns last, filled up with zeros to whole pairs of panels."""
    given = np.asarray(array, np.float32)
    given = given.T if match.weights.indices[0].as_var() == match.n else given
    more = 2 * match.half(width) - given.shape[1]
    return np.pad(given, ((0, 0), (0, more))) if more else given


def _in_basis(given: npt.NDArray[np.float32], width: int) -> npt.NDArray[np.float32]:
    depth, columns = given.shape
    parts = given.reshape(2, depth // 2, columns // (2 * width), 2, width)
    b11, b12, b21, b22 = (parts[row, :, :, side] for row in (0, 1) for side in (0, 1))
    out = np.empty((BLOCKS, *b11.shape), np.float32)
    out[0], out[1], out[2] = b11, b21, b22
    mixed = np.subtract(b22, b12, dtype=np.float64)
    out[3] = np.add(mixed, b11, out=mixed)
    return out.reshape(BLOCKS, depth // 2, columns // 2)


def strassen(
    program: Program, match: ProductMatch, width: int, weights: str, height: int, copies: bool
) -> Program:
    """The program with a product done by seven products of quarters.

    The constant input of the right matrix is replaced by the constant input ``weights``, which holds what
    :func:`quarter_weights` gives. ``height`` divides half of the rows. New stages are called after the
    product: ``_sums`` (sums of quarters of the left matrix, with ``copies`` also the quarters that are
    operands themselves) and ``_product1`` to ``_product7``; the product's own stage adds those up. Equal to
    the direct method in exact arithmetic; in f32 the error relative to the largest result about doubles.
    """
    name, source = match.stage.name, match.stage.source
    rows, columns, depth = match.extent(match.m) // 2, match.half(width), match.extent(match.k) // 2
    sums = f"{name}_sums"
    made_first = [number for number in range(len(PRODUCTS)) if copies or number not in QUARTERS]
    outer = _outer(match)
    around, extents = tuple(var(it.name) for it in outer), tuple(it.extent.as_int() for it in outer)
    inner: list[tuple[str, tuple[int, ...]]] = [(sums, (len(made_first), *extents, rows, depth))]
    stages = [_sums(match, sums, height, made_first)]
    i, j, k = var("i"), var("j"), var("k")
    for number, blocks in enumerate(PRODUCTS):
        made = f"{name}_product{number + 1}"
        inner.append((made, (*extents, rows, columns)))
        if number in made_first:
            a = Load(sums, (index(made_first.index(number)), *around, i, k), F32)
        else:
            a = _quarter(match, i, k, QUARTERS[number], height)
        b: Expr = Load(weights, (index(blocks[0]), k, j), F32)
        if len(blocks) > 1:
            b = Binary("sub", b, Load(weights, (index(blocks[1]), k, j), F32))
        pars = (Iter(axis, Index(0), index(extent), "par") for axis, extent in (("i", rows), ("j", columns)))
        iters, at = (*outer, *pars, Iter("k", Index(0), index(depth), "red")), (*around, i, j)
        body = store(made, at, Binary("add", Load(made, at, F32), Binary("mul", a, b)))
        stages.append(Stage(made, iters, body, store(made, at, Const(0.0, F32)), source))
    stages.append(_result(match, width, height))
    before = program.stages.index(match.stage)
    new = Buffer(weights, (index(BLOCKS), index(depth), index(columns)), F32, CONST)
    temps = [Buffer(buffer, tuple(map(index, shape)), F32, LOCAL) for buffer, shape in inner]
    return replace(
        program,
        inputs=tuple(new if b.name == match.weights.buffer else b for b in program.inputs),
        temps=(*program.temps, *temps),
        stages=(*program.stages[:before], *stages, *program.stages[before + 1 :]),
    )


def _outer(match: ProductMatch) -> tuple[Iter, ...]:
    """The axes of new stages that number the left matrices."""
    return tuple(
        Iter(f"o{n}", Index(0), index(match.extent(axis)), "par") for n, axis in enumerate(match.outer)
    )


def _quarter(match: ProductMatch, i: Index, k: Index, at: tuple[int, int], height: int) -> Load:
    """Element ``(i, k)`` of a quarter of the left matrix."""
    place = {it.name: Index(0) for it in match.stage.iters}
    place |= {axis: var(it.name) for axis, it in zip(match.outer, _outer(match), strict=True)}
    place[match.m] = floordiv(i, height) * (2 * height) + at[0] * height + mod(i, height)
    place[match.k] = k + at[1] * (match.extent(match.k) // 2)
    return Load(match.data.buffer, tuple(substitute_index(x, place) for x in match.data.indices), F32)


def _left(a11: Expr, a12: Expr, a21: Expr, a22: Expr) -> tuple[Expr, ...]:
    """The left operands of the seven products, from quarters of the left matrix."""
    first = Binary("add", a21, a22)
    second = Binary("sub", first, a11)
    return (a11, a12, Binary("sub", a12, second), a22, first, second, Binary("sub", a11, a21))


def _sums(match: ProductMatch, name: str, height: int, numbers: Sequence[int]) -> Stage:
    """The left operands of so many of the products."""
    x, i, k = var("x"), var("i"), var("k")
    rows, depth = match.extent(match.m) // 2, match.extent(match.k) // 2
    every = _left(*(_quarter(match, i, k, (r, c), height) for r in (0, 1) for c in (0, 1)))
    values = [every[number] for number in numbers]
    value = values[-1]
    for number in reversed(range(len(values) - 1)):
        value = Select(_equal(x, number), values[number], value)
    axes = (("x", len(values)), ("i", rows), ("k", depth))
    first, *others = (Iter(axis, Index(0), index(extent), "par") for axis, extent in axes)
    iters = (first, *_outer(match), *others)
    target = tuple(var(it.name) for it in iters)
    return Stage(name, iters, store(name, target, value), None, match.stage.source)


def _result(match: ProductMatch, width: int, height: int) -> Stage:
    m, n = var(match.m), var(match.n)
    row, column = floordiv(m, 2 * height) * height + mod(m, height), floordiv(n, 2 * width) * width
    here = (*map(var, match.outer), row, column + mod(n, width))
    p1, p2, p3, p4, p5, p6, p7 = (Load(f"{match.stage.name}_product{x}", here, F32) for x in range(1, 8))
    both = Binary("add", p1, p6)
    lower = Binary("add", both, p7)
    upper = Select(
        _equal(mod(floordiv(n, width), 2), 0),
        Binary("add", p1, p2),
        Binary("add", Binary("add", both, p5), p3),
    )
    below = Select(_equal(mod(floordiv(n, width), 2), 0), Binary("sub", lower, p4), Binary("add", lower, p5))
    value = Select(_equal(mod(floordiv(m, height), 2), 0), upper, below)
    iters = tuple(it for it in match.stage.iters if it.kind == "par")
    target = tuple(var(it.name) for it in iters)
    stage = match.stage
    return Stage(stage.name, iters, store(stage.writes[0], target, value), None, stage.source)


def _equal(x: Index, number: int) -> Expr:
    return Compare("eq", OfIndex(x, I64), OfIndex(index(number), I64))


#: Rows of the sample in which errors are measured: half of them of normal numbers, half of absolute values.
ROWS: Final = 16
#: Pairs of columns of that sample: those with the largest weights.
PAIRS: Final = 32


def strassen_error(match: ProductMatch, width: int, array: npt.NDArray[np.generic]) -> float:
    """``max|error| / max|result|`` of the method with the right matrix ``array``, in f32 as in kernels.

    The left matrix is random, the same in each call; the reference is the direct method in f64. NaN or
    infinite where the method leaves the range of f32.
    """
    with np.errstate(all="ignore"):
        given = _by_columns(match, width, array)
        parts = given.reshape(len(given), -1, 2, width)
        largest = np.maximum(given.max(axis=0), -given.min(axis=0)).reshape(-1, 2, width).max(axis=1).ravel()
        panel, column = np.divmod(np.argsort(-largest, kind="stable")[:PAIRS], width)
        b = _in_basis(np.hstack([parts[:, panel, side, column] for side in (0, 1)]), len(panel))
        depth = b.shape[1]
        x = np.random.default_rng(0).standard_normal((ROWS, 2 * depth), np.float32)
        x[1::2] = np.abs(x[1::2])
        a = x.reshape(2, ROWS // 2, 2, depth).transpose(0, 2, 1, 3)
        first = a[1, 0] + a[1, 1]
        second = first - a[0, 0]
        left = (a[0, 0], a[0, 1], a[0, 1] - second, a[1, 1], first, second, a[0, 0] - a[1, 0])
        made = [
            each @ (b[at[0]] - b[at[1]] if at[1:] else b[at[0]])
            for each, at in zip(left, PRODUCTS, strict=True)
        ]
        both = made[0] + made[5]
        lower = both + made[6]
        found = np.block([[made[0] + made[1], both + made[4] + made[2]], [lower - made[3], lower + made[4]]])
        b11, b21, b22, mixed = b.astype(np.float64)
        exact = x.astype(np.float64) @ np.block([[b11, b22 + b11 - mixed], [b21, b22]])
        error = np.abs(found - exact).max()
        return float(error / np.abs(exact).max()) if error != 0 else 0.0
