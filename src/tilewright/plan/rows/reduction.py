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

from tilewright.cost import Machine, buffer_bytes
from tilewright.ir import Binary, If, Index, Iter, Program, Stage, Store, int_lower, loads
from tilewright.plan.rows.chunks import (
    ROWS,
    chunk_steps,
    next_tiles,
    sum_chunks,
    sums_in_registers,
    tiles_of_block,
)
from tilewright.plan.rows.match import LaneMatch, ending_stage, is_of_all, match_lanes
from tilewright.plan.rows.nest import MIN_PARALLEL_ELEMENTS, elements, parallelise
from tilewright.plan.rows.row_tiling import (
    ahead_in_first_level,
    choose_rows,
    requests_ahead,
)
from tilewright.schedule import Schedule
from tilewright.target import Target

#: Results of a tile are joined together, in vectors, where this divides their number.
MIN_JOINED: Final = 4
#: Elements along the reduction that an operand is laid out by.
LINE: Final = 16
#: Steps of the innermost loop that are unrolled.
STEPS: Final = 2


@dataclass(frozen=True, slots=True)
class LaneReduction:
    """A reduction done along memory: ``partial`` keeps vectors of sums, ``final`` joins them.

    ``rows`` results of the axis ``row`` and all of the axes behind it share what they load; ``panels`` are
    stages that lay operands along the reduction. ``ahead`` says what to ask for.
    """

    partial: str
    final: str
    row: str | None
    rows: int
    panels: tuple[str, ...]
    ahead: tuple[str, ...]
    chunk: int = 0  # steps of the reduction that are done for a block of rows at a time; 0: all at once

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of the nest but for the last one, which may be a reader of ``final``."""
        return (*self.panels, self.partial, self.final)


def split_reductions(
    s: Schedule, machine: Machine, constants: Collection[str], but: Collection[str] = ()
) -> tuple[Schedule, dict[str, LaneReduction]]:
    """Rewrite the reductions for which this pays; the choices by the stage that ends each nest.

    Stages ``but`` are left as they are.
    """
    choices: dict[str, LaneReduction] = {}
    for stage in s.require_program().stages:
        now = s.require_program()
        last = stage if is_of_all(now, stage) else ending_stage(now, stage)
        skipped = last is None or stage.name in but
        found = None if skipped else match_lanes(now, stage, machine.target, constants)
        if found is not None and last is not None:
            s, choice = _rewrite(s, stage, found, machine)
            choices[last.name if choice.final == stage.name else choice.final] = choice
    return s, choices


def _rewrite(s: Schedule, stage: Stage, m: LaneMatch, machine: Machine) -> tuple[Schedule, LaneReduction]:
    target = machine.target
    assert isinstance(stage.body, Store)
    width = target.lanes(stage.body.writes[0].value.dtype)
    if m.block:
        width = m.block
    elif m.extent < width:
        width //= 2
    name = stage.name
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
    assert s.program is not None
    chosen = choose_rows(s.program, m, width, target)
    row, rows, vectors = m.row, chosen.rows, 1 if m.block else chosen.vectors
    units = prod(n for _, n in m.rest) // rows
    busy = elements(stage) >= MIN_PARALLEL_ELEMENTS and machine.threads > 1
    if row is None or (busy and units < 2 * machine.threads):
        # too few results for all threads: each takes a part of the reduction
        parts = machine.threads if busy else 1
        outer, extent = _shared_axis(m, parts, vectors * width)
        lanes = vectors * width if outer == m.axis else 1
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
    ahead = requests_ahead(program, m, rows, machine)
    fold = stage.body.writes[0].value
    if isinstance(fold, Binary) and fold.op in ("max", "min") and m.extent > vectors * width and not ahead:
        ahead = ahead_in_first_level(program, m, rows, target)
    choice = LaneReduction(partial, name, row[0] if row else None, rows, tuple(panels), ahead)
    chunked = _chunked(s.program, choice, target) if s.program is not None else None
    return s, choice if chunked is None else chunked


def _shared_axis(m: LaneMatch, parts: int, width: int) -> tuple[str, int]:
    """The reduction axis that threads share: the outermost that gives each as much, if there is one."""
    for name, extent in m.reds:
        if extent > 1 and extent % (parts * (width if name == m.axis else 1)) == 0:
            return name, extent
    return m.reds[0]


def in_chunks(program: Program, choice: LaneReduction, target: Target) -> LaneReduction | None:
    """The same in tiles of a block of rows, which chunks go along with; ``None`` where there are no chunks.

    What is split has one panel that tiles of rows share, and no steps that count for some lanes only.
    """
    partial, final = program.stage(choice.partial), program.stage(choice.final)
    reds = [it for it in partial.iters if it.kind == "red"]
    pars = [it for it in final.iters if it.kind == "par"]
    if len(choice.panels) != 1 or not pars or choice.row != pars[0].name or len(reds) != 1:
        return None
    (made,) = program.stage(choice.panels[0]).writes
    moving = [program.buffer(name) for name in partial.reads if name not in (made, *partial.writes)]
    rows, whole = pars[0].extent.as_int(), not isinstance(partial.body, If)
    if len(moving) != 1 or not whole or rows % ROWS or choice.rows < ROWS or choice.final == choice.partial:
        return None
    along = buffer_bytes(moving[0]) // moving[0].dtype.bytes // rows
    return replace(choice, rows=ROWS, chunk=1, ahead=next_tiles(moving[0], ROWS * along, target))


def chunk_sizes(program: Program, choice: LaneReduction) -> tuple[int, ...]:
    """Steps of chunks that a search tries: parts of the reduction, down to a few steps."""
    steps = next(it for it in program.stage(choice.partial).iters if it.kind == "red").extent.as_int()
    return tuple(dict.fromkeys(-(-steps // n) for n in (2, 3, 4, 6, 8, 12, 16) if steps >= 4 * n))


def _chunked(program: Program, choice: LaneReduction, target: Target) -> LaneReduction | None:
    """In chunks, where few columns share a panel too large for the first cache level."""
    found = in_chunks(program, choice, target)
    if found is None:
        return None
    partial = program.stage(choice.partial)
    (made,) = program.stage(choice.panels[0]).writes
    (moving,) = (program.buffer(n) for n in partial.reads if n not in (made, *partial.writes))
    steps = next(it for it in partial.iters if it.kind == "red").extent.as_int()
    chunk = chunk_steps(moving, program.buffer(made), steps, target)
    return replace(found, chunk=chunk) if chunk else None


def schedule_lanes(
    s: Schedule, program: Program, choice: LaneReduction, last: Stage, machine: Machine
) -> Schedule:
    """Schedule a reduction along memory that ``last`` ends: its final stage, or a reader of that.

    ``program`` is what `split_reductions` made; other stages of it may be scheduled already.
    """
    partial, final = program.stage(choice.partial), program.stage(choice.final)
    work = elements(partial)
    pars = [it for it in final.iters if it.kind == "par"]
    loops = list(s.loops(last.name))[: len(pars)]
    ragged = False
    parallel = machine.threads > 1 and work >= MIN_PARALLEL_ELEMENTS
    shared = block = None
    if choice.row is None:
        # the part of a thread: the first axis; all others are columns
        outer, inner = loops[:1], loops[1:]
    else:
        at = [it.name for it in pars].index(choice.row)
        row, extent = loops[at], pars[at].extent.as_int()
        names = (f"{row}_tile", f"{row}_row")
        if at == 0 and choice.panels:
            s, shared, block = _share_rows(
                s, row, extent, choice, names, machine.with_threads(machine.threads if parallel else 1)
            )
        if shared is None:
            s = s.split(row, choice.rows, names=names)
        outer, inner = [*loops[:at], names[0]], [names[1], *loops[at + 1 :]]
        ragged = extent % choice.rows != 0
    around = outer[-1]
    if last.name != final.name:
        s = s.compute_at(final.name, around).set_scope(final.writes[0], "register")
    if block is not None:
        s = sum_chunks(s, partial, block, choice.chunk, choice.ahead)
        s = sums_in_registers(s, partial, around)
    else:
        s = s.compute_at(partial.name, around).set_scope(partial.writes[0], "register")
        s = _sum(s, choice, partial, around)
    results = choice.rows * prod(it.extent.as_int() for it in _columns_of(final, choice))
    together = last.name == final.name and choice.row is not None and results % MIN_JOINED == 0
    # of a vector of results each has a register of its own: with fewer lanes than that they are not joined
    vector = min(results, machine.target.lanes(program.buffer(final.writes[0]).dtype))
    together = together and vector <= next(it for it in final.iters if it.kind == "red").extent.as_int()
    s = _join(s, final, around, together)
    if last.name != final.name:
        for loop in inner:
            s = s.unroll(loop)
    if ragged:
        s = s.partition(around, -1)
    for name in choice.panels:
        s, line = _lay(s, name, shared)
        if shared is None:
            s = parallelise(s, [line], elements(program.stage(name)), machine)
    return s if shared is not None else parallelise(s, outer, work, machine)


def _share_rows(
    s: Schedule, row: str, extent: int, choice: LaneReduction, names: tuple[str, str], machine: Machine
) -> tuple[Schedule, str | None, str | None]:
    """Give each thread an equal part of the rows, in blocks for chunks: the loops over both, where there are.

    Each thread lays the operand for itself: lines that the other one has written come from its cache.
    """
    if extent % (machine.threads * choice.rows) or not (machine.threads > 1 or choice.chunk):
        return s, None, None
    group, block, tiles = f"{row}_group", f"{row}_block", extent // machine.threads // choice.rows
    inside = tiles_of_block(tiles) if choice.chunk else 1
    if inside > 1:
        s = s.split(row, [tiles // inside, inside, choice.rows], names=[group, block, *names])
    else:
        s = s.split(row, [tiles, choice.rows], names=[group, *names])
    return s.parallel(group) if machine.threads > 1 else s, group, block if inside > 1 else None


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
    if choice.ahead:
        s = s.annotate(reds[-1], "prefetch", ",".join(choice.ahead))
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
