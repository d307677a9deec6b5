"""Forms of operators that old operator sets have, written as today's.

Source: the changelog of the ONNX standard's operators (`Changelog.md`), operator sets 1 to 8.

    Add, Mul, Less ...      before 7: with `broadcast` the second input begins at the first one's `axis`
    PRelu                   before 7: a vector of slopes has one a channel
    BatchNormalization      before 9: with `spatial` 0 each element of an image has factors of its own
"""

from __future__ import annotations

from tilewright.graph.parts import Parts, decomposition

_BROADCAST_SINCE = 7
_SPATIAL_UNTIL = 9


@decomposition("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
def broadcast_from_axis(p: Parts, x: str, y: str) -> bool | None:
    """The second operand under a shape that broadcasts by today's rules; False where it does already."""
    ctx = p.ctx
    if ctx.version >= _BROADCAST_SINCE or not ctx.integer("broadcast", 0) or not ctx.has("axis"):
        return False
    rank, shape = len(p.shape(0)), p.shape(1)
    after = rank - ctx.axis("axis", rank) - len(shape)
    ctx.require(
        after >= 0, f"{list(shape)} from axis {ctx.integer('axis')} on does not fit {list(p.shape(0))}"
    )
    if after == 0:
        return False
    p.give(p.add(ctx.node.op, (x, p.reshape(y, (*shape, *(1,) * after)))))
    return None


@decomposition("PRelu")
def slopes_of_channels(p: Parts, x: str, slope: str) -> bool | None:
    """The slopes along axis 1; False where there is one for all, or they broadcast anyway."""
    shape, rank = p.shape(1), len(p.shape(0))
    if p.ctx.version >= _BROADCAST_SINCE or len(shape) != 1 or rank < 3:
        return False
    p.give(p.add("PRelu", (x, p.reshape(slope, (*shape, *(1,) * (rank - 2))))))
    return None


@decomposition("BatchNormalization")
def factors_of_elements(p: Parts, x: str, scale: str, bias: str, mean: str, variance: str) -> bool | None:
    """Written out where factors belong to elements of an image; False where they belong to channels."""
    ctx = p.ctx
    if ctx.version >= _SPATIAL_UNTIL or ctx.integer("spatial", 1):
        return False
    p.refuse_outputs(1, 2, 3, 4)
    for at in range(1, 5):
        fits = p.shape(at) == p.shape(0)[1:]
        ctx.require(
            fits, f"its input {at} {list(p.shape(at))} must be {list(p.shape(0)[1:])} as spatial is 0"
        )
    epsilon = p.number(ctx.real("epsilon", 1e-5), p.type(4).dtype)
    deviation = p.add("Sqrt", (p.add("Add", (variance, epsilon)),))
    factor = p.add("Div", (scale, deviation))
    p.give(p.add("Add", (p.add("Mul", (p.add("Sub", (x, mean)), factor)), bias)))
    return None
