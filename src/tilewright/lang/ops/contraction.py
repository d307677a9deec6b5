"""Matrix products, plain and batched."""

from __future__ import annotations

from tilewright.ir import DType
from tilewright.lang.axes import reduce_axis
from tilewright.lang.compute import compute
from tilewright.lang.conversions import dtype_from
from tilewright.lang.functions import cast
from tilewright.lang.ops.common import broadcast_indices, broadcast_shape, same
from tilewright.lang.ops.elementwise import elementwise
from tilewright.lang.reductions import sum as lang_sum
from tilewright.lang.source import problem
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import IndexExpr, Scalar


def matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    accumulate: DType | str | None = None,
    name: str | None = None,
) -> Tensor:
    """``a @ b`` by numpy's rules: matrices in the last two dimensions, those before broadcast.

    Vectors are allowed.     ``transpose_a`` and ``transpose_b`` read a matrix (not a vector) transposed.
    ``accumulate`` is the type of the sum, where that is not the operands' (``i32`` for bytes). One reduction
    stage over ``k``.

    Raises ProgramError where the inner extents differ or an operand is a scalar.
    """
    if a.rank == 0 or b.rank == 0:
        raise problem("a matrix product of a scalar", "multiply instead")
    rows, cols = a.rank > 1, b.rank > 1
    k_a = a.shape[-2] if transpose_a and rows else a.shape[-1]
    k_b = b.shape[-1] if transpose_b or not cols else b.shape[-2]
    if not same(k_a, k_b):
        raise problem(
            f"the matrix product of {a.label} and {b.label} sums over {k_a.index} and {k_b.index} elements",
            "the inner extents must agree",
        )
    batch = broadcast_shape([a.shape[:-2], b.shape[:-2]], "a matrix product")
    shape = list(batch)
    names = [f"b{n}" if len(batch) > 1 else "b" for n in range(len(batch))]
    if rows:
        shape.append(a.shape[-1] if transpose_a else a.shape[-2])
        names.append("i")
    if cols:
        shape.append(b.shape[-2] if transpose_b else b.shape[-1])
        names.append("j")
    k = reduce_axis(k_a, "k")
    wide = None if accumulate is None else dtype_from(accumulate)

    def element(*at: IndexExpr) -> Scalar:
        outer = at[: len(batch)]
        own = (at[len(batch)], k) if rows else (k,)
        other = (k, at[-1]) if cols else (k,)
        left = _operand(a, outer, own[::-1] if transpose_a and rows else own)
        right = _operand(b, outer, other[::-1] if transpose_b and cols else other)
        if wide is not None:
            left, right = cast(left, wide), cast(right, wide)
        return lang_sum(left * right, axis=k)

    return compute(tuple(shape), element, name, axes=names, hint="matmul")


def _operand(t: Tensor, outer: tuple[IndexExpr, ...], own: tuple[IndexExpr, ...]) -> Scalar:
    return t[(*broadcast_indices(t.shape[:-2], outer), *own)]


def dense(x: Tensor, weight: Tensor, bias: Tensor | None = None, name: str | None = None) -> Tensor:
    """``x @ weight.T + bias`` with ``weight[out, in]``."""
    y = matmul(x, weight, transpose_b=True, name=name if bias is None else None)
    return y if bias is None else elementwise(lambda v, c: v + c, y, bias, name=name, hint="dense")


def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """``alpha * a @ b + beta * c`` of matrices, ``c`` broadcast to the product's shape."""
    plain = c is None and alpha == 1.0
    y = matmul(a, b, transpose_a, transpose_b, name=name if plain else None)
    if plain:
        return y
    if c is None:
        return elementwise(lambda v: v * alpha, y, name=name, hint="gemm")
    return elementwise(
        lambda v, w: (v if alpha == 1.0 else v * alpha) + (w if beta == 1.0 else w * beta),
        y,
        c,
        name=name,
        hint="gemm",
    )
