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

from tilewright.cost import Machine, buffer_bytes
from tilewright.ir import Binary, If, Program, Stage, Store, loads
from tilewright.plan.elementwise.plan import elements
from tilewright.plan.rows.chunks import ROWS, chunk_steps, next_tiles
from tilewright.plan.rows.match import LaneMatch, ending_stage, is_of_all, match_lanes
from tilewright.plan.rows.row_tiling import (
    ahead_in_first_level,
    choose_rows,
    requests_ahead,
)
from tilewright.plan.threads import MIN_PARALLEL_ELEMENTS
from tilewright.schedule import Schedule
from tilewright.target import Target


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
