"""Distinct elements and slices: sorted, so that equal ones are neighbours; the first of each group."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from tilewright.graph.parts import Parts, decomposition
from tilewright.ir import dtype_of, is_open

#: Columns of slices that are sorted by, one after the other from the last (a radix sort, each pass stable).
MOST_COLUMNS: Final = 64


@decomposition("Unique")
def unique(p: Parts, x: str) -> bool | None:
    """The distinct elements or slices, where each is first, which one each is, how often each occurs.

    Known ones stay one node, and slices of many elements. Those of a run are as many as data says.
    """
    shape, dtype = p.shape(0), p.type(0).dtype
    axis = p.ctx.axis("axis", len(shape)) if p.ctx.has("axis") else None
    count = prod(shape) if axis is None else shape[axis]
    columns = 1 if axis is None else prod(n for at, n in enumerate(shape) if at != axis)
    if p.ctx.values[0] is not None or is_open(columns) or not 0 < columns <= MOST_COLUMNS:
        return False
    order = [] if axis is None else [axis, *(at for at in range(len(shape)) if at != axis)]
    whole = p.reshape(x, [-1]) if axis is None else p.transpose(x, *order)
    rows = p.reshape(whole, [count, columns])
    sorted_places = _order(p, rows, count, columns)
    # elements that are no numbers are equal, as in a set; slices that hold some are not
    same_nan = axis is None and dtype_of(dtype).is_float
    new = _differs(p, p.add("Gather", (rows, sorted_places), axis=0), count, same_nan=same_nan)
    starts = p.add("Squeeze", (p.add("NonZero", (new,)), p.ints([0])))
    group = p.add(
        "Sub", (p.add("CumSum", (p.add("Cast", (new,), to="i64"), p.number(0, "i64"))), p.ints([1]))
    )
    first = p.add("Gather", (sorted_places, starts))
    ends = p.add("Concat", (starts, p.ints([count])), axis=0)
    counts = p.add("Sub", (p.add("Slice", (ends, p.ints([1]), p.ints([1 << 62]))), starts))
    zeros = p.filled([count], 0, "i64")
    inverse = p.add("ScatterElements", (zeros, sorted_places, group), axis=0)
    if not p.ctx.flag("sorted", True):
        # groups in the order of their first elements
        number = p.add("Shape", (first,))
        _, by_first = p.several("TopK", (first, number), 2, axis=0, largest=0)
        none = p.add("ConstantOfShape", (number,), value=np.zeros(1, np.int64))
        ends_at = p.add("Squeeze", (number, p.ints([0])))
        every = p.add("Range", (p.number(0, "i64"), ends_at, p.number(1, "i64")))
        place = p.add("ScatterElements", (none, by_first, every), axis=0)
        inverse = p.add("Gather", (place, inverse))
        first, counts = (p.add("Gather", (value, by_first)) for value in (first, counts))
    values = p.add("Gather", (whole, first), axis=0)
    if axis is not None:
        values = p.transpose(values, *map(int, np.argsort(order)))
    for output, value in enumerate((values, first, inverse, counts)):
        p.give(value, output)
    return None


def _order(p: Parts, rows: str, count: int, columns: int) -> str:
    """The places of rows in ascending order, equal ones as they stand."""
    known = ""
    for column in reversed(range(columns)):
        keys = p.add("Gather", (rows, p.constant(np.array(column, np.int64))), axis=1)
        keys = p.add("Gather", (keys, known)) if known else keys
        _, places = p.several("TopK", (keys, p.ints([count])), 2, axis=0, largest=0)
        known = p.add("Gather", (known, places)) if known else places
    return known


def _differs(p: Parts, rows: str, count: int, *, same_nan: bool) -> str:
    """For each of some rows whether it is another one than the row before."""
    places = p.places(count)
    before = p.add("Max", (p.add("Sub", (places, p.ints([1]))), p.ints([0])))
    before = p.add("Gather", (rows, before), axis=0)
    same = p.add("Equal", (rows, before))
    if same_nan:
        both = p.add("And", (p.add("IsNaN", (rows,)), p.add("IsNaN", (before,))))
        same = p.add("Or", (same, both))
    other = p.add("ReduceMax", (p.add("Cast", (p.add("Not", (same,)),), to="i32"), p.ints([1])), keepdims=0)
    return p.add("Or", (p.add("Cast", (other,), to="bool"), p.add("Equal", (places, p.ints([0])))))
