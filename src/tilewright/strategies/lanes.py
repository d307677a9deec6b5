"""Reductions along memory: vectors run along the reduction axis, many accumulators, joined at the end.

For sums (products, maxima, minima) whose terms lie together along a reduction axis while the result offers
no vectors: rows of a matrix, dot products with few columns (GEMV), whole tensors. The stage is split in the
program by ``rfactor``::

    C_rf[i, j, l] = sum over K of a[i, K*lanes + l] * b[j, K*lanes + l]       # vectors
    C[i, j]       = sum over l of C_rf[i, j, l]                               # in registers

and before that, where the result has too few elements for all threads, into one part a thread of the
outermost reduction axis. The nest is then that of a contraction whose rows share the loaded vectors of ``b``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tilewright.ir import Binary, If, Index, Iter, Load, Program, Stage, Store, int_lower, loads
from tilewright.schedule import Schedule
from tilewright.strategies.caches import buffer_bytes, last_cache, perhaps_kept, rows_collide
from tilewright.strategies.lane_chunks import (
    ROWS,
    chunk_steps,
    next_tiles,
    sum_chunks,
    sums_in_registers,
    tiles_of_block,
)
from tilewright.strategies.packing import panel_layout
from tilewright.strategies.readers import pointwise_reader
from tilewright.strategies.requests import FAR, NEXT_SHARE, further, into_first_level, steps_ahead, stride
from tilewright.strategies.rows import MIN_PARALLEL_ELEMENTS, elements, parallelise
from tilewright.strategies.tiles import is_tileable
from tilewright.target import Target

#: Elements of the result that share what they load, at most: those of the innermost axes.
MAX_COLUMNS: Final = 8
#: Rows that share a load which vectors would have to gather, at most: with more, gathering it pays.
MAX_GATHERED_ROWS: Final = 8
#: Elements apart, at most, and rows up to which lanes are picked from whole vectors of an operand; others are
#: copied along the reduction first. Copied, picked, ms: 64x4x100000 0.52, 0.39; 512x2x4096 0.058, 0.069;
#: 512x3x4096 0.065, 0.094; 512x4x20000 0.68, 0.73.
MAX_PICKED_APART, MAX_PICKED_ROWS = 4, 64
#: Accumulators: enough to hide the latency of additions, few enough for the registers.
MAX_ACCUMULATORS: Final = 24
#: The same where picking lanes from so many vectors, and more, takes registers.
PICKED_VECTORS, MAX_ACCUMULATORS_PICKED = 4, 20
#: Rows of a tile, at most: each is a stream of its own from memory.
MAX_STREAMS: Final = 8
#: Vectors along the reduction axis where rows share nothing.
VECTORS: Final = 4
#: The same where they share an operand.
SHARED_VECTORS: Final = 1
#: Vectors of a reduction from which on this pays.
MIN_VECTORS: Final = 2
#: Elements of a row from which on one row at a time, in so many vectors, comes faster from the caches than
#: several do (one column, of reading: 2048x1024 79 and 97%, 3072x1024 86 and 96%; 512x512 97 and 89%).
LONG_ROW, STREAM_VECTORS = 1024, 8
#: The same for two columns on cores that fetch ahead by themselves, where the columns take no more than this
#: part of the first level: Zen 5, from the third level, 4608x2x1536 0.178 -> 0.163 ms, 6144x2x2048 0.43
#: -> 0.35.
STREAM_COLUMNS, STREAM_SHARE = 2, 0.5
#: Results of a tile are joined together, in vectors, where this divides their number.
MIN_JOINED: Final = 4
#: Elements along the reduction that an operand is laid out by.
LINE: Final = 16
#: Steps of the innermost loop that are unrolled.
STEPS: Final = 2
#: Steps ahead that operands from main memory are asked for where a tile's rows are longer. Measured with two
#: and four columns: 20 and 27% less time. With one there is little else to do.
AHEAD: Final = 8


@dataclass(frozen=True, slots=True)
class LaneReduction:
    """A reduction done along memory: ``partial`` keeps vectors of sums, ``final`` joins them.

    ``rows`` results of the axis ``row`` and all of the axes behind it share what they load; ``panels`` are
    stages that lay operands along the reduction. ``streams`` says what to ask for ahead, as hints
    ``prefetch``.
    """

    partial: str
    final: str
    row: str | None
    rows: int
    panels: tuple[str, ...]
    streams: tuple[str, ...]
    chunk: int = 0  # steps of the reduction that are done for a block of rows at a time; 0: all at once

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of the nest but for the last one, which may be a reader of ``final``."""
        return (*self.panels, self.partial, self.final)


