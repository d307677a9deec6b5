"""Results computed in another order than they are wanted in, put in order part by part where they are made.

A result that must be plain is computed in blocks of channels of a temporary buffer (``through_layout`` in
``layouts.py``), that of a transposed convolution by phases. Copied at the end, that buffer makes the way to
the caches and back, and threads copy what others have written. So each part of the contraction's nest is
copied as soon as it is there::

    parallel for (batch, panels of channels, rows):
        for tiles: y_blocks[...] = ...            # the micro-kernel; a part that stays in the first caches
        y[c, h, w] = y_blocks[h, w, c]            # squares transposed in registers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tilewright.analysis import reads_in_place
from tilewright.cost import ORDERED_SHARE, PHASES_SHARE, Machine, first_cache, line_bytes, second_cache
from tilewright.ir import (
    FloorDiv,
    Index,
    IndexMap,
    Load,
    Mod,
    Program,
    Stage,
    Store,
    evaluate_index,
    stmt_loads,
)
from tilewright.target import Target
from tilewright.tiling import Body, Cut, Leaf, Step, chain

#: Elements along the vectors of a tile of the copy.
COPIED: Final = 64
#: Parts for each thread from which on a remainder does not matter.
BALANCED_PARTS: Final = 16


@dataclass(frozen=True, slots=True)
class InOrder:
    """The stage ``copy`` puts in order what ``last`` stores in ``source``.

    Dimension ``channel`` of the copy lies together there: in blocks of ``size``, or as a whole, in which case
    other dimensions of the copy are read by phases (``size`` is then that of squares to transpose).
    """

    copy: Stage
    last: Stage
    source: str
    channel: int
    size: int
    phases: bool = False


def find_in_order(program: Program, copy: Stage, target: Target) -> InOrder | None:
    """What ``copy`` puts in order, if it reads all of a temporary buffer once that nobody else reads."""
    if copy.is_reduction or not isinstance(copy.body, Store) or len(copy.body.writes) != 1:
        return None
    write = copy.body.writes[0]
    if [i.as_var() for i in write.indices] != [it.name for it in copy.iters]:
        return None
    temps = {t.name for t in program.temps}
    reads = [ld for ld in stmt_loads(copy.body) if ld.buffer in temps]
    if len(reads) != 1 or program.buffer(write.buffer).layout is not None:
        return None
    source = program.buffer(reads[0].buffer)
    makers = program.producers(source.name)
    if len(makers) != 1 or program.consumers(source.name) != (copy,):
        return None
    if source.layout is None:
        return _by_phases(copy, makers[0], reads[0], target)
    blocked = blocks_of(source.layout)
    if write.value != reads[0] or blocked is None or not reads_in_place(copy, source.name):
        return None
    return InOrder(copy, makers[0], source.name, *blocked)


def blocks_of(layout: IndexMap) -> tuple[int, int] | None:
    """The dimension that a layout has in blocks, and their size."""
    split = [n for n, d in enumerate(layout.dims) if layout.exprs and d in layout.exprs[-1].vars]
    if len(split) != 1 or len(layout.exprs) != len(layout.dims) + 1 or not layout.shape[-1].is_const:
        return None
    return split[0], layout.shape[-1].as_int()


def _by_phases(copy: Stage, last: Stage, read: Load, target: Target) -> InOrder | None:
    names = [it.name for it in copy.iters]
    last_name = read.indices[-1].as_var() if read.indices else None
    if last_name is None or last_name not in names[:-1] or not last.is_reduction:
        return None
    channel, size = names.index(last_name), target.lanes(read.dtype)
    extent = copy.iters[channel].extent
    turned = any(isinstance(atom, FloorDiv | Mod) for i in read.indices for atom, _ in i.terms)
    if not turned or not extent.is_const or extent.as_int() % size:
        return None
    return InOrder(copy, last, read.buffer, channel, size, phases=True)


def part_loop(
    program: Program, o: InOrder, outer: Sequence[Step], shared: bool, machine: Machine
) -> Step | None:
    """The outermost of the loops around the tiles whose iterations make parts that are small enough."""
    buffer = program.buffer(o.source)
    size = prod(e.as_int() for e in buffer.physical_shape) * buffer.dtype.bytes
    most = ORDERED_SHARE * second_cache(machine.target)
    if o.phases:
        most = PHASES_SHARE * first_cache(machine.target)
    count = 1
    for loop in outer:
        count *= loop.count
        balanced = shared or count % machine.threads == 0 or count >= BALANCED_PARTS * machine.threads
        if balanced and size <= count * most:
            return loop
    return None


def shares_lines(o: InOrder, axis: int, machine: Machine) -> bool:
    """Whether threads that take equal parts of a dimension would write to the same lines of every channel."""
    assert isinstance(o.copy.body, Store)
    elements = prod(it.extent.as_int() for it in o.copy.iters[o.channel + 1 :])
    part = elements // machine.threads * o.copy.body.writes[0].value.dtype.bytes
    return axis >= o.channel and part % line_bytes(machine.target) != 0


def part_layout(o: InOrder) -> tuple[str, ...]:
    """The layout of a part: the order of the buffer that it is a part of."""
    if o.phases:
        return ()
    dims = [f"d{n}" for n in range(len(o.copy.iters))]
    blocked = [f"{d}//{o.size}" if n == o.channel else d for n, d in enumerate(dims)]
    return (*blocked, f"d{o.channel}%{o.size}")


def transposed_part(o: InOrder, write: Sequence[Index], made: Mapping[str, int]) -> Body:
    """The nest that copies a part: blocks of vectors, transposed in registers.

    ``made`` are the elements of each axis of the contraction that the part has, ``write`` the indices of its
    result.
    """
    sizes = [made.get(i.as_var() or "", 1) for i in write]
    (read,) = [ld for ld in stmt_loads(o.copy.body) if ld.buffer == o.source]
    names, own = [it.name for it in o.copy.iters], dict[str, int]()
    for it in o.copy.iters:
        mine = [(i, n) for i, n in zip(read.indices, sizes, strict=True) if i.vars == {it.name}]
        own[it.name] = sum(
            all(0 <= evaluate_index(i, {it.name: v}) < n for i, n in mine) for v in range(it.extent.as_int())
        )
    before, channel, plane = names[: o.channel], names[o.channel], names[o.channel + 1 :]
    places, extent = "*".join(plane), prod(own[a] for a in plane)
    rows, line = [*(Step(a, 1) for a in before), Step(channel, o.size)], Step(channel, 1, "unroll")
    lanes = Step(places, 1, "vector")
    if extent <= COPIED:
        return chain([*rows, lanes, line], Leaf(o.copy.name))
    body = chain([Step(places, COPIED), lanes, line], Leaf(o.copy.name))
    whole = extent // COPIED * COPIED
    return chain(rows, Cut(places, (whole,), (body, body)) if extent % COPIED else body)
