"""layout_reorder: permute the dimensions of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Buffer, Env, Program
from tilewright.schedule.layout.rewrite import Indices, Layout, relayout, tensor_of
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("layout_reorder", phase="program")
def layout_reorder(program: Program, tensor: str, perm: Sequence[int]) -> Program:
    """Permute the dimensions of ``tensor``: new dimension ``d`` is the old one ``perm[d]``.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((2, 3), name="X")
    >>> Y = lang.compute((2, 3), lambda i, j: X[i, j] + 1, name="Y")
    >>> Z = lang.compute((2, 3), lambda i, j: Y[i, j] * 2, name="Z")
    >>> s = Schedule(lang.program([X], [Z]))
    >>> print(s)
    func main:
        alloc Y: f32[2, 3] global
        for i in 0:2:
            for j in 0:3:
                block Y(par i=i, par j=j):
                    Y[i, j] = (X[i, j] + f32(1.0))
        for Z_i in 0:2:
            for Z_j in 0:3:
                block Z(par i=Z_i, par j=Z_j):
                    Z[i, j] = (Y[i, j] * f32(2.0))
    >>> print(s.layout_reorder("Y", (1, 0)))
    func main:
        alloc Y: f32[3, 2] global
        for j in 0:3:
            for i in 0:2:
                block Y(par j=j, par i=i):
                    Y[j, i] = (X[i, j] + f32(1.0))
        for Z_i in 0:2:
            for Z_j in 0:3:
                block Z(par i=Z_i, par j=Z_j):
                    Z[i, j] = (Y[j, i] * f32(2.0))

    Source: ALT, Table 1. Raises ScheduleError where ``perm`` is no permutation of the dimensions.
    """
    found = tensor_of(program, tensor)
    return relayout(program, found, reorder_layout(found, perm))


def reorder_layout(tensor: Buffer, perm: Sequence[int]) -> Layout:
    """The change of layout that :func:`layout_reorder` is. Raises ScheduleError as that does."""
    order = tuple(perm)
    if sorted(order) != list(range(len(tensor.shape))):
        raise ScheduleError(
            f"{order} is no permutation of the {len(tensor.shape)} dimensions of {tensor.name!r}",
            hint="name every dimension once, from 0",
        )
    back = tuple(order.index(d) for d in range(len(order)))

    def forward(old: Indices, env: Env) -> Indices:
        return tuple(old[p] for p in order)

    def inverse(new: Indices) -> Indices:
        return tuple(new[p] for p in back)

    def names(old: Sequence[str]) -> list[str]:
        return [old[p] for p in order]

    return Layout(tuple(tensor.shape[p] for p in order), forward, inverse, names)