@dataclass(frozen=True, slots=True)
class _Match:
    axis: str  # the reduction axis along memory
    moving: tuple[Load, ...]  # loads that move along it
    gathered: tuple[Load, ...]  # those that do not move by single elements, nor by few
    picked: int  # how far apart the elements of others lie, at most
    shared: bool  # whether several results use one load
    pars: tuple[tuple[str, int], ...]
    reds: tuple[tuple[str, int], ...]


def split_reductions(
    s: Schedule, target: Target, threads: int, constants: Collection[str]
) -> tuple[Schedule, dict[str, LaneReduction]]:
    """Rewrite the reductions for which this pays; the choices by the stage that ends each nest."""
    program = s.program
    assert program is not None
    choices: dict[str, LaneReduction] = {}
    for stage in program.stages:
        now = s.program
        assert now is not None
        last = ending_stage(now, stage)
        found = None if last is None else _match(now, stage, target, constants)
        if found is not None and last is not None:
            s, choice = _rewrite(s, stage, found, target, threads)
            choices[last.name if choice.final == stage.name else choice.final] = choice
    return s, choices


def ending_stage(program: Program, stage: Stage) -> Stage | None:
    """The stage that makes an output of the program from ``stage``: itself or its only reader, in place."""
    outputs = {b.name for b in program.outputs}
    if set(stage.writes) <= outputs:
        return stage
    reader = pointwise_reader(program, stage)
    return reader if reader is not None and set(reader.writes) <= outputs else None


def _match(program: Program, stage: Stage, target: Target, constants: Collection[str]) -> _Match | None:
    body = stage.body
    if not stage.is_reduction or not isinstance(body, Store) or len(body.writes) != 1:
        return None
    write = body.writes[0]
    if not isinstance(write.value, Binary) or not write.value.dtype.is_float:
        return None
    if not all(it.extent.is_const and it.lo.is_const for it in stage.iters):
        return None
    old = Load(write.buffer, write.indices, write.value.dtype)
    if old not in (write.value.a, write.value.b):
        return None
    pars = tuple((it.name, it.extent.as_int()) for it in stage.iters if it.kind == "par")
    reds = tuple((it.name, it.extent.as_int()) for it in stage.iters if it.kind == "red")
    if [i.as_var() for i in write.indices] != [name for name, _ in pars]:
        return None
    terms = [ld for ld in dict.fromkeys(loads(write.value)) if ld != old]
    if any(program.buffer(ld.buffer).layout is not None for ld in terms):
        return None
    axis = max(
        (name for name, _ in reds if any(_along(program, ld, name) for ld in terms)),
        key=lambda name: dict(reds)[name],
        default=None,
    )
    if axis is None or dict(reds)[axis] < MIN_VECTORS * target.lanes(write.value.dtype):
        return None
    if not _suits(program, stage, target, constants):
        return None
    moving = [ld for ld in terms if any(axis in i.vars for i in ld.indices)]
    columns = {name for name, _ in _columns(pars)}
    rows = prod(n for name, n in pars if name not in columns)
    apart = {ld: _elements_apart(program, ld, axis) for ld in moving if not _along(program, ld, axis)}
    gathered = tuple(ld for ld, n in apart.items() if not 0 < n <= MAX_PICKED_APART or rows > MAX_PICKED_ROWS)
    picked = max((n for ld, n in apart.items() if ld not in gathered), default=1)
    shared = (
        any(not any(v in columns for i in ld.indices for v in i.vars) for ld in moving) and len(moving) > 1
    )
    return _Match(axis, tuple(moving), gathered, picked, shared, pars, reds)


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
    shape = program.buffer(ld.buffer).shape
    places = [i for i, extent in zip(ld.indices, shape, strict=True) if extent != Index(1)]
    if not places or places[-1].coefficient(axis) != 1:
        return False
    return not any(axis in i.vars for i in places[:-1])


