"""What a run computes of its sizes: ranges, filled tensors, and sizes as numbers."""

from __future__ import annotations

from tilewright import lang
from tilewright.graph.operand import Operand, compute
from tilewright.graph.ops.common import linear_index, number
from tilewright.graph.registry import OWN, Context, Kind, operator
from tilewright.ir import dtype_of, most


@operator("RunRange", kind=Kind.ELEMENTWISE, static=(0, 1, 2), domain=OWN)
def run_range(ctx: Context, start: Operand, limit: Operand, delta: Operand) -> Operand:
    """start, start + delta … before limit, where ends are sizes of a run."""
    first, end, step = (ctx.static(at).reshape(()).item() for at in range(3))
    ctx.require(bool(step != 0), "its step is zero")
    dtype = ctx.text("dtype")
    count = most(-((first - end) // step) if step > 0 else -((end - first) // -step), 0)

    def element(i: lang.IndexExpr) -> lang.Scalar:
        at = lang.to_scalar(i, dtype)
        return at * number(step, dtype) + number(first, dtype)

    return compute((count,), element, name="range", dtype=dtype)


@operator("RunFill", kind=Kind.ELEMENTWISE, static=(0,), domain=OWN)
def run_fill(ctx: Context, shape: Operand) -> Operand:
    """A tensor of one value, of a shape that only a run knows."""
    value = ctx.tensor("value")
    ctx.require(value.size == 1, "the attribute value must have one element")
    sizes, dtype = ctx.static_ints(0), dtype_of(value.dtype).name
    ctx.require(all(n >= 0 for n in sizes), f"the shape {list(map(str, sizes))} has a negative size")
    return compute(sizes, lambda *i: lang.const(value.reshape(()).item(), dtype), name="fill", dtype=dtype)


@operator("RunSizes", kind=Kind.ELEMENTWISE, domain=OWN)
def run_sizes(ctx: Context) -> Operand:
    """Sizes of a run as a tensor."""
    values, dtype = ctx.tensor("values"), ctx.text("dtype")
    every = values.reshape(-1).tolist()

    def element(*i: lang.IndexExpr) -> lang.Scalar:
        place = lang.to_scalar(linear_index(i, values.shape), "i64")
        made = number(every[-1], dtype)
        for at, value in enumerate(every[:-1]):
            made = lang.select(place == at, number(value, dtype), made)
        return made

    return compute(values.shape, element, name="sizes", dtype=dtype)
