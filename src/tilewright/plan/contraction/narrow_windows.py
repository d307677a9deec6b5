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
from tilewright.ir import CONST, Buffer, Index, Load, Program, Stage, int_range, iter_env, stmt_loads
from tilewright.plan.contraction.packing import panel_layout
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.plan.contraction.tiles import inner_tile
from tilewright.plan.graph.layouts import Block
from tilewright.plan.threads import share_steps
from tilewright.schedule import with_layout
from tilewright.support import ScheduleError
from tilewright.target import Target
from tilewright.tiling import Body, Cut, Leaf, Nest, Place, Step, chain, sequence, shared_chain

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
    if stage is None or not all(
        it.extent.is_const and it.extent.as_int() > 0 for s in (stage, last) for it in s.iters
    ):
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


def planes_nest(program: Program, p: Planes, machine: Machine, constants: Collection[str]) -> Nest:
    """The nest of such a reduction. Raises ScheduleError where it has no register tile."""
    target = machine.target
    found = is_tileable(p.blocked(program), p.stage, target, p.epilogue, packed=False)
    packed = None if found is None else panel_layout(p.blocked(program), found, target, constants)
    laid = program
    if packed is not None:
        inputs = (with_layout(b, packed[1]) if b.name == packed[0] else b for b in program.inputs)
        laid = replace(program, inputs=tuple(inputs))
    c = _contraction(p.blocked(laid), p, target)
    if c is None:
        raise ScheduleError(f"{p.stage.name} has no register tile in blocks of channels")
    inside = inner_tile(c, p.epilogue, {it.name: it.extent.as_int() for it in c.stage.iters}, laid, target)
    pars = [it for it in p.last.iters if it.kind == "par"]
    dims = [f"d{n}" for n in range(len(pars))]
    layout = (*(d for d in dims if d != f"d{p.channel}"), f"d{p.channel}")
    kept = Place(p.last.writes[0], "keep", "local", inside, _copy_out(p, [it.name for it in pars]), layout)
    body = sequence(Place(p.source, "copy", "local", _copy_in(p, program, dims), None, layout), kept)
    steps = [Step(it.name, 1, count=it.extent.as_int()) for it in pars[: p.channel]]
    steps.append(Step(pars[p.channel].name, p.size, count=-(-pars[p.channel].extent.as_int() // p.size)))
    work = prod(it.extent.as_int() for it in p.stage.iters)
    steps, shared = share_steps(steps, work, machine)
    return Nest(p.last.name, shared_chain(steps, shared, body), () if packed is None else (packed,))


def _copy_in(p: Planes, program: Program, dims: list[str]) -> Body:
    """Blocks of channels and neighbours in the plane: each is transposed."""
    plane = "*".join(dims[p.channel + 1 :])
    extent = prod(_read_of(p, program)[p.channel + 1 :])
    size = min(p.size, extent)
    steps = [Step(plane, size), Step(dims[p.channel], 1, "vector"), Step(plane, 1, "unroll")]
    square, whole = chain(steps, Leaf(p.source)), extent // size * size
    body = Cut(plane, (whole,), (square, square)) if extent % size else square
    return chain([Step(d, 1) for d in dims[: p.channel]], body)


def _read_of(p: Planes, program: Program) -> list[int]:
    """How many elements of each dimension of the source the windows reach: strides may leave out the last."""
    env, out = iter_env(p.stage.iters), []
    for d, size in enumerate(e.as_int() for e in program.buffer(p.source).shape):
        ends = [int_range(ld.indices[d], env) for ld in _loads_of(p.stage, p.source)]
        first = min(0 if lo is None else max(lo, 0) for lo, _ in ends)
        last = max(size - 1 if hi is None else min(hi, size - 1) for _, hi in ends)
        out.append(last - first + 1)
    return out


def _copy_out(p: Planes, axes: list[str]) -> Body:
    """Vectors along the plane, all channels of the block at a time."""
    before = [Step(a, 1) for a in axes[: p.channel]]
    plane = Step("*".join(axes[p.channel + 1 :]), 1, "vector")
    return chain([*before, plane, Step(axes[p.channel], 1, "unroll")], Leaf(p.last.name))
