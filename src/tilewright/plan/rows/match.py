"""Reductions along memory: which stages they are, and what each load does.

Sums, products, maxima and minima whose terms lie together along a reduction axis while the result offers no
vectors, or would need an operand gathered that few rows use.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tilewright.analysis import flat_index, pointwise_reader, reduction_of
from tilewright.ir import Index, Load, Program, Stage, loads, var
from tilewright.plan.contraction.output_order import blocks_of
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.register_tiling import VECTORS_OF_SUMS, is_tileable
from tilewright.plan.far_prefetch import stride
from tilewright.target import Target

#: Elements of the result that share what they load, at most: those of the innermost axes.
MAX_COLUMNS: Final = 8
#: Rows that share a load which vectors would have to gather, at most: with more, gathering it pays.
MAX_GATHERED_ROWS: Final = 8
#: Elements apart, at most, and rows up to which lanes are picked from whole vectors of an operand; others are
#: copied along the reduction first. Copied, picked, ms: 64x4x100000 0.52, 0.39; 512x2x4096 0.058, 0.069;
#: 512x3x4096 0.065, 0.094; 512x4x20000 0.68, 0.73.
MAX_PICKED_APART, MAX_PICKED_ROWS = 4, 64


@dataclass(frozen=True, slots=True)
class LaneMatch:
    """A reduction along memory: over ``axis``, along which the loads ``moving`` move.

    ``gathered`` are those of them that do not move by single elements, nor by few; the elements of others
    lie ``picked`` apart at most. ``shared`` says whether several results use one load. ``pars`` and ``reds``
    are the iterators with their extents. A whole value that is stored in blocks of ``axis`` is reduced block
    by block: ``block`` elements lie together, 0 where all of the axis do.
    """

    axis: str
    moving: tuple[Load, ...]
    gathered: tuple[Load, ...]
    picked: int
    shared: bool
    pars: tuple[tuple[str, int], ...]
    reds: tuple[tuple[str, int], ...]
    block: int = 0

    @property
    def extent(self) -> int:
        """Elements along the reduction."""
        return dict(self.reds)[self.axis]

    @property
    def columns(self) -> tuple[tuple[str, int], ...]:
        """The innermost axes that fit into one tile as a whole."""
        at = len(self.pars)
        while at > 0 and prod(n for _, n in self.pars[at - 1 :]) <= MAX_COLUMNS:
            at -= 1
        return self.pars[at:]

    @property
    def results(self) -> int:
        """Results of a row: all of its columns."""
        return prod(n for _, n in self.columns)

    @property
    def rest(self) -> tuple[tuple[str, int], ...]:
        """The axes around the columns."""
        return self.pars[: len(self.pars) - len(self.columns)]

    @property
    def row(self) -> tuple[str, int] | None:
        """The axis next to the columns, some of which a tile has of it."""
        return self.rest[-1] if self.rest else None


def ending_stage(program: Program, stage: Stage) -> Stage | None:
    """The stage that makes an output of the program from ``stage``: itself or its only reader, in place."""
    outputs = {b.name for b in program.outputs}
    if set(stage.writes) <= outputs:
        return stage
    reader = pointwise_reader(program, stage)
    return reader if reader is not None and set(reader.writes) <= outputs else None


def is_of_all(program: Program, stage: Stage) -> bool:
    """Whether a stage reduces all there is to one element, which others then read in loops of their own.

    Where these have a loop of one iteration for the only row, everything about it is done in that.
    """
    one = Index(1)
    if not stage.is_reduction or any(it.extent != one for it in stage.iters if it.kind == "par"):
        return False
    made, after = set(stage.writes), False
    for reader in program.stages[program.stages.index(stage) + 1 :]:
        pars = [it.extent for it in reader.iters if it.kind == "par"]
        if made.isdisjoint(reader.reads) or reader.is_reduction:
            continue
        made.update(reader.writes)
        if any(extent != one for extent in pars):
            after = True
            if pars[0] == one:
                return False
    return after


def match_lanes(
    program: Program, stage: Stage, target: Target, constants: Collection[str]
) -> LaneMatch | None:
    """What is known of a reduction that is best done along memory; ``None`` for others."""
    update = reduction_of(stage)
    if update is None or update.guard or not update.old.dtype.is_float:
        return None
    if not all(it.extent.is_const and it.lo.is_const for it in stage.iters):
        return None
    write, old = update.write, update.old
    pars = tuple((it.name, it.extent.as_int()) for it in stage.iters if it.kind == "par")
    reds = tuple((it.name, it.extent.as_int()) for it in stage.iters if it.kind == "red")
    if [i.as_var() for i in write.indices] != [name for name, _ in pars]:
        return None
    terms = [ld for ld in dict.fromkeys(loads(write.value)) if ld != old]
    if any(program.buffer(ld.buffer).layout is not None for ld in terms):
        return _in_blocks(program, terms, pars, reds, target)
    axis = max(
        (name for name, _ in reds if any(_along(program, ld, name) for ld in terms)),
        key=lambda name: dict(reds)[name],
        default=None,
    )
    if axis is None:
        return None
    extent, lanes = dict(reds)[axis], target.lanes(write.value.dtype)
    # vectors, or half ones, of the axis itself or of the axes around it, unless windows slide along it
    if extent < VECTORS_OF_SUMS * lanes and any(
        len(i.vars) > 1 for ld in terms for i in ld.indices if axis in i.vars
    ):
        return None
    if extent < max(2, lanes // 2) or prod(n for _, n in reds) < VECTORS_OF_SUMS * lanes:
        return None
    if not _suits(program, stage, target, constants):
        return None
    moving = [ld for ld in terms if any(axis in i.vars for i in ld.indices)]
    apart = {ld: _elements_apart(program, ld, axis) for ld in moving if not _along(program, ld, axis)}
    found = LaneMatch(axis, tuple(moving), (), 1, False, pars, reds)
    rows = prod(n for _, n in found.rest)
    gathered = tuple(ld for ld, n in apart.items() if not 0 < n <= MAX_PICKED_APART or rows > MAX_PICKED_ROWS)
    picked = max((n for ld, n in apart.items() if ld not in gathered), default=1)
    columns = {name for name, _ in found.columns}
    alike = any(not any(v in columns for i in ld.indices for v in i.vars) for ld in moving)
    return replace(found, gathered=gathered, picked=picked, shared=alike and len(moving) > 1)


def _in_blocks(
    program: Program,
    terms: Sequence[Load],
    pars: tuple[tuple[str, int], ...],
    reds: tuple[tuple[str, int], ...],
    target: Target,
) -> LaneMatch | None:
    """The reduction of one whole value that is stored in whole blocks, half vectors or more each."""
    layout = program.buffer(terms[0].buffer).layout
    if len(terms) != 1 or layout is None or any(n > 1 for _, n in pars):
        return None
    blocked = blocks_of(layout)
    axis = None if blocked is None else terms[0].indices[blocked[0]].as_var()
    if (
        blocked is None
        or axis not in dict(reds)
        or any(i.as_var() is None for i in terms[0].indices if i.vars)
    ):
        return None
    lanes, (_, size) = target.lanes(terms[0].dtype), blocked
    vector = min(size, lanes)
    if size % vector or vector < max(2, lanes // 2) or dict(reds)[axis] % size:
        return None
    if prod(n for _, n in reds) < VECTORS_OF_SUMS * lanes:
        return None
    return LaneMatch(axis, tuple(terms), (), 1, False, pars, reds, vector)


def _suits(program: Program, stage: Stage, target: Target, constants: Collection[str]) -> bool:
    """Whether vectors along the result are impossible, or need an operand gathered that few rows use."""
    if is_tileable(program, stage, target) is not None:
        return False
    loose = is_tileable(program, stage, target, packed=False)
    if loose is None or loose.b is None:
        return True
    if panel_layout(program, loose, target, constants) is not None:
        return False
    return prod(loose.extent(a) for a in loose.axes("m")) <= MAX_GATHERED_ROWS


def _along(program: Program, ld: Load, axis: str) -> bool:
    """Whether a load moves by single elements along an axis, and not otherwise."""
    place = flat_index(program, ld.buffer, ld.indices)
    return place is not None and axis not in (place - var(axis)).vars


def _elements_apart(program: Program, ld: Load, axis: str) -> int:
    """Elements between what neighbours along an axis load; 0 where sizes are known only at run time."""
    buffer = program.buffer(ld.buffer)
    return stride(buffer, ld, axis) if all(e.is_const for e in buffer.shape) else 0
