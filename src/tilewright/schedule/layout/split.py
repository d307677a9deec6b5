"""layout_split: one dimension of a tensor becomes several."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir import Buffer, Env, Index, Program, floordiv, mod, prove_ge0
from tilewright.schedule.layout.rewrite import (
    Indices,
    Layout,
    check_dim,
    digits,
    relayout,
    replaced,
    tensor_of,
)
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("layout_split", phase="program")
def layout_split(program: Program, tensor: str, dim: int, factors: Sequence[int]) -> Program:
    """Split dimension ``dim`` of ``tensor`` into dimensions of the extents ``factors``.

    With F the factors, index ``i`` becomes ``(i // (F[a+1]*…)) % F[a]`` in dimension ``a``. One factor may be
    -1: the smallest that holds the dimension (a symbolic size: the first one). Where the product is larger
    than the dimension, what lies past its end is padding: zero where a stage defines it; in an input it is
    never read.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((2, 64), name="X")
    >>> Y = lang.compute((2, 64), lambda n, o: X[n, o] + 1, name="Y")
    >>> Z = lang.compute((2, 64), lambda n, o: Y[n, o] * 2, name="Z")
    >>> s = Schedule(lang.program([X], [Z]))
    >>> print(s)
    func main:
        alloc Y: f32[2, 64] global
        for n in 0:2:
            for o in 0:64:
                block Y(par n=n, par o=o):
                    Y[n, o] = (X[n, o] + f32(1.0))
        for Z_n in 0:2:
            for Z_o in 0:64:
                block Z(par n=Z_n, par o=Z_o):
                    Z[n, o] = (Y[n, o] * f32(2.0))
    >>> print(s.layout_split("Y", 1, (-1, 16)))
    func main:
        alloc Y: f32[2, 4, 16] global
        for n in 0:2:
            for o_o in 0:4:
                for o_i in 0:16:
                    block Y(par n=n, par o_o=o_o, par o_i=o_i):
                        Y[n, o_o, o_i] = (X[n, o_i + 16*o_o] + f32(1.0))
        for Z_n in 0:2:
            for o in 0:64:
                block Z(par n=Z_n, par o=o):
                    Z[n, o] = (Y[n, o//16, o%16] * f32(2.0))

    Source: ALT, Table 1, and padding where the factors do not divide. Raises ScheduleError for factors that
    do not hold the dimension.
    """
    found = tensor_of(program, tensor)
    return relayout(program, found, split_layout(found, dim, factors))


def split_layout(tensor: Buffer, dim: int, factors: Sequence[int]) -> Layout:
    """The change of layout that :func:`layout_split` is. Raises ScheduleError as that does."""
    check_dim(tensor, dim)
    size = tensor.shape[dim]
    extents = _extents(tensor.name, dim, size, list(factors))
    strides = [prod(e.as_int() for e in extents[a + 1 :]) for a in range(len(extents))]
    total = extents[0] * strides[0]

    def forward(old: Indices, env: Env) -> Indices:
        i = old[dim]
        new = [floordiv(i, strides[0])]
        new += [mod(floordiv(i, s), e.as_int()) for s, e in zip(strides[1:], extents[1:], strict=True)]
        return replaced(old, dim, 1, new)

    def inverse(new: Indices) -> Indices:
        value = Index(0)
        for s, x in zip(strides, new[dim : dim + len(extents)], strict=True):
            value = value + x * s
        return replaced(new, dim, len(extents), [value])

    def names(old: Sequence[str]) -> list[str]:
        return [*old[:dim], *digits(old[dim], len(extents)), *old[dim + 1 :]]

    shape = replaced(tensor.shape, dim, 1, extents)
    return Layout(shape, forward, inverse, names, padding=total != size)


def _extents(tensor: str, dim: int, size: Index, factors: list[int]) -> list[Index]:
    unknown = [n for n, f in enumerate(factors) if f == -1]
    if len(factors) < 2 or len(unknown) > 1 or any(f < 1 and f != -1 for f in factors):
        raise ScheduleError(
            f"dimension {dim} of {tensor!r} cannot be split into {tuple(factors)}",
            hint="give two or more positive extents; one may be -1",
        )
    extents = [Index(f) for f in factors]
    if unknown:
        rest = prod(f for f in factors if f != -1)
        extents[unknown[0]] = floordiv(size + (rest - 1), rest)
    if any(not e.is_const for e in extents[1:]) or not prove_ge0(
        extents[0] * prod(e.as_int() for e in extents[1:]) - size, {}
    ):
        raise ScheduleError(
            f"extents {tuple(factors)} do not hold dimension {dim} of {tensor!r}, which has {size} elements",
            hint="make the first one -1",
        )
    return extents
