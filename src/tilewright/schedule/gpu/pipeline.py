"""pipeline: copy the tiles of later iterations while one computes (double and multi-stage buffers)."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    Buffer,
    Env,
    For,
    Index,
    IndexMap,
    LoopFunction,
    Stmt,
    ge0,
    imin,
    loop_env,
    mod,
    prove_ge0,
    replace_at,
    seq,
    substitute,
    var,
)
from tilewright.schedule.common import find_loop, new_names, refusal
from tilewright.schedule.copies import Copies, renamed_copy
from tilewright.schedule.nests import blocks_below, require_blocks, settle
from tilewright.schedule.producer.nest import around, below_allocs, touching
from tilewright.schedule.registry import primitive


@primitive("pipeline", phase="loop")
def pipeline(func: LoopFunction, loop: str, stages: int) -> LoopFunction:
    """Keep ``stages`` tiles of each buffer that ``loop`` allocates, filled ``stages - 1`` iterations ahead.

    The statements that fill the tiles come first in the loop's body. They run once before the loop for its
    first iterations (a loop ``<loop>_ahead``), and inside for the iteration ``stages - 1`` further on. Tiles
    lie one after the other along the dimension through which the loop moves.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((12,), name="X")
    >>> Y = lang.compute((12,), lambda i: X[i] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y])).split("i", 4).cache("X", "i_o", scope="shared", name="T")
    >>> print(s)
    func main:
        for i_o in 0:3:
            alloc T: f32[4] shared
            for T_i in 0:4:
                block T(par i=T_i + 4*i_o):
                    T[i] = X[i]
            for i_i in 0:4:
                block Y(par i=i_i + 4*i_o):
                    Y[i] = (T[i] * f32(2.0))
    >>> print(s.pipeline("i_o", 2))
    func main:
        alloc T: f32[8] shared
        for i_o_ahead in 0:1:
            for T_i_ahead in 0:4:
                block T_ahead(par i=T_i_ahead + 4*i_o_ahead):
                    T[i] = X[i]
        for i_o in 0:3:
            for T_i in 0:4:
                block T(par i=T_i + 4*i_o + 4) where -i_o + 1 >= 0:
                    T[i] = X[i]
            for i_i in 0:4:
                block Y(par i=i_i + 4*i_o):
                    Y[i] = (T[i] * f32(2.0))

    Legal for a serial loop whose tiles do not overlap from iteration to iteration, and whose filling reads
    nothing that the loop writes. Raises ScheduleError otherwise.
    """
    place, node = find_loop(func, loop)
    if stages < 2:
        raise refusal(
            func, f"a pipeline of {stages} stages copies nothing ahead", hint="give 2 or more", at=[loop]
        )
    if node.kind.name not in ("serial", "unroll") or node.step != 1:
        raise refusal(
            func,
            f"{loop!r} is a {node.kind} loop of step {node.step}, and has no next iteration",
            hint="pipeline a serial loop of step 1",
            at=[loop],
        )
    require_blocks(func, node, "pipeline")
    buffers, items = below_allocs(node.body)
    names = frozenset(b.name for b in buffers)
    count = _filling(items, names)
    if not buffers or not count:
        raise refusal(
            func,
            f"the body of {loop!r} does not begin with statements that fill buffers allocated there",
            hint="cache what it reads at this loop first",
            at=[loop],
        )
    filling, rest = items[:count], items[count:]
    written = {name for block in blocks_below(node.body) for name, _ in block.writes} - names
    for name in sorted(written):
        if any(touching(s, frozenset((name,))) for s in filling):
            raise refusal(
                func,
                f"what fills the tiles of {loop!r} uses {name!r}, which the loop writes: it cannot run ahead",
                hint="pipeline loops whose tiles are copies of what is there before",
                at=[loop],
                buffers=[name],
            )
    for name in sorted(names):
        if any(touching(s, frozenset((name,)), "w") for s in rest):
            raise refusal(
                func,
                f"{name!r} is written where it is used, not only where it is filled",
                hint="pipeline tiles that are read only",
                at=[loop],
                buffers=[name],
            )
    ordered = next(
        (b for s in filling for b in blocks_below(s) if any(i.kind == "ord" for i in b.iters)), None
    )
    if ordered is not None:
        raise refusal(
            func,
            f"block {ordered.name!r} fills its tile in order, over what earlier tiles left",
            hint="pipeline tiles whose elements are filled independently",
            at=[loop, ordered.name],
        )
    env = loop_env(place.loops)
    rings = [_ring(func, b, node, env, stages) for b in buffers]
    copies = Copies(func)
    (ahead,) = new_names([f"{loop}_ahead"], (), copies.names)
    first_hi = imin(node.lo + (stages - 1), node.hi)
    if prove_ge0(node.extent - (stages - 1), env):
        first_hi = node.lo + (stages - 1)
    before = renamed_copy(seq(*filling), "_ahead", copies, {loop: var(ahead)})
    later = var(loop) + (stages - 1)
    inner_env = {**env, loop: (node.lo, node.hi - 1)}
    # only while there is such an iteration
    moved = settle(substitute(seq(*filling), {loop: later}), inner_env, (ge0(node.hi - 1 - later),))
    prologue = For(ahead, node.lo, first_hi, settle(before, {**env, ahead: (node.lo, first_hi - 1)}))
    main = replace(node, body=seq(moved, *rest))
    return func.with_body(replace_at(func.body, place.path, around(rings, seq(prologue, main))))


def _filling(items: list[Stmt], names: frozenset[str]) -> int:
    """How many statements at the beginning write the tiles and nothing else."""
    for n, s in enumerate(items):
        if not {name for block in blocks_below(s) for name, _ in block.writes} <= names:
            return n
    return 0


def _ring(func: LoopFunction, buffer: Buffer, loop: For, env: Env, stages: int) -> Buffer:
    """The buffer of ``stages`` tiles, one after the other along the dimension that ``loop`` moves through."""
    layout = buffer.layout
    moving = [] if layout is None else [d for d, e in enumerate(layout.exprs) if loop.var in e.vars]
    named = [] if layout is None or len(moving) != 1 else [
        name for name in layout.dims if name in layout.exprs[moving[0]].vars
    ]  # fmt: skip
    alone = layout is not None and len(named) == 1 and sum(named[0] in e.vars for e in layout.exprs) == 1
    if layout is None or not alone or layout.exprs[moving[0]].coefficient(named[0]) != 1:
        raise refusal(
            func,
            f"{loop.var!r} does not move the tile {buffer.name!r} along one dimension",
            hint="pipeline at the loop that the tile was cached at, its rows and columns in any order",
            at=[loop.var],
            buffers=[buffer.name],
        )
    (d,) = moving
    at = var(named[0]) - layout.exprs[d]
    step = at.coefficient(loop.var)
    start = at - var(loop.var) * step
    if loop.var in start.vars or step < 1 or not prove_ge0(step - layout.shape[d], env):
        raise refusal(
            func,
            f"tiles of {buffer.name!r} overlap from one iteration of {loop.var!r} to the next",
            hint="slide and roll keep what overlaps",
            at=[loop.var],
            buffers=[buffer.name],
        )
    exprs, shape = list(layout.exprs), list(layout.shape)
    exprs[d] = mod(var(named[0]) - start, stages * step)
    shape[d] = Index(stages * step)
    return replace(buffer, layout=IndexMap(layout.dims, tuple(exprs), tuple(shape)), halo=None)
