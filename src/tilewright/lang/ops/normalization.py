"""Softmax and normalisations."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.lang import reductions
from tilewright.lang.axes import reduce_axis
from tilewright.lang.compute import compute
from tilewright.lang.functions import exp_nonpositive, log, sqrt
from tilewright.lang.ops.common import axis_of, constant, stem
from tilewright.lang.ops.reduction import outer_of
from tilewright.lang.source import problem
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import IndexExpr, Scalar


def softmax(x: Tensor, axis: int = -1, name: str | None = None) -> Tensor:
    """``exp(x - max) / sum(exp(x - max))`` along ``axis``: five stages (max, exp, sum, 1 / sum, product)."""
    d, e, s, _ = _exponentials(x, axis, name, "softmax")
    # one division a row; the sum is at least 1, so that its reciprocal is a number
    inverse = compute(s.shape, lambda *i: 1 / s[i], hint=f"{stem(name, 'softmax')}_inverse")

    def element(*i: IndexExpr) -> Scalar:
        return e[i] * inverse[_without(i, d)]

    return compute(x.shape, element, name, hint="softmax")


def log_softmax(x: Tensor, axis: int = -1, name: str | None = None) -> Tensor:
    """``x - max - log(sum(exp(x - max)))`` along ``axis``."""
    d, _, s, m = _exponentials(x, axis, name, "log_softmax")

    def element(*i: IndexExpr) -> Scalar:
        return x[i] - m[_without(i, d)] - log(s[_without(i, d)])

    return compute(x.shape, element, name, hint="log_softmax")


def _exponentials(x: Tensor, axis: int, name: str | None, what: str) -> tuple[int, Tensor, Tensor, Tensor]:
    d = axis_of(axis, x.rank, what)
    base = stem(name, what)
    m = _fold("max", x, d, f"{base}_max")

    def shifted(*i: IndexExpr) -> Scalar:
        return exp_nonpositive(x[i] - m[_without(i, d)])

    e = compute(x.shape, shifted, hint=f"{base}_exp")
    return d, e, _fold("sum", e, d, f"{base}_sum"), m


def _fold(kind: str, x: Tensor, d: int, hint: str) -> Tensor:
    k = reduce_axis(x.shape[d], "k")
    shape, names, at = outer_of(x, (d,), False)
    fold = reductions.max if kind == "max" else reductions.sum

    def element(*i: IndexExpr) -> Scalar:
        return fold(x[at(i, {d: k})], axis=k)

    return compute(shape, element, axes=names, hint=hint)


def _without(i: Sequence[IndexExpr], d: int) -> tuple[IndexExpr, ...]:
    return (*i[:d], *i[d + 1 :])


def layer_norm(
    x: Tensor,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """``(x - mean) / sqrt(variance + epsilon) · scale + bias`` over the dimensions from ``axis`` on.

    ``scale`` and ``bias`` have those dimensions. Two reductions: the variance is that of ``x - mean``.
    """
    d = axis_of(axis, x.rank, "layer_norm")
    mean, inverse = _moments(x, range(d, x.rank), epsilon, stem(name, "layer_norm"))

    def element(*i: IndexExpr) -> Scalar:
        y = (x[i] - mean[i[:d]]) * inverse[i[:d]]
        if scale is not None:
            y = y * scale[i[d:]]
        return y if bias is None else y + bias[i[d:]]

    return compute(x.shape, element, name, hint="layer_norm")


def _moments(x: Tensor, dims: Sequence[int], epsilon: float, base: str) -> tuple[Tensor, Tensor]:
    """Mean and ``1 / sqrt(variance + epsilon)`` over ``dims``, which vanish."""
    dims = tuple(dims)
    count = 1
    for d in dims:
        count *= constant(x.shape[d], "a normalised extent")
    reds = {d: reduce_axis(x.shape[d], f"k{n}" if len(dims) > 1 else "k") for n, d in enumerate(dims)}
    shape, names, at = outer_of(x, dims, False)
    axes = tuple(reds.values())
    mean = compute(
        shape, lambda *i: reductions.sum(x[at(i, reds)], axis=axes) / count, axes=names, hint=f"{base}_mean"
    )

    def spread(*i: IndexExpr) -> Scalar:
        off = x[at(i, reds)] - mean[i]
        return 1 / sqrt(reductions.sum(off * off, axis=axes) / count + epsilon)

    return mean, compute(shape, spread, axes=names, hint=f"{base}_inverse")


def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """``(x - mean) · scale / sqrt(variance + epsilon) + bias`` by channel (dimension 1)."""
    base = stem(name, "batch_norm")
    factor = compute(
        scale.shape, lambda c: scale[c] / sqrt(variance[c] + epsilon), axes=("c",), hint=f"{base}_factor"
    )
    offset = compute(scale.shape, lambda c: bias[c] - mean[c] * factor[c], axes=("c",), hint=f"{base}_offset")

    def element(*i: IndexExpr) -> Scalar:
        return x[i] * factor[i[1]] + offset[i[1]]

    return compute(x.shape, element, name, hint="batch_norm")


def group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, groups: int, epsilon: float = 1e-5, name: str | None = None
) -> Tensor:
    """Normalisation of each of ``groups`` blocks of channels; ``scale`` and ``bias`` by channel.

    Raises ProgramError where the groups do not divide the channels.
    """
    channels = constant(x.shape[1], "the number of channels")
    if groups < 1 or channels % groups:
        raise problem(f"{groups} groups do not divide {channels} channels")
    per = channels // groups
    base = stem(name, "group_norm")
    view = compute(
        (x.shape[0], groups, per, *x.shape[2:]),
        lambda n, g, c, *at: x[(n, g * per + c, *at)],
        axes=("n", "g", "c", *(f"s{d}" for d in range(x.rank - 2))),
        hint=f"{base}_grouped",
    )
    mean, inverse = _moments(view, range(2, view.rank), epsilon, base)

    def element(*i: IndexExpr) -> Scalar:
        n, c = i[0], i[1]
        return (x[i] - mean[n, c // per]) * inverse[n, c // per] * scale[c] + bias[c]

    return compute(x.shape, element, name, hint="group_norm")


def instance_norm(
    x: Tensor, scale: Tensor, bias: Tensor, epsilon: float = 1e-5, name: str | None = None
) -> Tensor:
    """Normalisation of each channel of one sample."""
    mean, inverse = _moments(x, range(2, x.rank), epsilon, stem(name, "instance_norm"))

    def element(*i: IndexExpr) -> Scalar:
        return (x[i] - mean[i[:2]]) * inverse[i[:2]] * scale[i[1]] + bias[i[1]]

    return compute(x.shape, element, name, hint="instance_norm")
