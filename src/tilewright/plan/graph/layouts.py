"""Layouts of the values that flow between kernels: blocked where contractions produce channels so.

A convolution's result has its channels, the axis that moves with the weights, outside of its spatial axes;
vectors run along channels, so the value is stored in blocks of them, ``NCHW16c``. Point-wise kernels and
pooling keep the layout of what they read. Kernels that read a blocked value as if it were plain stay right:
layouts only say where elements lie. Convolutions whose groups do not fill blocks read and write plain values:
lanes of a block would read channels of several groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, prod
from types import MappingProxyType
from typing import Final

from tilewright.analysis import match_contraction, pointwise_reader, run_length
from tilewright.ir import (
    CONST,
    F32,
    Buffer,
    FloorDiv,
    If,
    Index,
    Iter,
    Load,
    Program,
    Stage,
    Store,
    condition_of,
    loads,
    stmt_loads,
    store,
    var,
)
from tilewright.plan.contraction.instructions import has_instructions, matrix_runs
from tilewright.plan.contraction.register_tiling import is_tileable
from tilewright.schedule import rename_buffers, with_layout
from tilewright.target import Target

#: A block holds this part of a vector register at least; smaller blocks waste lanes.
SMALLEST_PART: Final = 2
#: Vectors of a row from which on less than a vector of channels a group is best computed along rows (Zen 4, 8
#: channels a group, 3x3, along rows and in blocks: 112 520, 658 us; 56 151, 177; 28 76, 72; 7 13, 10).
GROUP_ROW_VECTORS: Final = 3
#: Sums of fewer terms are computed in the order in which they are stored: a copy costs as much as they do.
MIN_TERMS: Final = 32
#: Vectors of a row from which on a result is computed along it, and the part of a row that may be wasted.
ROW_VECTORS: Final = 6
WASTED_PART: Final = 16


@dataclass(frozen=True, slots=True)
class Block:
    """Dimension ``dim`` of a value is stored in blocks of ``size``, innermost."""

    dim: int
    size: int

    def indices(self, rank: int) -> tuple[str, ...]:
        """Where an element of a value of so many dimensions lies."""
        outer = [f"d{n}//{self.size}" if n == self.dim else f"d{n}" for n in range(rank)]
        return (*outer, f"d{self.dim}%{self.size}")


@dataclass(frozen=True, slots=True)
class Layouts:
    """Where the elements of values lie, as ``set_layout`` says it: an index a physical dimension.

    Those of ``values`` lie so wherever they are read; those of ``copied``, which stay in order, are computed
    so by the kernel that makes them, and copied. ``converted`` are values that one kernel, named by the first
    value that it makes, brings into another layout before it reads them (no indices: row by row).
    """

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    copied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    converted: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("values", "copied", "converted"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))


@dataclass(frozen=True, slots=True)
class Flow:
    """A kernel's program, and the model's values that its arguments hold, by buffer name.

    One that is ``repeated`` runs in order on parts of these: it takes no parts of a batch.
    """

    program: Program
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    repeated: bool = False


def choose_layouts(flows: Sequence[Flow], fixed: Collection[str], target: Target) -> Layouts:
    """Layouts of the values that kernels, in the order in which they run, pass on.

    Values in ``fixed`` stay plain (inputs and outputs of the model, values seen under several shapes).
    """
    chosen: dict[str, Block] = {}
    layouts: dict[str, tuple[str, ...]] = {}
    copied: dict[str, tuple[str, ...]] = {}
    fixed = {*fixed, *_read_along_rows(flows, target)}
    summed = _summed_by_instructions(flows, target)
    for flow in flows:
        program = flow.program
        known = {name: chosen[value] for name, value in flow.inputs.items() if value in chosen}
        for b in program.outputs:
            value = flow.outputs.get(b.name)
            if value is None:
                continue
            block = preferred_block(program, b, known, target) or summed.get(value)
            if block is None:
                continue
            indices = block.indices(len(b.shape))
            if value not in fixed:
                chosen[value] = block
                layouts[value] = indices
            elif _terms(program, b.name) >= MIN_TERMS and not _has_long_rows(program, b.name, target):
                if _has_panels(through_layout(program, b, indices), block):
                    copied[value] = indices
    return Layouts(layouts, copied)


def with_layouts(flow: Flow, layouts: Layouts) -> Program:
    """A kernel's program with its arguments where layouts say; what has a layout already keeps it.

    Raises ScheduleError for a layout that puts two elements into one place.
    """
    program = flow.program
    for b in program.outputs:
        indices = layouts.copied.get(flow.outputs.get(b.name, ""))
        if indices is not None:
            program = through_layout(program, b, indices)
    asked = layouts.converted.get(next(iter(flow.outputs.values()), ""), {})
    for b in program.inputs:
        if flow.inputs.get(b.name) in asked:
            program = from_layout(program, b, asked[flow.inputs[b.name]])

    def stored(b: Buffer, names: Mapping[str, str]) -> Buffer:
        indices = layouts.values.get(names.get(b.name, ""))
        return b if indices is None or b.layout is not None else with_layout(b, indices)

    return replace(
        program,
        inputs=tuple(stored(b, flow.inputs) for b in program.inputs),
        outputs=tuple(stored(b, flow.outputs) for b in program.outputs),
    )


def assign_layouts(flows: Sequence[Flow], fixed: Collection[str], target: Target) -> tuple[Program, ...]:
    """Programs, in the order in which they run, with the layouts that :func:`choose_layouts` says."""
    layouts = choose_layouts(flows, fixed, target)
    return tuple(with_layouts(flow, layouts) for flow in flows)


def _read_along_rows(flows: Sequence[Flow], target: Target) -> set[str]:
    """Values that contractions read, as they are or padded, whose vectors run along rows.

    That are those by groups that do not fill blocks of results, and windows with few results each: what
    blocks hold would be put in rows for every tap.
    """
    found: set[str] = set()
    lanes = target.lanes(F32)
    for flow in flows:
        todo = [name for s in flow.program.stages for name in (*_small_groups(s, lanes), *_few(s, lanes))]
        while todo:
            name = todo.pop()
            if name in flow.inputs:
                found.add(flow.inputs[name])
            todo += [b for s in flow.program.producers(name) if not s.is_reduction for b in s.reads]
    return found


def _summed_by_instructions(flows: Sequence[Flow], target: Target) -> dict[str, Block]:
    """Values whose channels are summed by instructions: these take neighbours, which they are in blocks."""
    pairs = {frozenset((row.a.dtype, row.b.dtype)) for row in target.contractions}
    found: dict[str, Block] = {}
    for flow in flows:
        known = {b.name for b in flow.program.inputs if b.scope == CONST}
        for stage in flow.program.stages if pairs else ():
            reds = {it.name for it in stage.iters if it.kind == "red"}
            read = {ld for ld in stmt_loads(stage.body) if ld.buffer not in stage.writes}
            given = [ld for ld in read if ld.buffer in flow.inputs and ld.buffer not in known]
            if len(read) != 2 or len(given) != 1 or frozenset(ld.dtype for ld in read) not in pairs:
                continue
            (image,) = given
            dims = [d for d, i in enumerate(image.indices) if i.as_var() in reds]
            extent = _extent(flow, image, dims)
            size = None if extent is None else _largest_block(extent, target.lanes(F32))
            if size is not None:
                found[flow.inputs[image.buffer]] = Block(dims[0], size)
    return found


def _extent(flow: Flow, ld: Load, dims: Sequence[int]) -> int | None:
    """The extent of the one dimension of an image that is summed whole, where others are slid over."""
    if len(dims) != 1 or len(ld.indices) < 3 or dims[0] == len(ld.indices) - 1:
        return None
    extent = flow.program.buffer(ld.buffer).shape[dims[0]]
    return extent.as_int() if extent.is_const else None


def _few(stage: Stage, lanes: int) -> list[str]:
    """What a sum of products reads by windows along rows, for fewer results each than any block holds."""
    pars = [it for it in stage.iters if it.kind == "par"]
    reds = {it.name for it in stage.iters if it.kind == "red" and it.extent != Index(1)}
    if not reds or not pars or not all(it.extent.is_const for it in pars) or pars[-1].extent.as_int() < lanes:
        return []
    found = []
    for ld in stmt_loads(stage.body):
        moved = {v for i in ld.indices for v in i.vars}
        results = [it.extent.as_int() for it in pars if it.name not in moved]
        windowed = any(pars[-1].name in i.vars and reds & i.vars for i in ld.indices)
        # channels are summed: windows of single channels, as in pooling, keep the layout of what they read
        windowed = windowed and any(i.as_var() in reds for i in ld.indices)
        if windowed and results and prod(results) < lanes >> (SMALLEST_PART - 1):
            found.append(ld.buffer)
    return found


def _small_groups(stage: Stage, lanes: int) -> list[str]:
    """What a reduction reads, along an axis of its result, by groups that are not whole blocks of it."""
    extents = {it.name: it.extent for it in stage.iters if it.kind == "par" and it.extent.is_const}
    found = []
    for ld in stmt_loads(stage.body) if stage.is_reduction else ():
        for axis, divisor in _groups(ld, extents):
            size = _group_block(stage, gcd(extents[axis].as_int(), divisor), lanes)
            if size is None:
                found.append(ld.buffer)
    return found


def _group_block(stage: Stage, channels: int, lanes: int) -> int | None:
    """The block of so many channels a group, ``None`` where their results are best computed along rows.

    Those of less than a vector are, where rows are read one by one and have some vectors.
    """
    size = _largest_block(channels, lanes)
    last = [it for it in stage.iters if it.kind == "par"][-1]
    apart = {ld.indices[-1].coefficient(last.name) for ld in stmt_loads(stage.body) if ld.indices} - {0}
    rows = apart == {1} and last.extent.is_const and last.extent.as_int() >= GROUP_ROW_VECTORS * lanes
    return None if size is None or (size < lanes and rows) else size


def _groups(ld: Load, axes: Collection[str]) -> Iterator[tuple[str, int]]:
    """Axes along which a load moves by groups only, and their elements."""
    for atom, _ in (term for i in ld.indices for term in i.terms):
        axis = atom.arg.as_var() if isinstance(atom, FloorDiv) else None
        if isinstance(atom, FloorDiv) and axis is not None and axis in axes:
            yield axis, atom.divisor


def _largest_block(extent: int, lanes: int) -> int | None:
    """The largest block that divides an extent, if there is one."""
    return next((lanes >> k for k in range(SMALLEST_PART) if extent % (lanes >> k) == 0), None)


def with_blocks(program: Program, target: Target) -> Program:
    """The program with its own intermediate values stored as kernels of their own would pass them on."""

    def stored(b: Buffer) -> Buffer:
        block = None if b.layout is not None else preferred_block(program, b, {}, target)
        return b if block is None else with_layout(b, block.indices(len(b.shape)))

    return replace(program, temps=tuple(map(stored, program.temps)))


def through_layout(program: Program, output: Buffer, indices: Sequence[str]) -> Program:
    """The program with an output computed in a temporary buffer of some layout, and then copied in order."""
    name = f"{output.name}_blocks"
    moved = {output.name: name}
    dims = tuple(f"d{n}" for n in range(len(output.shape)))
    here = tuple(map(var, dims))
    copy = Stage(
        f"{output.name}_in_order",
        tuple(Iter(d, Index(0), extent, "par") for d, extent in zip(dims, output.shape, strict=True)),
        store(output.name, here, Load(name, here, output.dtype)),
    )
    return replace(
        program,
        temps=(*program.temps, with_layout(Buffer(name, output.shape, output.dtype), indices)),
        stages=(*(_renamed(stage, moved) for stage in program.stages), copy),
    )


def from_layout(program: Program, source: Buffer, indices: Sequence[str]) -> Program:
    """The program with an input copied into a temporary buffer of some layout, where all stages read it."""
    name = f"{source.name}_converted"
    dims = tuple(f"d{n}" for n in range(len(source.shape)))
    here = tuple(map(var, dims))
    copy = Stage(
        f"{source.name}_converts",
        tuple(Iter(d, Index(0), extent, "par") for d, extent in zip(dims, source.shape, strict=True)),
        store(name, here, Load(source.name, here, source.dtype)),
    )
    made = Buffer(name, source.shape, source.dtype)
    return replace(
        program,
        temps=(*program.temps, with_layout(made, indices) if indices else made),
        stages=(copy, *(_renamed(stage, {source.name: name}) for stage in program.stages)),
    )


def _has_panels(program: Program, block: Block) -> bool:
    """Whether a contraction's vectors run along channels that only its weights move with, in whole blocks."""
    for stage in program.stages:
        if stage.is_reduction:
            c = match_contraction(program, stage, _end(program, stage))
            if c is not None and c.run == block.size and c.vector in c.axes("n"):
                return c.group is None or c.group % block.size == 0
    return False


