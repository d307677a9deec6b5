"""layout_pad: elements before and after a dimension of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Buffer, Env, Program
from tilewright.schedule.layout.rewrite import Indices, Layout, check_dim, relayout, replaced, tensor_of
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("layout_pad", phase="program")
def layout_pad(program: Program, tensor: str, dim: int, before: int, after: int) -> Program:
    """Put ``before`` elements in front of dimension ``dim`` of ``tensor`` and ``after`` behind it.

    A stage that defines the tensor element by element writes zeros there; any other leaves them undefined.
    In an input they are the caller's, and never read.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((8,), name="X")
    >>> Y = lang.compute((8,), lambda i: X[i], name="Y")
    >>> Z = lang.compute((8,), lambda i: Y[i] * 2, name="Z")
    >>> s = Schedule(lang.program([X], [Z]))
    >>> print(s)
    func main:
        alloc Y: f32[8] global
        for i in 0:8:
            block Y(par i=i):
                Y[i] = X[i]
        for Z_i in 0:8:
            block Z(par i=Z_i):
                Z[i] = (Y[i] * f32(2.0))
    >>> print(s.layout_pad("Y", 0, 1, 2))
    func main:
        alloc Y: f32[11] global
        for i in 0:11:
            block Y(par i=i):
                Y[i] = select(and(ge(i64[i - 1], i64[0]), ge(i64[-i + 8], i64[0])), X[i - 1], f32(0.0))
        for Z_i in 0:8:
            block Z(par i=Z_i):
                Z[i] = (Y[i + 1] * f32(2.0))

    Raises ScheduleError for negative amounts.
    """
    found = tensor_of(program, tensor)
    return relayout(program, found, pad_layout(found, dim, before, after))


def pad_layout(tensor: Buffer, dim: int, before: int, after: int) -> Layout:
    """The change of layout that :func:`layout_pad` is. Raises ScheduleError as that does."""
    check_dim(tensor, dim)
    if before < 0 or after < 0:
        raise ScheduleError(
            f"{tensor.name!r} cannot be padded by {before} and {after}", hint="pad by 0 or more"
        )

    def forward(old: Indices, env: Env) -> Indices:
        return replaced(old, dim, 1, [old[dim] + before])

    def inverse(new: Indices) -> Indices:
        return replaced(new, dim, 1, [new[dim] - before])

    def names(old: Sequence[str]) -> list[str]:
        return list(old)

    shape = replaced(tensor.shape, dim, 1, [tensor.shape[dim] + (before + after)])
    return Layout(shape, forward, inverse, names, padding=True)
