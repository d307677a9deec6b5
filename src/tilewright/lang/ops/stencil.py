"""Linear stencils on grids."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.lang.boundary import boundary
from tilewright.lang.compute import compute
from tilewright.lang.source import problem
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import IndexExpr, Scalar


def stencil(
    x: Tensor,
    weights: Mapping[tuple[int, ...], float],
    mode: str = "constant",
    name: str | None = None,
) -> Tensor:
    """``sum of weight · x[i + offset]`` over ``weights``; ``mode`` as in ``lang.boundary``.

    Raises ProgramError for offsets of another rank.
    """
    if not weights or any(len(o) != x.rank for o in weights):
        raise problem(f"a stencil needs offsets of {x.rank} numbers", "{(-1, 0): 0.25, …}")
    view = boundary(x, mode=mode)

    def element(*i: IndexExpr) -> Scalar:
        out: Scalar | None = None
        for offset, weight in weights.items():
            term = view[tuple(at + o for at, o in zip(i, offset, strict=True))] * weight
            out = term if out is None else out + term
        assert out is not None
        return out

    return compute(x.shape, element, name, hint="stencil")


def box_blur(x: Tensor, radius: int = 1, mode: str = "clamp", name: str | None = None) -> Tensor:
    """The mean over the ``2·radius + 1`` wide square around each point, rows then columns: two stages.

    Raises ProgramError for tensors that are no matrices.
    """
    if x.rank != 2:
        raise problem(f"a blur of {x.rank} dimensions", "it needs an image of 2")
    size = 2 * radius + 1
    rows = stencil(x, {(0, d): 1 / size for d in range(-radius, radius + 1)}, mode)
    return stencil(rows, {(d, 0): 1 / size for d in range(-radius, radius + 1)}, mode, name)
