"""layout_reorder: permute the dimensions of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Env, Program
from tilewright.schedule.layout.rewrite import Indices, Layout, relayout, tensor_of
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("layout_reorder", phase="program")
def layout_reorder(program: Program, tensor: str, perm: Sequence[int]) -> Program:
    """Permute the dimensions of ``tensor``: new dimension ``d`` is the old one ``perm[d]``.

    Before and after ``layout_reorder(program, "Y", (1, 0))``::

        Y[i, j] = f(X[i, j])                    Y[j, i] = f(X[i, j])        # for j, for i
        Z[i, j] = Y[i, j] * 2                   Z[i, j] = Y[j, i] * 2

    Source: ALT, Table 1. Raises ScheduleError where ``perm`` is no permutation of the dimensions.
    """
    found = tensor_of(program, tensor)
    order = tuple(perm)
    if sorted(order) != list(range(len(found.shape))):
        raise ScheduleError(
            f"{order} is no permutation of the {len(found.shape)} dimensions of {tensor!r}",
            hint="name every dimension once, from 0",
        )
    back = tuple(order.index(d) for d in range(len(order)))

    def forward(old: Indices, env: Env) -> Indices:
        return tuple(old[p] for p in order)

    def inverse(new: Indices) -> Indices:
        return tuple(new[p] for p in back)

    def names(old: Sequence[str]) -> list[str]:
        return [old[p] for p in order]

    return relayout(program, found, Layout(tuple(found.shape[p] for p in order), forward, inverse, names))
