"""Fourier transforms, written as products with tables of cosines and sines."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tilewright import lang
from tilewright.graph.operand import At, Ix, Operand, bounded, compute
from tilewright.graph.ops.common import Scalar, cast, number, stem
from tilewright.graph.registry import AxesAsked, Context, Kind, operator

#: Sums are made in double precision: the elements of a transform cancel.
_INNER = "f64"
#: Lengths from which on transforms are made in two steps, and the least factor of those.
_LEAST_LENGTH = 128
_LEAST_FACTOR = 8


def _tables(ctx: Context, rows: int, terms: int, length: int, inverse: bool) -> tuple[Operand, Operand]:
    """Cos and sin of 2 pi k n / length, for `rows` values of k and `terms` of n; the sine with its sign."""
    turns = np.arange(rows)[:, None] * np.arange(terms)[None, :] % length
    angle = 2 * math.pi * turns / length
    sines = np.sin(angle) if inverse else -np.sin(angle)
    return ctx.table(np.cos(angle), "cosines"), ctx.table(sines, "sines")


@operator("DFT", kind=Kind.CONTRACTION, static=(1, 2))
def dft(ctx: Context, x: Operand, length: Operand | None = None, axis: Operand | None = None) -> Operand:
    """The discrete Fourier transform along an axis; the last axis holds real and imaginary parts."""
    rank = len(x.shape)
    default = 1 if ctx.version < 20 else -2
    given = ctx.static_axes(2, AxesAsked(rank)) if ctx.has_input(2) else (ctx.integer("axis", default),)
    (along,) = given or (default,)
    along = ctx.normal_axis(along, rank)
    ctx.require(along < rank - 1 and x.shape[-1] in (1, 2), "the last axis must hold the one or two parts")
    inverse, onesided = ctx.flag("inverse", False), ctx.flag("onesided", False)
    size = x.shape[along]
    count = ctx.static_int(1) if ctx.has_input(1) else size
    if inverse and onesided and not ctx.has_input(1):
        count = 2 * (size - 1)
    ctx.require(count > 0, "the length of the transform is not positive")
    if inverse and onesided:
        return _real_inverse(ctx, x, along, count)
    bins = count // 2 + 1 if onesided else count
    factor = _factor(count)
    if factor and count <= size:
        return _in_two_steps(ctx, x, along, factor, count // factor, bins, inverse)
    cosines, sines = _tables(ctx, bins, count, count, inverse)
    k = lang.reduce_axis(count, "k")

    def total(index: tuple[Ix, ...], imaginary: bool) -> Scalar:
        place = (*index[:along], k, *index[along + 1 :])
        own = _read(x, (*place, 0), count > size) * (sines if imaginary else cosines)[(index[along], k)]
        if x.shape[-1] == 2:
            other = _read(x, (*place, 1), count > size)
            cross = other * (cosines if imaginary else sines)[(index[along], k)]
            own = own + cross if imaginary else own - cross
        return lang.sum(own, axis=k)

    shape = (*x.shape[:along], bins, *x.shape[along + 1 : -1])
    real = compute(shape, lambda *i: total(i, False), name=f"{stem(ctx)}_real")
    imaginary = compute(shape, lambda *i: total(i, True), name=f"{stem(ctx)}_imaginary")
    return _joined(ctx, real, imaginary, 1.0 / count if inverse else 1.0, x.dtype)


def _factor(count: int) -> int:
    """The factor of a length nearest to its root; 0 where there is none, or one step will do."""
    best = next((p for p in range(math.isqrt(count), _LEAST_FACTOR - 1, -1) if count % p == 0), 0)
    return best if count >= _LEAST_LENGTH else 0


def _in_two_steps(ctx: Context, x: Operand, along: int, p: int, q: int, bins: int, inverse: bool) -> Operand:
    """The transform of length ``p q`` by transforms of lengths p and q (Cooley and Tukey, 1965).

    With ``n = q n1 + n2`` and ``k = p k2 + k1``, and w(m) the m-th root of one::

        inner[n2, k1] = sum(x[q n1 + n2] w(p)^(n1 k1), n1) w(p q)^(n2 k1)
        y[p k2 + k1] = sum(inner[n2, k1] w(q)^(n2 k2), n2)

    Real and imaginary parts are rows of the tables, so that each sum is a product of matrices.
    """
    count, name, parts = p * q, stem(ctx), x.shape[-1]
    lead, trail = x.shape[:along], x.shape[along + 1 : -1]
    sign = 1.0 if inverse else -1.0

    def root(rows: int, terms: int, length: int) -> npt.NDArray[np.complex128]:
        turns = np.arange(rows)[:, None] * np.arange(terms)[None, :] % length
        return np.asarray(np.exp(sign * 2j * math.pi * turns / length), np.complex128)

    # [n1, part of x, part of inner, k1]
    first = root(p, p, p)
    columns = np.stack([first, 1j * first][:parts], axis=1)
    first_table = ctx.table(np.stack([columns.real, columns.imag], axis=2).reshape(p, parts, 2 * p), "first")
    n1, part = lang.reduce_axis(p, "n1"), lang.reduce_axis(parts, "part")

    def inner(*i: Ix) -> Scalar:
        n2, column = i[along], i[along + 1]
        element = _read(x, (*i[:along], n1 * q + n2, *i[along + 2 :], part), False)
        return lang.sum(element * first_table[(n1, part, column)], axis=(n1, part))

    summed = compute((*lead, q, 2 * p, *trail), inner, name=f"{name}_inner")
    turn = root(q, p, count)
    # real = real * cos - imaginary * sin, imaginary = imaginary * cos + real * sin
    own = ctx.table(np.stack([turn.real, turn.real]), "turned")
    other = ctx.table(np.stack([-turn.imag, turn.imag]), "crossed")

    def turned(*i: Ix) -> Scalar:
        which, n2, k1 = i[along], i[along + 1], i[along + 2]
        rest = i[along + 3 :]
        here = summed[(*i[:along], n2, which * p + k1, *rest)]
        there = summed[(*i[:along], n2, (1 - which) * p + k1, *rest)]
        return here * own[(which, n2, k1)] + there * other[(which, n2, k1)]

    middle = compute((*lead, 2, q, p, *trail), turned, name=f"{name}_turned")
    rows = -(-bins // p)
    second = root(rows, q, q)
    real = np.stack([second.real, -second.imag], axis=1)
    imaginary = np.stack([second.imag, second.real], axis=1)
    # [part of y, k2, part of inner, n2]
    second_table = ctx.table(np.stack([real, imaginary]).reshape(2 * rows, 2, q), "second")
    n2, which = lang.reduce_axis(q, "n2"), lang.reduce_axis(2, "which")

    def outer(*i: Ix) -> Scalar:
        row, k1 = i[along], i[along + 1]
        element = middle[(*i[:along], which, n2, k1, *i[along + 2 :])]
        return lang.sum(second_table[(row, which, n2)] * element, axis=(which, n2))

    made = compute((*lead, 2 * rows, p, *trail), outer, name=f"{name}_outer")
    scale = number(1.0 / count if inverse else 1.0, _INNER)

    def of(*i: Ix) -> Scalar:
        k = i[along]
        element = made[(*i[:along], i[-1] * rows + k // p, k % p, *i[along + 1 : -1])]
        return cast(element * scale, _INNER, x.dtype)

    return compute((*lead, bins, *trail, 2), of, name=name)


def _read(x: Operand, place: tuple[At, ...], beyond: bool) -> Scalar:
    """An element, zero beyond the end, in the dtype of the sums."""
    element = bounded(x, 0.0)[place] if beyond else x[place]
    return cast(element, x.dtype, _INNER)


def _real_inverse(ctx: Context, x: Operand, along: int, count: int) -> Operand:
    """The real signal of `count` samples of whose symmetric spectrum the first half is given."""
    bins = count // 2 + 1
    ctx.require(x.shape[-1] == 2 and x.shape[along] >= bins, f"{x.shape[along]} bins for {count} samples")
    cosines, sines = _tables(ctx, count, bins, count, True)
    twice = np.full(bins, 2.0)
    twice[0] = 1.0
    if count % 2 == 0:
        twice[-1] = 1.0
    shares = ctx.table(twice / count, "shares")
    k = lang.reduce_axis(bins, "k")

    def of(*i: Ix) -> Scalar:
        place = (*i[:along], k, *i[along + 1 : -1])
        real, imaginary = _read(x, (*place, 0), False), _read(x, (*place, 1), False)
        table = (i[along], k)
        return lang.sum((real * cosines[table] - imaginary * sines[table]) * shares[(k,)], axis=k)

    total = compute((*x.shape[:along], count, *x.shape[along + 1 : -1], 1), of, name=stem(ctx))
    return compute(total.shape, lambda *i: cast(total[i], _INNER, x.dtype), name=f"{stem(ctx)}_out")


def _joined(ctx: Context, real: Operand, imaginary: Operand, scale: float, dtype: str) -> Operand:
    def of(*i: Ix) -> Scalar:
        part = lang.select(i[-1] == 0, real[i[:-1]], imaginary[i[:-1]])
        return cast(part * number(scale, _INNER), _INNER, dtype)

    return compute((*real.shape, 2), of, name=stem(ctx))


@operator("STFT", kind=Kind.CONTRACTION, static=(1, 3))
def stft(
    ctx: Context,
    x: Operand,
    step: Operand,
    window: Operand | None = None,
    length: Operand | None = None,
) -> Operand:
    """The Fourier transforms of windows of a signal: [batch, frames, bins, 2]."""
    stride = ctx.static_int(1)
    given = ctx.static_int(3) if ctx.has_input(3) else None
    width = given if given is not None else (window.shape[0] if window is not None else 0)
    ctx.require(stride > 0 and 0 < width <= x.shape[1], f"frames of {width} in steps of {stride}")
    bins = width // 2 + 1 if ctx.flag("onesided", True) else width
    cosines, sines = _tables(ctx, bins, width, width, False)
    k = lang.reduce_axis(width, "k")
    complex_input = len(x.shape) == 3 and x.shape[2] == 2

    def total(n: Ix, frame: Ix, b: Ix, imaginary: bool) -> Scalar:
        weight = None if window is None else window[(k,)]

        def part(which: int) -> Scalar:
            place: tuple[At, ...] = (n, frame * stride + k)
            element = _read(x, (*place, which) if len(x.shape) == 3 else place, False)
            return element if weight is None else element * cast(weight, x.dtype, _INNER)

        own = part(0) * (sines if imaginary else cosines)[(b, k)]
        if complex_input:
            cross = part(1) * (cosines if imaginary else sines)[(b, k)]
            own = own + cross if imaginary else own - cross
        return lang.sum(own, axis=k)

    shape = (x.shape[0], (x.shape[1] - width) // stride + 1, bins)
    real = compute(shape, lambda n, f, b: total(n, f, b, False), name=f"{stem(ctx)}_real")
    imaginary = compute(shape, lambda n, f, b: total(n, f, b, True), name=f"{stem(ctx)}_imaginary")
    return _joined(ctx, real, imaginary, 1.0, x.dtype)
