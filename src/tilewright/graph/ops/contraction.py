"""Sums of products: MatMul, Gemm, Einsum, and their integer forms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tilewright import lang
from tilewright.graph.operand import At, Ix, Operand, Place, compute
from tilewright.graph.ops.common import (
    Scalar,
    broadcast_shape,
    cast,
    convert_tensor,
    is_float,
    number,
    read,
    stem,
    wide,
)
from tilewright.graph.ops.quantisation import requantised, shifted
from tilewright.graph.ops.reduction import as_dtype
from tilewright.graph.registry import Context, Kind, operator


def matmul(ctx: Context, a: Operand, b: Operand, inner: str) -> Operand:
    """Numpy's matmul of operands converted to `inner`, batch axes broadcast, vectors allowed."""
    ctx.require(len(a.shape) > 0 and len(b.shape) > 0, "a matrix product of a scalar")
    rows, columns = a.shape[-2:-1], b.shape[-1:] if len(b.shape) > 1 else ()
    inner_a, inner_b = a.shape[-1], b.shape[-2] if len(b.shape) > 1 else b.shape[0]
    ctx.require(
        ctx.agree(inner_a, inner_b),
        f"{list(a.shape)} and {list(b.shape)} cannot be multiplied: {inner_a} != {inner_b}",
    )
    batch = broadcast_shape(ctx, a.shape[:-2], b.shape[:-2])
    k = lang.reduce_axis(inner_a, "k")

    def of(*index: Ix) -> Scalar:
        outer = index[: len(batch)]
        rest = index[len(batch) :]
        left = (*_batch(outer, a.shape[:-2]), *rest[: len(rows)], k)
        right = (*_batch(outer, b.shape[:-2]), k, *rest[len(rows) :])
        return lang.sum(cast(a[left], a.dtype, inner) * cast(b[right], b.dtype, inner), axis=k)

    axes = (*(f"b{at}" for at in range(len(batch))), *("i" for _ in rows), *("j" for _ in columns))
    return compute((*batch, *rows, *columns), of, name=stem(ctx), axes=axes)


def _batch(index: Sequence[At], shape: Sequence[int]) -> Place:
    skip = len(index) - len(shape)
    return tuple(0 if size == 1 else at for size, at in zip(shape, index[skip:], strict=True))


@operator("MatMul", kind=Kind.CONTRACTION)
def matrix_product(ctx: Context, a: Operand, b: Operand) -> Operand:
    """A (batched) matrix product."""
    ctx.require(a.dtype == b.dtype, f"its inputs have the dtypes {a.dtype} and {b.dtype}")
    return as_dtype(ctx, matmul(ctx, a, b, wide(a.dtype)), a.dtype)


@operator("MatMulInteger", kind=Kind.CONTRACTION)
def integer_matrix_product(
    ctx: Context, a: Operand, b: Operand, a_zero: Operand | None = None, b_zero: Operand | None = None
) -> Operand:
    """(a - its zero point) times (b - its zero point) in i32; zero points by row of a, by column of b."""
    left = shifted(ctx, a, a_zero, -2, "a")
    right = shifted(ctx, b, b_zero, -1, "b")
    return matmul(ctx, left, right, "i32")


@operator("QLinearMatMul", kind=Kind.CONTRACTION)
def quantised_matrix_product(
    ctx: Context,
    a: Operand,
    a_scale: Operand,
    a_zero: Operand,
    b: Operand,
    b_scale: Operand,
    b_zero: Operand,
    y_scale: Operand,
    y_zero: Operand,
) -> Operand:
    """A product of quantised matrices, its result quantised."""
    left, right = shifted(ctx, a, a_zero, -2, "a"), shifted(ctx, b, b_zero, -1, "b")
    total = matmul(ctx, left, right, "i32")
    return requantised(ctx, total, (a_scale, b_scale, y_scale), y_zero, len(total.shape) - 1)


