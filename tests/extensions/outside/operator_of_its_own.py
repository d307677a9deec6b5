"""An operator from outside: an activation of a domain of its own."""

from tilewright import lang
from tilewright.graph import Kind, compute, operator


@operator("Swish", domain="outside", kind=Kind.ELEMENTWISE, finite=True)
def swish(ctx, x):
    """``x * sigmoid(beta x)``."""
    beta = lang.const(ctx.real("beta", 1.0), x.dtype)
    return compute(x.shape, lambda *i: x[i] * lang.sigmoid(beta * x[i]), name="swish")
