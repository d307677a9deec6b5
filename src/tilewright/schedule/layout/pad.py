"""layout_pad: elements before and after a dimension of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Env, Program
from tilewright.schedule.layout.rewrite import Indices, Layout, check_dim, relayout, replaced, tensor_of
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("layout_pad", phase="program")
def layout_pad(program: Program, tensor: str, dim: int, before: int, after: int) -> Program:
    """Put ``before`` elements in front of dimension ``dim`` of ``tensor`` and ``after`` behind it.

    A stage that defines the tensor element by element writes zeros there; any other leaves them undefined.
    In an input they are the caller's, and never read.

    Before and after ``layout_pad(program, "Y", 0, 1, 2)`` for ``Y`` of shape (8,)::

        Y[i] = f(X[i])                          Y[i] = f(X[i - 1]) if 1 <= i < 9 else 0     # for i in 0:11
        Z[i] = Y[i] * 2                         Z[i] = Y[i + 1] * 2

    Raises ScheduleError for negative amounts.
    """
    found = tensor_of(program, tensor)
    check_dim(found, dim)
    if before < 0 or after < 0:
        raise ScheduleError(f"{tensor!r} cannot be padded by {before} and {after}", hint="pad by 0 or more")

    def forward(old: Indices, env: Env) -> Indices:
        return replaced(old, dim, 1, [old[dim] + before])

    def inverse(new: Indices) -> Indices:
        return replaced(new, dim, 1, [new[dim] - before])

    def names(old: Sequence[str]) -> list[str]:
        return list(old)

    shape = replaced(found.shape, dim, 1, [found.shape[dim] + (before + after)])
    return relayout(program, found, Layout(shape, forward, inverse, names, padding=True))