@operator("Gemm", kind=Kind.CONTRACTION)
def gemm(ctx: Context, a: Operand, b: Operand, c: Operand | None = None) -> Operand:
    """Alpha op(a) op(b) + beta c, op the transposition where the attributes ask for it."""
    ctx.require(len(a.shape) == 2 and len(b.shape) == 2, "Gemm multiplies two matrices")
    flip_a, flip_b = ctx.flag("transA", False), ctx.flag("transB", False)
    rows, inner_a = reversed(a.shape) if flip_a else a.shape
    inner_b, columns = reversed(b.shape) if flip_b else b.shape
    ctx.require(
        ctx.agree(inner_a, inner_b),
        f"{list(a.shape)} and {list(b.shape)} cannot be multiplied: {inner_a} != {inner_b}",
    )
    k = lang.reduce_axis(inner_a, "k")
    dtype, inner = a.dtype, wide(a.dtype)

    def product(i: Ix, j: Ix) -> Scalar:
        left = a[(k, i) if flip_a else (i, k)]
        right = b[(j, k) if flip_b else (k, j)]
        return lang.sum(cast(left, dtype, inner) * cast(right, dtype, inner), axis=k)

    total = compute((rows, columns), product, name=stem(ctx))
    alpha, beta = ctx.real("alpha", 1.0), ctx.real("beta", 1.0)
    if c is None or beta == 0.0:
        if alpha == 1.0 and inner == dtype:
            return total
        return compute(
            total.shape,
            lambda *i: cast(_scaled(total[i], alpha, inner), inner, dtype),
            name=f"{stem(ctx)}_scaled",
        )
    shape = broadcast_shape(ctx, total.shape, c.shape)
    ctx.require(
        shape == total.shape, f"its third input {list(c.shape)} does not broadcast to {list(total.shape)}"
    )

    def of(*i: Ix) -> Scalar:
        added = _scaled(cast(read(c, i), dtype, inner), beta, inner)
        return cast(_scaled(total[i], alpha, inner) + added, inner, dtype)

    return compute(shape, of, name=f"{stem(ctx)}_bias")


def _scaled(value: Scalar, factor: float, dtype: str) -> Scalar:
    if factor == 1.0:
        return value
    if not is_float(dtype):
        return lang.cast(lang.cast(value, "f64") * number(factor, "f64"), dtype)
    return value * number(factor, dtype)


@operator("Einsum", kind=Kind.CONTRACTION)
def einsum(ctx: Context, first: Operand, *others: Operand) -> Operand:
    """A sum of products in Einstein's notation, ellipses included."""
    xs = (first, *others)
    inputs, output = _equation(ctx, [len(x.shape) for x in xs])
    sizes: dict[str, int] = {}
    for letters, x in zip(inputs, xs, strict=True):
        for letter, size in zip(letters, x.shape, strict=True):
            known = sizes.get(letter, 1)
            ctx.require(
                known == 1 or size == 1 or ctx.agree(known, size),
                f"the index {letter} has the sizes {known} and {size}",
            )
            sizes[letter] = size if known == 1 else known
    summed = {letter: lang.reduce_axis(sizes[letter], letter) for letter in sizes if letter not in output}
    dtype, inner = xs[0].dtype, wide(xs[0].dtype)
    wider = [convert_tensor(ctx, x, inner) for x in xs]

    def of(*index: Ix) -> Scalar:
        places: dict[str, At] = {**summed, **dict(zip(output, index, strict=True))}
        factors = [
            x[
                tuple(
                    0 if size == 1 else places[letter] for letter, size in zip(letters, x.shape, strict=True)
                )
            ]
            for letters, x in zip(inputs, wider, strict=True)
        ]
        product = reduce(lambda p, q: p * q, factors)
        return lang.sum(product, axis=list(summed.values())) if summed else product

    total = compute([sizes[letter] for letter in output], of, name=stem(ctx))
    return as_dtype(ctx, total, dtype)


def _equation(ctx: Context, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each input and of the output. An ellipsis becomes the letters A, B, ... for its axes."""
    text = ctx.text("equation").replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    ctx.require(
        len(terms) == len(ranks), f"the equation {text!r} is for {len(terms)} inputs, not {len(ranks)}"
    )
    hidden = 0
    inputs: list[str] = []
    for term, rank in zip(terms, ranks, strict=True):
        named = term.replace("...", "")
        legal = all(letter.isascii() and letter.isalpha() for letter in named) and term.count("...") <= 1
        ctx.require(legal, f"the equation {text!r} is not well formed")
        count = rank - len(named)
        fits = count == 0 or (count > 0 and "..." in term)
        ctx.require(fits, f"the term {term!r} of the equation does not have {rank} axes")
        hidden = max(hidden, count)
        # Axes of ellipses align at the right: the last one is always the digit 0.
        inputs.append(term.replace("...", "".join(str(at) for at in reversed(range(count)))))
    ellipsis = "".join(str(at) for at in reversed(range(hidden)))
    if arrow:
        output = right.replace("...", ellipsis)
    else:
        letters = left.replace(",", "").replace(".", "")
        output = ellipsis + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    known = set("".join(inputs))
    valid = len(set(output)) == len(output) and all(letter in known for letter in output)
    ctx.require(valid and hidden < 10, f"the equation {text!r} is not well formed")
    return inputs, output
