"""layout_adopt: the shape of a tensor, and the loops that define it, follow its index map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tilewright.ir import Env, IndexMap, Program, fresh_name
from tilewright.schedule.layout.inverse import inverse_of
from tilewright.schedule.layout.rewrite import Indices, Layout, relayout
from tilewright.schedule.producer.stages import find_tensor
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("layout_adopt", phase="program")
def layout_adopt(program: Program, tensor: str) -> Program:
    """Make the index map of ``tensor`` its shape: each physical dimension becomes one of the tensor.

    Accesses name places instead of logical indices then, and the stage that defines the tensor gets an axis
    for each: its loops follow the layout. Where the elements lie in memory stays as it was, so that for
    callers nothing changes. What primitives that store elements several times need (``layout_unfold``), or
    that move other tensors in (``store_at``), works on what this returns.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((2, 8), name="X")
    >>> Y = lang.compute((2, 8), lambda i, j: X[i, j] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y])).layout_place("Y", ("d1//4", "d0", "d1%4"))
    >>> print(s)
    func main:
        for i in 0:2:
            for j in 0:8:
                block Y(par i=i, par j=j):
                    Y[i, j] = (X[i, j] * f32(2.0))
    >>> print(s.layout_adopt("Y"))
    func main:
        for j_o in 0:2:
            for i in 0:2:
                for j_i in 0:4:
                    block Y(par j_o=j_o, par i=i, par j_i=j_i):
                        Y[j_o, i, j_i] = (X[i, j_i + 4*j_o] * f32(2.0))

    Raises ScheduleError for a tensor without an index map, and for a map that cannot be read backwards.
    """
    found = find_tensor(program, tensor)
    if found.layout is None:
        raise ScheduleError(
            f"tensor {tensor!r} has no index map to adopt", hint="place it by layout_place first"
        )
    change = map_layout(found.layout, found.shape)
    return relayout(program, replace(found, layout=None), change)


def map_layout(layout: IndexMap, shape: Indices) -> Layout:
    """The change of layout that an index map is. Raises ScheduleError where it cannot be read backwards."""
    inverse = inverse_of(layout, shape)
    padding = prod(n.as_int() for n in layout.shape) != prod(n.as_int() for n in shape)

    def forward(old: Indices, env: Env) -> Indices:
        return layout.apply(old)

    def names(old: Sequence[str]) -> list[str]:
        axes = dict(zip(layout.dims, old, strict=True))
        bases = ["_".join(axes[v] for v in layout.dims if v in x.vars) or "one" for x in layout.exprs]
        out: list[str] = []
        for n, base in enumerate(bases):
            count = bases.count(base)
            suffix = "" if count == 1 else ("_o", "_i")[bases[:n].count(base)] if count == 2 else f"_{n}"
            out.append(fresh_name(f"{base}{suffix}", set(out)))
        return out

    return Layout(layout.shape, forward, inverse, names, padding=padding)
