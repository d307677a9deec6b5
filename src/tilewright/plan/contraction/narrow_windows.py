"""Windows over planes too narrow for vectors: a block of channels is put side by side, and back afterwards.

For depthwise convolutions, pooling and sums of planes whose rows have fewer elements than half a vector::

    parallel for (batch, blocks of channels):
        x_block[h, w, c] = x[c, h, w]             # squares transposed in registers; first cache level
        y_block[h, w, c] = window of x_block      # the register tiles of blocked layouts
        y[c, h, w] = y_block[h, w, c]
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tilewright.analysis import Contraction, reads_in_place, run_length
from tilewright.cost import Machine, second_cache
from tilewright.ir import CONST, Buffer, Index, Load, Program, Stage, stmt_loads
from tilewright.plan.contraction.microkernel import loops_below
from tilewright.plan.contraction.nest import schedule_inner
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.plan.graph.layouts import Block
from tilewright.plan.rows.nest import parallelise
from tilewright.schedule import Schedule, with_layout
from tilewright.support import ScheduleError
from tilewright.target import Target

#: Part of the second cache level that a block of channels may take, read and written.
L2_PART: Final = 0.5
#: A block holds this part of a vector register at least.
SMALLEST_PART: Final = 2


@dataclass(frozen=True, slots=True)
class Planes:
    """A reduction over windows, ``last`` (itself or its only reader, in place), and the blocks it is done in.

    ``channel`` is the dimension that is cut into blocks of ``size``, in the result and in the operand
    ``source``, which moves along it with the result.
    """

    stage: Stage
    last: Stage
    channel: int
    source: str
    size: int

    @property
    def epilogue(self) -> Stage | None:
        """The reader, if there is one."""
        return None if self.last is self.stage else self.last

    @property
    def vector(self) -> str:
        """The iterator of the reduction along the channels."""
        return [it.name for it in self.stage.iters if it.kind == "par"][self.channel]

    def blocked(self, program: Program) -> Program:
        """The program with both ends stored in blocks."""
        ends = (self.source, self.last.writes[0])
        block = Block(self.channel, self.size)

        def stored(b: Buffer) -> Buffer:
            return with_layout(b, block.indices(len(b.shape))) if b.name in ends else b

        return replace(
            program,
            inputs=tuple(map(stored, program.inputs)),
            outputs=tuple(map(stored, program.outputs)),
            temps=tuple(map(stored, program.temps)),
        )


def find_planes(program: Program, last: Stage, target: Target) -> Planes | None:
    """The reduction that ``last`` ends, if it is over windows of planes and channels offer vectors."""
    stage = last if last.is_reduction else _reduction_before(program, last)
    if stage is None or not all(it.extent.is_const for s in (stage, last) for it in s.iters):
        return None
    extents = [it.extent.as_int() for it in stage.iters if it.kind == "par"]
    out = program.buffer(last.writes[0])
    if len(out.shape) != len(extents) or out.layout is not None:
        return None
    lanes = target.lanes(out.dtype)
    sizes = [lanes >> k for k in range(SMALLEST_PART)]
    for channel in range(len(extents) - 2, -1, -1):
        size = next((size for size in sizes if extents[channel] % size == 0), None)
        for source in stage.reads if size is not None else ():
            b = program.buffer(source)
            if b.layout is not None or b.scope == CONST or len(b.shape) != len(extents):
                continue
            planes = Planes(stage, last, channel, source, size or lanes)
            if any(ld.indices[channel].as_var() != planes.vector for ld in _loads_of(stage, source)):
                continue
            if _fits(program, planes, target) and _contraction(planes.blocked(program), planes, target):
                return planes
    return None


def _loads_of(stage: Stage, buffer: str) -> list[Load]:
    return [ld for ld in stmt_loads(stage.body) if ld.buffer == buffer]


def _reduction_before(program: Program, last: Stage) -> Stage | None:
    """The reduction whose result ``last`` alone reads, element by element."""
    for name in last.reads:
        producers = program.producers(name)
        alone = len(producers) == 1 and program.consumers(name) == (last,)
        if alone and name in {t.name for t in program.temps} and producers[0].is_reduction:
            if reads_in_place(last, name) and program.buffer(name).layout is None:
                return producers[0]
    return None


def _fits(program: Program, p: Planes, target: Target) -> bool:
    """Whether a block of channels, read and written, stays in the second cache level."""
    taken = 0
    for b in (program.buffer(p.source), program.buffer(p.last.writes[0])):
        if not all(e.is_const for e in b.shape):
            return False
        taken += prod(e.as_int() for e in b.shape[p.channel + 1 :]) * p.size * b.dtype.bytes
    return taken <= L2_PART * second_cache(target)


def _contraction(blocked: Program, p: Planes, target: Target) -> Contraction | None:
    """The reduction as it is inside of a block: axes around it are one index."""
    c = is_tileable(blocked, p.stage, target, p.epilogue, packed=False)
    if c is None or c.run != p.size or c.a.buffer != p.source:
        return None
    if c.b is not None and not c.axes("window"):
        # a product
        return None
    pars = [it.name for it in p.stage.iters if it.kind == "par"]
    inside = dict.fromkeys(pars[: p.channel], 1) | {p.vector: p.size}
    if c.vector != p.vector or run_length(c.a, c.vector) != p.size:
        return None
    iters = tuple(
        replace(it, lo=Index(0), hi=Index(inside.get(it.name, it.extent.as_int()))) for it in p.stage.iters
    )
    return replace(c, stage=replace(p.stage, iters=iters))


def schedule_planes(
    s: Schedule, program: Program, p: Planes, machine: Machine, constants: Collection[str]
) -> Schedule:
    """Schedule such a reduction. Loops are those of the unscheduled program.

    Raises ScheduleError where a primitive refuses a step.
    """
    target = machine.target
    found = is_tileable(p.blocked(program), p.stage, target, p.epilogue, packed=False)
    packed = None if found is None else panel_layout(p.blocked(program), found, target, constants)
    if packed is not None:
        s = s.set_layout(*packed)
        program = replace(program, inputs=tuple(b for b in s.func.buffers if b.name not in s.func.outputs))
    c = _contraction(p.blocked(program), p, target)
    if c is None:
        raise ScheduleError(f"{p.stage.name} has no register tile in blocks of channels")
    pars = [it for it in p.last.iters if it.kind == "par"]
    loops = dict(zip([it.name for it in p.last.iters], s.loops(p.last.name), strict=True))
    outer = [loops[it.name] for it in pars[: p.channel]]
    channel = loops[pars[p.channel].name]
    block, lane = f"{channel}_block", f"{channel}_lane"
    s = s.split(channel, p.size, names=[block, lane])
    s = s.reorder(*outer, block, *[loops[it.name] for it in p.last.iters[p.channel + 1 :]], lane)
    out = p.last.writes[0]
    read, made = f"{p.source}_block", f"{out}_block"
    dims = [f"d{n}" for n in range(len(pars)) if n != p.channel]
    layout = (*dims, f"d{p.channel}")
    s = schedule_inner(s, c, block, target, p.epilogue)
    s = s.cache(p.source, at=block, name=read, layout=layout)
    s = s.cache(out, at=block, mode="write", name=made, layout=layout)
    s = _copy_in(s, read, p, block)
    s = _copy_out(s, f"{made}_out", p, block)
    work = prod(it.extent.as_int() for it in p.stage.iters)
    return parallelise(s, [*outer, block], work, machine)


def _plane(s: Schedule, name: str, p: Planes, within: str) -> tuple[Schedule, list[str], str, str]:
    """The loops of a copy: those before the channels', that one, and those of the plane as one."""
    loops = loops_below(s, name, within)
    before, channel, plane = loops[: p.channel], loops[p.channel], loops[p.channel + 1 :]
    for inner in plane[1:]:
        s = s.fuse(plane[0], inner, names=[f"{name}_plane"])
        plane[0] = f"{name}_plane"
    return s, before, channel, plane[0]


def _copy_in(s: Schedule, name: str, p: Planes, within: str) -> Schedule:
    """Squares of channels and neighbours in the plane: each is transposed."""
    s, before, channel, plane = _plane(s, name, p, within)
    size = min(p.size, s.loop(plane).extent.as_int())
    ragged = s.loop(plane).extent.as_int() % size != 0
    square, place = f"{plane}_square", f"{plane}_place"
    s = s.split(plane, size, names=[square, place]).reorder(*before, square, channel, place)
    s = s.unroll(place).vectorize(channel)
    return s.partition(square, -1) if ragged else s


def _copy_out(s: Schedule, name: str, p: Planes, within: str) -> Schedule:
    """Vectors along the plane, all channels of the block at a time."""
    s, before, channel, plane = _plane(s, name, p, within)
    return s.reorder(*before, plane, channel).unroll(channel).vectorize(plane)
