"""Which threads a contraction is worth, and what they share of it."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tilewright.analysis import Contraction, footprint, row_axis
from tilewright.cost import BLOCK_SHARE, Machine, bandwidth, second_cache
from tilewright.ir import Binary, Call, Cast, Load, Select, Stage, Store, Unary, walk
from tilewright.plan.contraction.register_tiling import RegisterTile, vector_width

#: Register tiles that must use a panel of weights, for each thread to read all panels: the first one waits.
TILES_PER_PANEL: Final = 24
#: Products below which a contraction stays on one thread: 2 to 4 us of it, against 1 to 3 to start others.
MIN_PARALLEL_PRODUCTS: Final = 1 << 18
#: Results from which on storing them takes as long: lines that the other cores wrote last come from there.
MIN_PARALLEL_RESULTS: Final = 1 << 15


def sharing(stage: Stage, machine: Machine) -> Machine:
    """The machine with the threads that a contraction of constant extents is worth: all of them, or one."""
    products = math.prod(it.extent.as_int() for it in stage.iters) * _products_of_a_term(stage)
    results = math.prod(it.extent.as_int() for it in stage.iters if it.kind == "par")
    pays = products >= MIN_PARALLEL_PRODUCTS or results >= MIN_PARALLEL_RESULTS
    return machine if pays else machine.with_threads(1)


def _products_of_a_term(stage: Stage) -> int:
    """How many multiply-adds of f32 a term of a reduction takes as long as: more where it is computed."""
    value = stage.body.writes[0].value if isinstance(stage.body, Store) else None
    if not isinstance(value, Binary) or (isinstance(value.b, Binary) and value.b.op == "mul"):
        return 1
    operations = {id(e) for e in walk(value.b) if isinstance(e, Binary | Unary | Select | Cast | Call)}
    return max(1, len(operations) * value.dtype.bits // 32)


def shared_axes(c: Contraction, machine: Machine) -> tuple[str, ...]:
    """The m axes of which each thread can take an even part."""
    if machine.threads == 1:
        return ()
    axes = [a for a in c.axes("m") if a != c.vector and c.extent(a) > 1]
    return tuple(a for a in axes[:1] if c.extent(a) % machine.threads == 0)


def shared_axis(c: Contraction, tile: RegisterTile, machine: Machine, copied: bool = False) -> str | None:
    """The outermost m axis, if threads can share it evenly; ``None`` where a batch does as well.

    What a thread reads of ``a`` then comes from its own core, if the kernel before shared the same axis, but
    each thread reads all of ``b``: worth it where its panels are used often, or ``b`` is a smaller part than
    ``a``, which each thread would read once a panel where the second cache level does not keep it. A ``b``
    that is ``copied`` in the same run and that the second level keeps is made by each thread for itself.
    """
    if machine.threads == 1:
        return None
    batch = int(np.prod([c.extent(a) for a in c.axes("batch") if a != c.vector], initial=1))
    if c.b is not None and batch % machine.threads == 0:
        return None
    axes = [a for a in c.axes("m") if a != c.vector and c.extent(a) > 1]
    if not axes:
        return None
    m = math.prod(c.extent(a) for a in axes)
    k = math.prod(c.extent(a) for a in c.axes("k"))
    n = math.prod(c.extent(a) for a in c.axes("n", "batch"))
    constant = 0 if c.b is None else n * k * math.prod(c.extent(a) for a in c.axes("window"))
    own = copied and c.b is not None and operand_bytes(c, c.b) <= BLOCK_SHARE * second_cache(machine.target)
    if (
        not own
        and m // (tile.rows * machine.threads) < TILES_PER_PANEL
        and constant > m * (k + n) + _again(c, tile, machine)
    ):
        return None
    step = tile.rows if axes[0] == row_axis(c) else 1
    return axes[0] if c.extent(axes[0]) % (machine.threads * step) == 0 else None


def operand_bytes(c: Contraction, operand: Load) -> int:
    """Bytes of an operand. Not what its indices span: those of groups leave out the place within one."""
    axes = {it.name for it in c.stage.iters} & operand.vars
    return math.prod(c.extent(a) for a in axes) * operand.dtype.bytes


def _again(c: Contraction, tile: RegisterTile, machine: Machine) -> float:
    """Elements that a thread reads again where it reads all of ``a`` for each of its panels.

    None where the second cache level keeps them; else they count by how much faster than memory they come.
    """
    target = machine.target
    full = {it.name: it.extent.as_int() for it in c.stage.iters}
    if c.b is None or footprint(c.a, full) <= BLOCK_SHARE * second_cache(target):
        return 0.0
    columns = math.prod(c.extent(a) for a in c.axes("n"))
    panels = columns / (machine.threads * tile.vectors * vector_width(c, target))
    elements = math.prod(c.extent(a) for a in c.axes("m", "k") if a != c.vector)
    rate = target.memory[-1].bandwidth / bandwidth(machine, footprint(c.a, full))
    return max(0.0, panels - 1) * elements * rate
