"""Places of elements that are not zero, where only a run knows how many there are."""

from __future__ import annotations

from tilewright import lang
from tilewright.graph.operand import Ix, Operand, clamped, compute, index_value, updated
from tilewright.graph.ops.common import Scalar, number, stem
from tilewright.graph.registry import OWN, Context, Kind, integer_of, operator


@operator("PlacesOf", kind=Kind.OPAQUE, domain=OWN)
def places_of(ctx: Context, flags: Operand, before: Operand) -> Operand:
    """The places of the ones among flags; `before` counts those up to each place, itself included.

    The attribute `count` is how many there are.
    """
    (count,) = ctx.tensor("count").tolist()
    none = compute((count,), lambda i: number(0, "i64"), name=f"{stem(ctx)}_none", dtype="i64")

    def put(target: Operand, i: Ix) -> lang.Write:
        place = clamped(before[(i,)] - number(1, "i64"), count)
        return lang.write((place,), index_value(i, "i64"), flags[(i,)] != number(0, "i64"))

    return updated(none, flags.shape, put, stem(ctx))


@operator("Unravelled", kind=Kind.ELEMENTWISE, domain=OWN)
def unravelled(ctx: Context, places: Operand) -> Operand:
    """The coordinates of places in a tensor of the attribute `shape`: one row an axis."""
    shape = [integer_of(n) for n in ctx.tensor("shape").flat]

    def coordinate(axis: Ix, i: Ix) -> Scalar:
        at, rest = places[(i,)], places[(i,)]
        for n in range(len(shape) - 1, -1, -1):
            size = number(shape[n], "i64")
            digit = lang.rem(rest, size) if n else rest
            at = digit if n == len(shape) - 1 else lang.select(index_value(axis, "i64") == n, digit, at)
            rest = lang.truncdiv(rest, size)
        return at

    return compute((len(shape), places.shape[0]), coordinate, name=stem(ctx), dtype="i64")


@operator("Resized", kind=Kind.ELEMENTWISE, domain=OWN)
def resized(ctx: Context, x: Operand) -> Operand:
    """The same elements: each run checks that the attribute `shape` is that of the input."""
    shape = [integer_of(n) for n in ctx.tensor("shape").flat]

    def read(*at: Ix) -> Scalar:
        # as far as indices are concerned they may be unlike
        places = zip(at, shape, x.shape, strict=True)
        return x[tuple(i if n == m else clamped(index_value(i, "i64"), m) for i, n, m in places)]

    return compute(shape, read, name=stem(ctx), dtype=x.dtype)
