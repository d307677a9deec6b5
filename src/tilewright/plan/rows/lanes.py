"""The trees of reductions along memory: vectors of sums in registers, joined at the end."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tilewright.cost import Machine
from tilewright.ir import If, Index, Iter, Program, Stage, int_lower
from tilewright.plan.elementwise.plan import elements
from tilewright.plan.rows import chunks
from tilewright.plan.rows.reduction import LaneReduction
from tilewright.plan.threads import MIN_PARALLEL_ELEMENTS, share_steps
from tilewright.tiling import (
    Body,
    Cut,
    Leaf,
    Level,
    Nest,
    Place,
    Step,
    chain,
    expanded,
    guarded,
    sequence,
    shared_chain,
)

#: Results of a tile are joined together, in vectors, where this divides their number.
MIN_JOINED: Final = 4
#: Elements along the reduction that an operand is laid out by.
LINE: Final = 16
#: Steps of the innermost loop that are unrolled.
STEPS: Final = 2


def lanes_nests(program: Program, choice: LaneReduction, last: Stage, machine: Machine) -> tuple[Nest, ...]:
    """The nests of a reduction along memory that ``last`` ends: its final stage, or a reader of that."""
    partial, final = program.stage(choice.partial), program.stage(choice.final)
    work = elements(partial)
    threads = machine.threads if machine.threads > 1 and work >= MIN_PARALLEL_ELEMENTS else 1
    pars = [it for it in final.iters if it.kind == "par"]
    own = [it.name for it in last.iters][: len(pars)]
    counts = {a: it.extent.as_int() for a, it in zip(own, pars, strict=True)}
    group = block = None
    outer: list[Step] = []
    if choice.row is None:
        # the part of a thread: the first axis; all others are columns
        tiles, inner = Step(own[0], 1, count=counts[own[0]]), own[1:]
    else:
        at = [it.name for it in pars].index(choice.row)
        row, extent = own[at], counts[own[at]]
        if at == 0 and choice.panels:
            group, block = _thread_rows(row, extent, choice, threads)
        outer = [Step(a, 1, count=counts[a]) for a in own[:at]]
        tiles, inner = Step(row, choice.rows, count=-(-extent // choice.rows)), [row, *own[at + 1 :]]
    in_block, places = _sums(partial, choice, block is not None)
    if last.name == final.name:
        core = sequence(*places, _join(program, final, choice, inner, True, machine))
    else:
        joined = _join(program, final, choice, [it.name for it in pars], False, machine)
        rest = chain([Step(a, 1, "unroll") for a in inner], Leaf(last.name))
        core = sequence(*places, Place(final.name, "make", "register", joined), rest)
    if group is not None:
        # each thread lays the operand for itself: lines that another one has written come from its cache
        body = chain([tiles], core)
        if block is not None:
            body = chain([block], sequence(*in_block, body))
        laid = (Place(name, "make", "global", _laid(program, name)[0]) for name in choice.panels)
        return (Nest(last.name, shared_chain([group], int(threads > 1), sequence(*laid, body))),)
    nests = []
    for name in choice.panels:
        body, line = _laid(program, name)
        stage = program.stage(name)
        _, shared = share_steps([line], elements(stage), machine)
        nest = shared_chain([line], shared, body.body) if shared else body
        nests.append(Nest(name, nest, (), ((stage.writes[0], "global"),)))
    return (*nests, Nest(last.name, _shared_rows(outer, tiles, counts, core, work, machine)))


def _shared_rows(
    outer: list[Step], tiles: Step, counts: dict[str, int], core: Body, work: int, machine: Machine
) -> Body:
    """The loops over tiles of rows, shared by threads; rows that are left over have a part of their own."""
    whole = counts[tiles.axis] // tiles.size * tiles.size
    if whole == counts[tiles.axis]:
        steps, shared = share_steps([*outer, tiles], work, machine)
        return shared_chain(steps, shared, core)
    rest = chain([tiles], core)
    full = Step(tiles.axis, tiles.size, count=whole // tiles.size)
    alone = 0 if outer else share_steps([full], work, machine)[1]
    body: Body = Cut(tiles.axis, (whole,), (shared_chain([full], alone, core), rest)) if whole else rest
    steps, shared = share_steps(outer, work, machine, parts=False)
    return shared_chain(steps, shared, body)


def _thread_rows(
    row: str, extent: int, choice: LaneReduction, threads: int
) -> tuple[Step | None, Step | None]:
    """An equal part of the rows a thread, and blocks of it for chunks, where there are."""
    if extent % (threads * choice.rows) or not (threads > 1 or choice.chunk):
        return None, None
    tiles = extent // threads // choice.rows
    within = chunks.tiles_of_block(tiles) if choice.chunk else 1
    group = Step(row, tiles * choice.rows, count=threads)
    return group, Step(row, within * choice.rows) if within > 1 else None


def _sums(partial: Stage, choice: LaneReduction, in_blocks: bool) -> tuple[Sequence[Place], Sequence[Place]]:
    """The vectors of sums: what is made for a block of rows, and for a tile."""
    *others, lane = [it.name for it in partial.iters if it.kind == "par"]
    reds = [it.name for it in partial.iters if it.kind == "red"]
    hints = {"prefetch": ",".join(choice.ahead)} if choice.ahead else {}
    tile = expanded([*others, lane], Leaf(partial.name))
    steps = next(it.extent.as_int() for it in reversed(partial.iters) if it.kind == "red")
    if not in_blocks:
        whole = _whole_steps(partial)
        body = chain([Step(reds[-1], 1, hints={"unroll": str(STEPS)} | hints)], tile)
        body = Cut(reds[-1], (whole,), (body, body)) if 0 < whole < steps else body
        return (), [Place(partial.name, "make", "register", chain([Step(a, 1) for a in reds[:-1]], body))]
    (k,), result = reds, partial.writes[0]
    loop = chain([Step(k, 1, hints={"unroll": str(chunks.STEPS)} | hints)], tile)
    kept = Place(result, "accumulate", "register", loop, tile)
    body = chain([Step(k, choice.chunk), Step(others[0], chunks.ROWS)], sequence(kept))
    end = steps // choice.chunk * choice.chunk
    if end < steps:
        body = Cut(k, (end,), (body, guarded(body, k))) if end else body
    start = [Step(others[0], chunks.ROWS), *(Step(a, 1) for a in others), Step(lane, 1, "vector")]
    begun = sequence(Place(result, "init", "local", chain(start, Leaf(partial.name))), body)
    dims = [f"d{n}" for n in range(len(others) + 1)]
    copy = Place(result, "copy", "register", expanded(dims, Leaf(result)))
    return [Place(partial.name, "make", "global", begun)], [copy]


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


def _columns_of(final: Stage, choice: LaneReduction) -> list[Iter]:
    """The axes behind that of the rows."""
    pars = [it for it in final.iters if it.kind == "par"]
    return pars[[it.name for it in pars].index(choice.row) + 1 :] if choice.row is not None else pars


def _join(
    program: Program, final: Stage, choice: LaneReduction, axes: Sequence[str], ends: bool, machine: Machine
) -> Body:
    """The sum over the lanes of each result; a vector of results at a time where there are enough of them."""
    across = [it for it in final.iters if it.kind == "red"]
    results = choice.rows * prod(it.extent.as_int() for it in _columns_of(final, choice))
    # of a vector of results each has a register of its own: with fewer lanes than that they are not joined
    vector = min(results, machine.target.lanes(program.buffer(final.writes[0]).dtype))
    together = ends and choice.row is not None and results % MIN_JOINED == 0
    if together and vector <= across[0].extent.as_int():
        lanes = chain([Step(across[-1].name, 1, "unroll")], Leaf(final.name))
        return Level(tuple((a, 1) for a in axes), lanes, "vector")
    return expanded([*axes, across[-1].name], Leaf(final.name))


def _laid(program: Program, name: str) -> tuple[Level, Step]:
    """A copy of an operand along the reduction, what lies together at a time; and the loop over lines."""
    stage = program.stage(name)
    *others, k = [it.name for it in stage.iters]
    line = Step(k, LINE, count=-(-stage.iters[-1].extent.as_int() // LINE))
    inside = chain([*(Step(a, 1) for a in others), Step(k, 1, "vector")], Leaf(name))
    return Level(((k, LINE),), inside), line