def _end(program: Program, stage: Stage) -> Stage:
    """The last of the stages that follow point by point, up to one whose result has a layout."""
    while program.buffer(stage.writes[0]).layout is None:
        reader = pointwise_reader(program, stage)
        if reader is None:
            break
        stage = reader
    return stage


def _has_long_rows(program: Program, output: str, target: Target) -> bool:
    """Whether a result's own rows fill enough vectors, so that it is best computed as it is stored.

    Windows over two axes are left out: blocks are as fast for those (rows of 56 and 64 elements were slower),
    and Winograd's method wants them.
    """
    for stage in program.stages:
        last = _end(program, stage)
        if not stage.is_reduction or output not in last.writes:
            continue
        c = is_tileable(program, stage, target, last, packed=False)
        if c is None or c.b is None or c.run is not None or run_length(c.b, c.vector) is not None:
            continue
        if has_instructions(c, target):
            # these sum along channels, neighbours in blocks
            continue
        lanes, extent = target.lanes(c.write.value.dtype), c.extent(c.vector)
        windows = [a for a in c.axes("window") if c.extent(a) > 1]
        wasted = -(-extent // lanes) * lanes - extent
        if len(windows) < 2 and extent >= ROW_VECTORS * lanes and wasted * WASTED_PART <= extent:
            return True
    return False


def _renamed(stage: Stage, names: Mapping[str, str]) -> Stage:
    init = None if stage.init is None else rename_buffers(stage.init, names)
    return replace(stage, body=rename_buffers(stage.body, names), init=init)


def _terms(program: Program, name: str) -> int:
    """Terms of the longest sum that an element of a buffer is made of, on the way to its definition."""
    most, todo, seen = 1, [name], {name}
    while todo:
        for stage in program.producers(todo.pop()):
            most = max(
                most,
                prod(it.extent.as_int() for it in stage.iters if it.kind == "red" and it.extent.is_const),
            )
            fresh = [b for b in stage.reads if b not in seen]
            todo += fresh
            seen.update(fresh)
    return most


def preferred_block(
    program: Program, output: Buffer, known: Mapping[str, Block], target: Target
) -> Block | None:
    """How ``output`` should be blocked, given the blocks of inputs; ``None`` for plain."""
    if len(output.shape) < 3 or (not output.dtype.is_float and output.dtype.bytes > F32.bytes):
        return None
    if all(e == Index(1) for e in output.shape[2:]):
        return None
    wanted = _trace(program, output.name, known, set(), target.lanes(F32))
    if wanted is None:
        return None
    extent = output.shape[wanted.dim]
    if not extent.is_const:
        return None
    # narrower floats are computed with in f32: a block is a vector there
    lanes = target.lanes(output.dtype if output.dtype.bytes > F32.bytes else F32)
    sizes = [lanes >> k for k in range(SMALLEST_PART)]
    sizes[:0] = [n for n in matrix_runs(output.dtype, target) if n > lanes]
    if wanted.size in sizes and extent.as_int() % wanted.size == 0:
        return wanted
    size = next((n for n in sizes if extent.as_int() % n == 0), None)
    return Block(wanted.dim, size) if size else None


def _trace(
    program: Program, name: str, known: Mapping[str, Block], seen: set[str], lanes: int
) -> Block | None:
    """The block that a buffer's definition asks for, size 0 where only the dimension is known."""
    if name in seen:
        return None
    seen.add(name)
    for stage in program.producers(name):
        dims = _dimensions(stage)
        if dims is None:
            continue
        if _small_groups(stage, lanes):
            return None
        channel = _channel(program, stage, dims)
        if channel is not None:
            together = [
                n for ld in stmt_loads(stage.body) for a, n in _groups(ld, dims) if a == dims[channel]
            ]
            size = _group_block(stage, gcd(*together), lanes) if together else None
            return Block(channel, size or 0)
        for ld in stmt_loads(stage.body):
            if ld.buffer == name:
                continue
            source = known.get(ld.buffer) or _trace(program, ld.buffer, known, seen, lanes)
            if source is None or source.dim >= len(ld.indices):
                continue
            along = ld.indices[source.dim].as_var()
            if along in dims:
                return Block(dims.index(along), source.size)
    return None


def _dimensions(stage: Stage) -> list[str] | None:
    """The iterator along each dimension of what a stage writes."""
    _, body = condition_of(stage.body)
    if not isinstance(body, Store) or len(body.writes) != 1:
        return None
    names = [i.as_var() for i in body.writes[0].indices]
    return [n for n in names if n is not None] if None not in names else None


def _channel(program: Program, stage: Stage, dims: list[str]) -> int | None:
    """The dimension that moves with constant weights, where the last dimension does not."""
    if not stage.is_reduction or len(dims) < 3:
        return None
    constants = {b.name for b in program.inputs if b.scope == CONST}
    weights: list[Load] = []
    others: list[Load] = []
    body = stage.body.then if isinstance(stage.body, If) else stage.body
    assert isinstance(body, Store)
    for ld in loads(body.writes[0].value):
        if ld.buffer == body.writes[0].buffer:
            continue
        (weights if ld.buffer in constants else others).append(ld)
    if len(weights) != 1 or not others:
        return None
    moved = {v for i in weights[0].indices for v in i.vars}
    if dims[-1] in moved:
        return None
    found = [d for d, name in enumerate(dims) if name in moved]
    return found[-1] if found else None