def _elements_apart(program: Program, ld: Load, axis: str) -> int:
    """Elements between what neighbours along an axis load; 0 where sizes are known only at run time."""
    buffer = program.buffer(ld.buffer)
    return stride(buffer, ld, axis) if all(e.is_const for e in buffer.shape) else 0


def _columns(pars: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The innermost axes that fit into one tile as a whole."""
    at = len(pars)
    while at > 0 and prod(n for _, n in pars[at - 1 :]) <= MAX_COLUMNS:
        at -= 1
    return pars[at:]


def _rewrite(
    s: Schedule, stage: Stage, m: _Match, target: Target, threads: int
) -> tuple[Schedule, LaneReduction]:
    assert isinstance(stage.body, Store)
    width = target.lanes(stage.body.writes[0].value.dtype)
    name, pars = stage.name, m.pars
    panels: list[str] = []
    for ld in m.gathered:
        program = s.program
        assert program is not None
        now = program.stage(name)
        assert isinstance(now.body, Store)
        own = [x for x in dict.fromkeys(loads(now.body.writes[0].value)) if x.buffer not in now.writes]
        used = {v for i in ld.indices for v in i.vars}
        axes = [it.name for it in stage.iters if it.name in used and it.name != m.axis]
        panels.append(f"{name}_panels{len(panels) or ''}")
        s = s.gather_operand(name, own.index(ld), [*axes, m.axis], panels[-1])
    extents = dict(m.reds)
    columns = _columns(pars)
    rest = pars[: len(pars) - len(columns)]
    row = rest[-1] if rest else None
    most = MAX_ACCUMULATORS if m.picked < PICKED_VECTORS else MAX_ACCUMULATORS_PICKED
    wanted = most // prod(n for _, n in columns)
    vectors, together = (SHARED_VECTORS, MAX_STREAMS) if m.shared else (VECTORS, 1)
    if m.shared and _in_one_stream(s, m, prod(n for _, n in columns), target):
        vectors, together = STREAM_VECTORS, 1
    vectors = max(1, min(vectors, extents[m.axis] // width, wanted))
    rows = min(max(1, wanted // vectors), together, row[1] if row else 1)
    if width % prod(n for _, n in columns) == 0 and _is_kept(s, m, target):
        # what fills a vector of results is joined at once; from memory more rows that share matter more
        rows = min(rows, 1 << (rows.bit_length() - 1))
    if m.shared and row is not None and rows > 1 and rows_collide(rows + 1, _apart(s, m, row[0])):
        # with what they share, their lines need more of a set than it has: 3072x2x1024 78% of reading by
        # 8 rows at a time, 86% by 4; 6144x1x2048 72 and 80%
        rows //= 2
    units = prod(n for _, n in rest) // rows
    busy = elements(stage) >= MIN_PARALLEL_ELEMENTS and threads > 1
    if row is None or (busy and units < 2 * threads):
        # too few results for all threads: each takes a part of the reduction
        outer, extent = m.reds[0]
        lanes = vectors * width if outer == m.axis else 1
        parts = threads if busy else 1
        chunk = -(-extent // (parts * lanes)) * lanes
        s = s.rfactor(name, outer, min(chunk, extent), name=f"{name}_part")
        name = f"{name}_part"
    program = s.program
    assert program is not None
    along = next(
        it.name for it in program.stage(name).iters if it.kind == "red" and it.name.startswith(m.axis)
    )
    partial = f"{name}_lanes"
    s = s.rfactor(name, along, vectors * width, part="inner", name=partial)
    streams = _streams(program, m, row[0] if row else None, rows, prod(n for _, n in columns), target)
    fold = stage.body.writes[0].value
    if isinstance(fold, Binary) and fold.op in ("max", "min") and extents[m.axis] > vectors * width:
        streams = streams or _ahead(program, m, target, rows)
    choice = LaneReduction(partial, name, row[0] if row else None, rows, tuple(panels), streams)
    chunked = _in_chunks(s.program, choice, m, pars, target) if s.program is not None else None
    return s, choice if chunked is None else chunked


def _in_chunks(
    program: Program, choice: LaneReduction, m: _Match, pars: tuple[tuple[str, int], ...], target: Target
) -> LaneReduction | None:
    """The same in chunks, where few columns share a panel too large for the first cache level."""
    partial = program.stage(choice.partial)
    reds = [it for it in partial.iters if it.kind == "red"]
    if (
        len(choice.panels) != 1
        or choice.row != pars[0][0]
        or len(reds) != 1
        or choice.final == choice.partial
    ):
        return None
    (panel,) = (program.buffer(b) for b in program.stage(choice.panels[0]).writes)
    moving = [program.buffer(ld.buffer) for ld in m.moving if ld not in m.gathered]
    steps = reds[0].extent.as_int()
    even = dict(m.reds)[m.axis] % steps == 0 and pars[0][1] % ROWS == 0
    if len(moving) != 1 or not even or choice.rows < ROWS:
        return None
    chunk = chunk_steps(moving[0], panel, steps, target)
    if not chunk:
        return None
    along = buffer_bytes(moving[0]) // moving[0].dtype.bytes // pars[0][1]
    streams = next_tiles(moving[0], ROWS * along, target)
    return replace(choice, rows=ROWS, chunk=chunk, streams=streams)


def _is_kept(s: Schedule, m: _Match, target: Target) -> bool:
    """Whether all that a reduction reads may be in the last cache level."""
    assert s.program is not None
    return sum(buffer_bytes(s.program.buffer(ld.buffer)) for ld in m.moving) <= perhaps_kept(target)


def _in_one_stream(s: Schedule, m: _Match, columns: int, target: Target) -> bool:
    """Whether a row at a time comes faster than several."""
    extent = dict(m.reds)[m.axis]
    if columns == 1:
        return extent >= LONG_ROW and _is_kept(s, m, target)
    assert s.program is not None
    kept = _panel_bytes(s.program, m, columns) <= STREAM_SHARE * (target.level("l1").size or 0)
    return not any(target.far_requests) and columns <= STREAM_COLUMNS and extent > LONG_ROW and kept


def _panel_bytes(program: Program, m: _Match, columns: int) -> int:
    """Bytes of what so many columns share, laid along the reduction."""
    return dict(m.reds)[m.axis] * columns * program.buffer(m.moving[0].buffer).dtype.bytes


def _apart(s: Schedule, m: _Match, row: str) -> int:
    """Bytes between the rows of what moves with them, 1 where nothing does."""
    assert s.program is not None
    buffers = [(s.program.buffer(ld.buffer), ld) for ld in m.moving]
    return max((abs(stride(b, ld, row)) * b.dtype.bytes for b, ld in buffers), default=0) or 1


def _streams(
    program: Program, m: _Match, row: str | None, rows: int, columns: int, target: Target
) -> tuple[str, ...]:
    """What to ask for ahead: operands larger than all caches of which each row has a part of its own.

    Where tiles are short, the hardware has hardly begun to follow their rows when they end: the next tile's
    are brought to the second cache level meanwhile. From the caches that would cost up to 20%.
    """
    if row is None:
        return ()
    if not any(target.far_requests):
        # the core follows rows by itself, but has room for few loads among several products each
        kept = _panel_bytes(program, m, columns) <= STREAM_SHARE * (target.level("l1").size or 0)
        if columns > 1 and kept and rows > 1:
            return _next_rows(program, m, row, rows, target)
        return _ahead(program, m, target, rows) if columns > 1 else ()
    found: dict[str, str] = {}
    for ld in m.moving:
        buffer = program.buffer(ld.buffer)
        apart = stride(buffer, ld, row)
        if apart <= 0:
            continue
        if rows > 1 and rows * apart * buffer.dtype.bytes <= NEXT_SHARE * (target.level("l2").size or 0):
            found[ld.buffer] = further(buffer, rows * apart, target)
        elif columns > 1:
            found[ld.buffer] = steps_ahead(buffer, AHEAD, target)
    return tuple(hint for hint in found.values() if hint)


def _next_rows(program: Program, m: _Match, row: str, rows: int, target: Target) -> tuple[str, ...]:
    """The hints that ask for the next tile's rows, of operands that the last cache level hardly keeps.

    Zen 5, others at work, four columns, of the time without: 4608x1536 (28 MB) 0.66 to 0.87, 3840x1280 (20
    MB) 0.76, but 3072x1024 (13 MB) 1.33.
    """
    apart = {b: stride(b, ld, row) for ld in m.moving for b in (program.buffer(ld.buffer),)}
    large = (b for b, n in apart.items() if n > 0 and buffer_bytes(b) > FAR * last_cache(target))
    return tuple(hint for b in large for hint in next_tiles(b, rows * apart[b], target))


def _ahead(program: Program, m: _Match, target: Target, rows: int) -> tuple[str, ...]:
    """What so many rows at a time ask for ahead, as hints: what the second cache level cannot hold."""
    buffers = dict.fromkeys(program.buffer(ld.buffer) for ld in m.moving)
    return tuple(hint for hint in (into_first_level(b, rows, target) for b in buffers) if hint)


def schedule_lanes(
    s: Schedule, program: Program, choice: LaneReduction, last: Stage, threads: int
) -> Schedule:
    """Schedule a reduction along memory that ``last`` ends: its final stage, or a reader of that.

    ``program`` is what `split_reductions` made; other stages of it may be scheduled already.
    """
    partial, final = program.stage(choice.partial), program.stage(choice.final)
    work = elements(partial)
    pars = [it for it in final.iters if it.kind == "par"]
    loops = list(s.loops(last.name))[: len(pars)]
    ragged = False
    parallel = threads > 1 and work >= MIN_PARALLEL_ELEMENTS
    shared = block = None
    if choice.row is None:
        # the part of a thread: the first axis; all others are columns
        outer, inner = loops[:1], loops[1:]
    else:
        at = [it.name for it in pars].index(choice.row)
        row, extent = loops[at], pars[at].extent.as_int()
        names = (f"{row}_tile", f"{row}_row")
        if at == 0 and choice.panels:
            s, shared, block = _share_rows(s, row, extent, choice, names, threads if parallel else 1)
        if shared is None:
            s = s.split(row, choice.rows, names=names)
        outer, inner = [*loops[:at], names[0]], [names[1], *loops[at + 1 :]]
        ragged = extent % choice.rows != 0
    around = outer[-1]
    if last.name != final.name:
        s = s.compute_at(final.name, around).set_scope(final.writes[0], "register")
    if block is not None:
        s = sum_chunks(s, partial, block, choice.chunk, choice.streams)
        s = sums_in_registers(s, partial, around)
    else:
        s = s.compute_at(partial.name, around).set_scope(partial.writes[0], "register")
        s = _sum(s, choice, partial, around)
    results = choice.rows * prod(it.extent.as_int() for it in _columns_of(final, choice))
    together = last.name == final.name and choice.row is not None and results % MIN_JOINED == 0
    s = _join(s, final, around, together)
    if last.name != final.name:
        for loop in inner:
            s = s.unroll(loop)
    if ragged:
        s = s.partition(around, -1)
    for name in choice.panels:
        s, line = _lay(s, name, shared)
        if shared is None:
            s = parallelise(s, [line], elements(program.stage(name)), threads)
    return s if shared is not None else parallelise(s, outer, work, threads)


def _share_rows(
    s: Schedule, row: str, extent: int, choice: LaneReduction, names: tuple[str, str], threads: int
) -> tuple[Schedule, str | None, str | None]:
    """Give each thread an equal part of the rows, in blocks for chunks: the loops over both, where there are.

    Each thread lays the operand for itself: lines that the other one has written come from its cache.
    """
    if extent % (threads * choice.rows) or not (threads > 1 or choice.chunk):
        return s, None, None
    group, block, tiles = f"{row}_group", f"{row}_block", extent // threads // choice.rows
    inside = tiles_of_block(tiles) if choice.chunk else 1
    if inside > 1:
        s = s.split(row, [tiles // inside, inside, choice.rows], names=[group, block, *names])
    else:
        s = s.split(row, [tiles, choice.rows], names=[group, *names])
    return s.parallel(group) if threads > 1 else s, group, block if inside > 1 else None


def _lay(s: Schedule, name: str, at: str | None) -> tuple[Schedule, str]:
    """Copy an operand along the reduction: what lies together is read at a time. With the loop over lines."""
    if at is not None:
        s = s.compute_at(name, at)
    *others, k = s.loops(name) if at is None else _below(s, name, at)
    line, vector = f"{name}_line", f"{name}_vector"
    s = s.set_scope(name, "global").split(k, LINE, names=[line, vector])
    return s.reorder(line, *others, vector).vectorize(vector), line


def _below(s: Schedule, block: str, loop: str) -> list[str]:
    loops = list(s.loops(block))
    return loops[loops.index(loop) + 1 :]


def _sum(s: Schedule, choice: LaneReduction, partial: Stage, around: str) -> Schedule:
    """The vectors of sums: reduction loops outside, rows and columns expanded, lanes innermost."""
    own = _below(s, partial.name, around)
    pars, reds = own[: -_reductions(partial)], own[-_reductions(partial) :]
    s = s.reorder(*reds, *pars).decompose_init(partial.name, reds[0])
    s = s.annotate(reds[-1], "unroll", str(STEPS))
    if choice.streams:
        s = s.annotate(reds[-1], "prefetch", ",".join(choice.streams))
    for loop in pars[:-1]:
        s = s.unroll(loop).unroll(f"{loop}_init")
    s = s.vectorize(pars[-1]).vectorize(f"{pars[-1]}_init")
    whole = _whole_steps(partial)
    return s.partition(reds[-1], whole) if 0 < whole < s.loop(reds[-1]).extent.as_int() else s


def _whole_steps(partial: Stage) -> int:
    """Steps of the innermost reduction all of whose lanes count in each thread's part; 0 if unknown."""
    k = next(it for it in reversed(partial.iters) if it.kind == "red")
    steps = k.extent.as_int()
    ends = {it.name: (Index(0), it.extent - 1) for it in partial.iters} | {k.name: (Index(0), Index(0))}
    for cond in partial.body.cond if isinstance(partial.body, If) else ():
        lanes = 0 if cond.index is None else -cond.index.coefficient(k.name)
        least = int_lower(cond.index, ends) if cond.index is not None and cond.op == "ge" else None
        if least is None or lanes <= 0:
            return 0
        steps = min(steps, (least // lanes) + 1)
    return steps


def _reductions(stage: Stage) -> int:
    return sum(1 for it in stage.iters if it.kind == "red")


def _columns_of(final: Stage, choice: LaneReduction) -> list[Iter]:
    """The axes behind that of the rows."""
    pars = [it for it in final.iters if it.kind == "par"]
    return pars[[it.name for it in pars].index(choice.row) + 1 :] if choice.row is not None else pars


def _join(s: Schedule, final: Stage, around: str, together: bool) -> Schedule:
    """The sum over the lanes of each result; ``together`` a vector of results at a time."""
    *pars, lanes = _below(s, final.name, around)
    if together:
        first, *more = pars
        for loop in more:
            s, first = s.fuse(first, loop, names=[f"{first}_{loop}"[:60]]), f"{first}_{loop}"[:60]
        return s.decompose_init(final.name, lanes).unroll(lanes).vectorize(first)
    s = s.decompose_init(final.name, lanes)
    for loop in pars:
        s = s.unroll(loop)
    return s.vectorize(lanes)
