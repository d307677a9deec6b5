"""layout_unfold: a dimension of a tensor becomes overlapping tiles."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tilewright.ir import (
    Atom,
    Buffer,
    Env,
    Index,
    Program,
    floordiv,
    imin,
    int_range,
    linear,
    mod,
    prove_ge0,
    simplify,
)
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


@primitive("layout_unfold", phase="program")
def layout_unfold(program: Program, tensor: str, dim: int, tile: int, stride: int) -> Program:
    """Make dimension ``dim`` of ``tensor``, of size D, tiles of ``tile`` elements, one every ``stride``.

    The dimension becomes two, of extents ``ceil((D - tile) / stride) + 1`` and ``tile``: element ``(t, o)``
    is the old one ``stride*t + o``. What lies past D is padding, as in ``layout_pad``. {1, 2, 3, 4, 5} with
    tile 3 and stride 2 is {{1, 2, 3}, {3, 4, 5}}.

    An access ``x`` becomes ``(t, x - stride*t)``, where ``t`` is chosen as simply as the ranges allow:

    1. the terms of ``x`` divisible by ``stride`` give ``t``, if the rest then lies in one tile;
    2. a sliding window ``V*i + r`` of M elements over an axis ``i``: ``t = i // q`` with ``q`` windows a tile
       (ALT, formula 1; it needs ``stride == V*q``);
    3. ``t = min(x // stride, tiles - 1)``, which is always right.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10,), name="X")
    >>> r = lang.reduce_axis(3, "r")
    >>> Y = lang.compute((8,), lambda i: lang.sum(X[i + r], axis=r), name="Y")
    >>> s = Schedule(lang.program([X], [Y])).layout_split("Y", 0, (-1, 4))
    >>> print(s)
    func main:
        for i_o in 0:2:
            for i_i in 0:4:
                for r in 0:3:
                    block Y(par i_o=i_o, par i_i=i_i, red r=r):
                        init:
                            Y[i_o, i_i] = f32(0.0)
                        Y[i_o, i_i] = (Y[i_o, i_i] + X[i_i + 4*i_o + r])
    >>> print(s.layout_unfold("X", 0, 6, 4))
    func main:
        for i_o in 0:2:
            for i_i in 0:4:
                for r in 0:3:
                    block Y(par i_o=i_o, par i_i=i_i, red r=r):
                        init:
                            Y[i_o, i_i] = f32(0.0)
                        Y[i_o, i_i] = (Y[i_o, i_i] + X[i_o, i_i + r])

    Where a stage defines the tensor, it computes the elements that tiles share once for each. Raises
    ScheduleError for ``stride > tile``, which would lose elements.
    """
    found = tensor_of(program, tensor)
    return relayout(program, found, unfold_layout(found, dim, tile, stride))


def unfold_layout(tensor: Buffer, dim: int, tile: int, stride: int) -> Layout:
    """The change of layout that :func:`layout_unfold` is. Raises ScheduleError as that does."""
    check_dim(tensor, dim)
    if not 1 <= stride <= tile:
        raise ScheduleError(
            f"tiles of {tile} every {stride} lose elements of {tensor.name!r}", hint="use 1 <= stride <= tile"
        )
    size = tensor.shape[dim]
    if not prove_ge0(size - tile, {}):
        raise ScheduleError(
            f"a tile of {tile} is larger than dimension {dim} of {tensor.name!r}, which has {size} elements"
        )
    tiles = floordiv(size - tile + (stride - 1), stride) + 1

    def forward(old: Indices, env: Env) -> Indices:
        return replaced(old, dim, 1, _place(old[dim], tile, stride, size, tiles, env))

    def inverse(new: Indices) -> Indices:
        return replaced(new, dim, 2, [new[dim] * stride + new[dim + 1]])

    def names(old: Sequence[str]) -> list[str]:
        return [*old[:dim], *digits(old[dim], 2), *old[dim + 1 :]]

    shape = replaced(tensor.shape, dim, 1, [tiles, Index(tile)])
    return Layout(shape, forward, inverse, names, padding=True, copies=True)


def _place(x: Index, tile: int, stride: int, size: Index, tiles: Index, env: Env) -> tuple[Index, Index]:
    """The tile in which the access ``x`` is found, and where in it."""
    x = simplify(x, env)
    big = Index(0, tuple((a, c // stride) for a, c in x.terms if c % stride == 0))
    rest = Index(x.const, tuple((a, c) for a, c in x.terms if c % stride))
    low, _ = int_range(rest, env)
    shift = 0 if low is None else low // stride
    for t, o in ((big, rest), (big + shift, rest - shift * stride)):
        if _within(o, Index(tile), env) and _within(t, tiles, env):
            return t, o
    if _within(x, size, env):
        found = _window(x, tile, stride, env)
        if found is not None:
            return found
    t = floordiv(x, stride)
    if _within(t, tiles, env):
        return t, mod(x, stride)
    t = imin(t, tiles - 1)
    return t, x - t * stride


def _within(x: Index, size: Index, env: Env) -> bool:
    return prove_ge0(x, env) and prove_ge0(size - 1 - x, env)


def _window(x: Index, tile: int, stride: int, env: Env) -> tuple[Index, Index] | None:
    """The place by ALT's formula 1: ``x = V*i + r``, where ``r`` are the terms that move least."""
    reach: list[tuple[int, Atom, int]] = []
    for a, c in x.terms:
        low, high = int_range(Index(0, ((a, c),)), env)
        reach.append((1 << 62 if low is None or high is None else high - low, a, c))
    reach.sort(key=lambda item: item[0])
    for n in range(len(reach)):
        moving = [(a, c) for _, a, c in reach[n:]]
        step = gcd(*(c for _, c in moving))
        i = linear(0, [(a, c // step) for a, c in moving])
        r = x - i * step
        low, high = int_range(r, env)
        if low is None or high is None or low < 0 or not prove_ge0(i, env):
            continue
        q = (tile - high - 1) // step + 1
        if q >= 1 and stride == step * q:
            return floordiv(i, q), mod(i, q) * step + r
    return None
