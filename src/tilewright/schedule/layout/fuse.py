"""layout_fuse: adjacent dimensions of a tensor become one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir import Buffer, Env, Index, Program, floordiv, mod
from tilewright.schedule.layout.rewrite import (
    Indices,
    Layout,
    check_dim,
    joined,
    relayout,
    replaced,
    tensor_of,
)
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("layout_fuse", phase="program")
def layout_fuse(program: Program, tensor: str, dim: int, count: int) -> Program:
    """Fuse the ``count`` dimensions of ``tensor`` from ``dim`` on into one, row by row.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((3, 8), name="X")
    >>> Y = lang.compute((3, 8), lambda h, w: X[h, w] + 1, name="Y")
    >>> Z = lang.compute((3, 8), lambda h, w: Y[h, w] * 2, name="Z")
    >>> s = Schedule(lang.program([X], [Z]))
    >>> print(s)
    func main:
        alloc Y: f32[3, 8] global
        for h in 0:3:
            for w in 0:8:
                block Y(par h=h, par w=w):
                    Y[h, w] = (X[h, w] + f32(1.0))
        for Z_h in 0:3:
            for Z_w in 0:8:
                block Z(par h=Z_h, par w=Z_w):
                    Z[h, w] = (Y[h, w] * f32(2.0))
    >>> print(s.layout_fuse("Y", 0, 2))
    func main:
        alloc Y: f32[24] global
        for h_w in 0:24:
            block Y(par h_w=h_w):
                Y[h_w] = (X[h_w//8, h_w%8] + f32(1.0))
        for h in 0:3:
            for w in 0:8:
                block Z(par h=h, par w=w):
                    Z[h, w] = (Y[8*h + w] * f32(2.0))

    All but the first of them must have constant extents. Source: ALT, Table 1 (with the repaired formula).
    Raises ScheduleError otherwise.
    """
    found = tensor_of(program, tensor)
    return relayout(program, found, fuse_layout(found, dim, count))


def fuse_layout(tensor: Buffer, dim: int, count: int) -> Layout:
    """The change of layout that :func:`layout_fuse` is. Raises ScheduleError as that does."""
    check_dim(tensor, dim)
    if count < 2 or dim + count > len(tensor.shape):
        raise ScheduleError(
            f"{count} dimensions from {dim} on cannot be fused: {tensor.name!r} has {len(tensor.shape)}",
            hint="fuse two or more adjacent dimensions",
        )
    sizes = tensor.shape[dim : dim + count]
    if any(not n.is_const for n in sizes[1:]):
        raise ScheduleError(
            f"dimensions {dim} to {dim + count - 1} of {tensor.name!r} have symbolic extents",
            hint="only the first of the fused dimensions may be symbolic",
        )
    strides = [prod(n.as_int() for n in sizes[a + 1 :]) for a in range(count)]

    def forward(old: Indices, env: Env) -> Indices:
        value = Index(0)
        for s, x in zip(strides, old[dim : dim + count], strict=True):
            value = value + x * s
        return replaced(old, dim, count, [value])

    def inverse(new: Indices) -> Indices:
        e = new[dim]
        parts = [floordiv(e, strides[0])]
        parts += [mod(floordiv(e, s), n.as_int()) for s, n in zip(strides[1:], sizes[1:], strict=True)]
        return replaced(new, dim, 1, parts)

    def names(old: Sequence[str]) -> list[str]:
        return [*old[:dim], joined(old[dim : dim + count]), *old[dim + count :]]

    shape = replaced(tensor.shape, dim, count, [sizes[0] * strides[0]])
    return Layout(shape, forward, inverse, names)
