"""What the definitions of operators share: broadcasting, axes, conversions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tilewright import lang
from tilewright.graph.operand import At, Ix, Operand, Place, compute
from tilewright.graph.registry import Context
from tilewright.ir import Size, dtype_of

Scalar: TypeAlias = lang.Scalar


def is_float(dtype: str) -> bool:
    """Whether the dtype is one of floating-point numbers."""
    return dtype_of(dtype).is_float


def is_signed(dtype: str) -> bool:
    """Whether values of the dtype can be negative."""
    return dtype_of(dtype).kind in ("float", "int")


def broadcast_shape(ctx: Context, *shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape under numpy's rules. Raises ModelError, naming the node, where there is none."""
    rank = max((len(shape) for shape in shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for at, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                fits = out[at] == 1 or ctx.agree(out[at], size)
                ctx.require(fits, f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast")
                out[at] = size
    return tuple(out)


def read(x: Operand, index: Sequence[At]) -> Scalar:
    """The element of `x` that broadcasts to `index`: axes are matched from the last, sizes of one repeat."""
    skip = len(index) - len(x.shape)
    return x[tuple(0 if size == 1 else at for size, at in zip(x.shape, index[skip:], strict=True))]


def elementwise(ctx: Context, fn: Callable[..., Scalar], *xs: Operand, dtype: str | None = None) -> Operand:
    """The tensor of `fn` applied to the elements of the broadcast operands."""
    shape = broadcast_shape(ctx, *(x.shape for x in xs))
    return compute(shape, lambda *i: fn(*(read(x, i) for x in xs)), name=stem(ctx), dtype=dtype)


def stem(ctx: Context) -> str:
    """The name of the stages that a node makes: its operator, never a name from the model."""
    return ctx.node.op.lower()


def number(value: float, dtype: str) -> Scalar:
    """A constant of the given dtype, or a size of a run as one."""
    if isinstance(value, Size):
        return lang.to_scalar(value, dtype)
    return lang.const(value if is_float(dtype) else int(value), dtype)


def share_of(count: int, dtype: str) -> Scalar:
    """What sums of so many elements are multiplied with for their mean; that of none is no number."""
    if isinstance(count, Size):
        return lang.const(1, dtype) / number(count, dtype)
    return number(1.0 / count if count else math.nan, dtype)


def cast(x: Scalar, source: str, target: str) -> Scalar:
    """Convert a scalar, or leave it alone."""
    return x if source == target else lang.cast(x, target)


def wide(dtype: str) -> str:
    """The dtype to accumulate in: sums of half-precision numbers are made in single precision."""
    return "f32" if dtype in ("f16", "bf16") else dtype


def widened(ctx: Context, x: Operand) -> Operand:
    """The operand in its dtype for accumulation."""
    return convert_tensor(ctx, x, wide(x.dtype))


def convert_tensor(ctx: Context, x: Operand, dtype: str) -> Operand:
    """The operand converted to another dtype; itself where it has it already."""
    if x.dtype == dtype:
        return x
    return compute(x.shape, lambda *i: lang.cast(x[i], dtype), name=f"{stem(ctx)}_cast")


def as_tensor(ctx: Context, x: Operand) -> Operand:
    """The operand as a tensor, copied if it is a literal."""
    if x.tensor is not None:
        return x
    return compute(x.shape, lambda *i: x[i], name=stem(ctx), dtype=x.dtype)


def size_of(shape: Sequence[int]) -> int:
    """The number of elements."""
    return math.prod(shape)


def linear_index(index: Sequence[At], shape: Sequence[int]) -> At:
    """The row-major position of an index."""
    position: At = 0
    for at, size in zip(index, shape, strict=True):
        if size != 1:
            position = _times(position, size) + at
    return position


def split_index(position: At, shape: Sequence[int]) -> Place:
    """The index of a row-major position."""
    parts: list[At] = []
    for at, size in reversed(list(enumerate(shape))):
        if size == 1:
            parts.append(0)
        elif at == 0:
            parts.append(position)
        else:
            quotient, rest = divided(position, size)
            parts.append(rest)
            position = quotient
    return tuple(reversed(parts))


#: Positions in memory are below this: 64 bits hold them, and their products with small sizes.
_LARGEST: Final = 1 << 40


def _times(position: At, size: int) -> At:
    """A position times a size; where that is a run's, as a number: no index has such products."""
    if not isinstance(size, Size) or not isinstance(position, lang.IndexExpr):
        return position * size
    made = lang.to_scalar(position, "i64") * lang.to_scalar(size, "i64")
    return lang.to_index(lang.clamp(made, 0, _LARGEST))


def divided(position: At, size: int) -> tuple[At, At]:
    """Quotient and remainder of a position by a size, as `_times`."""
    if not isinstance(size, Size) or not isinstance(position, lang.IndexExpr):
        return position // size, position % size
    x, n = lang.to_scalar(position, "i64"), lang.to_scalar(size, "i64")
    return lang.to_index(lang.clamp(x // n, 0, _LARGEST)), lang.to_index(lang.clamp(x % n, 0, size - 1))


def chosen(at: Ix, ends: Sequence[int], element: Callable[[int], Scalar]) -> Scalar:
    """`element(k)` for the first k whose end is beyond `at`, by a balanced tree of selections."""

    def among(low: int, high: int) -> Scalar:
        if high - low == 1:
            return element(low)
        middle = (low + high) // 2
        return lang.select(at < ends[middle - 1], among(low, middle), among(middle, high))

    return among(0, len(ends))


def insert_axes(index: Sequence[At], at: dict[int, At], rank: int) -> Place:
    """An index of `rank` axes: those in `at` as given there, the others taken from `index` in order."""
    rest = iter(index)
    return tuple(at[axis] if axis in at else next(rest) for axis in range(rank))
