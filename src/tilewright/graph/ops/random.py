"""Random tensors with a seed, drawn once when the model is compiled.

The standard leaves open which numbers a seed gives; here they are those of numpy's default generator. A node
without a seed asks for others in each run: that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.graph.model import Array
from tilewright.graph.registry import Context, static_operator
from tilewright.ir import dtype_of


def _drawn(
    ctx: Context, shape: Sequence[int], dtype: str, draw: Callable[[np.random.Generator], Array]
) -> list[Array]:
    if not ctx.has("seed"):
        raise ctx.unsupported("random numbers that differ from run to run: give them as an input, or a seed")
    ctx.require(min(shape, default=0) >= 0, f"the shape {list(shape)} has a negative size")
    ctx.limit_bytes(int(np.prod(shape, dtype=object)) * 8)
    bits = np.float32(ctx.real("seed")).view(np.uint32)
    return [draw(np.random.default_rng(int(bits))).astype(dtype_of(dtype).numpy)]


def _normal(ctx: Context, shape: Sequence[int], dtype: str) -> list[Array]:
    mean, scale = ctx.real("mean", 0.0), ctx.real("scale", 1.0)
    return _drawn(ctx, shape, dtype, lambda rng: np.asarray(rng.normal(mean, scale, tuple(shape))))


def _uniform(ctx: Context, shape: Sequence[int], dtype: str) -> list[Array]:
    low, high = ctx.real("low", 0.0), ctx.real("high", 1.0)
    return _drawn(ctx, shape, dtype, lambda rng: np.asarray(rng.uniform(low, high, tuple(shape))))


@static_operator("RandomNormal")
def random_normal(ctx: Context) -> Sequence[Array]:
    """Normal numbers of a shape that an attribute says."""
    return _normal(ctx, ctx.integers("shape"), ctx.text("dtype", "f32"))


@static_operator("RandomUniform")
def random_uniform(ctx: Context) -> Sequence[Array]:
    """Uniform numbers of a shape that an attribute says."""
    return _uniform(ctx, ctx.integers("shape"), ctx.text("dtype", "f32"))


@static_operator("RandomNormalLike")
def random_normal_like(ctx: Context) -> Sequence[Array]:
    """Normal numbers of the shape of the input."""
    return _normal(ctx, ctx.type(0).sizes, ctx.text("dtype", ctx.type(0).dtype))


@static_operator("RandomUniformLike")
def random_uniform_like(ctx: Context) -> Sequence[Array]:
    """Uniform numbers of the shape of the input."""
    return _uniform(ctx, ctx.type(0).sizes, ctx.text("dtype", ctx.type(0).dtype))
