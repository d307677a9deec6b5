"""roll: keep only the last rows of a buffer through which a loop slides."""

from __future__ import annotations

from tilewright.ir import (
    Alloc,
    For,
    Index,
    IndexMap,
    LoopFunction,
    Seq,
    Span,
    loop_env,
    mod,
    prove_ge0,
    replace_at,
    seq,
    substitute_index,
    var,
)
from tilewright.schedule.common import refusal
from tilewright.schedule.footprint import footprint, map_dims, touches
from tilewright.schedule.producer.nest import buffer_at, is_tile, sites, touching
from tilewright.schedule.producer.windows import window
from tilewright.schedule.registry import primitive


@primitive("roll", phase="loop")
def roll(func: LoopFunction, buffer: str, dim: int, rows: int) -> LoopFunction:
    """Store dimension ``dim`` of ``buffer`` modulo ``rows``: a circular buffer of the last ``rows`` indices.

    The buffer must be allocated right around the loop that slides through it. Row ``y`` then lives at
    ``y % rows``; accesses stay as they are.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10,), name="X")
    >>> T = lang.compute((10,), lambda y: X[y] * 2, name="T")
    >>> C = lang.compute((8,), lambda y: T[y] + T[y + 1] + T[y + 2], name="C")
    >>> s = Schedule(lang.program([X], [C])).compute_at("T", "C_y").slide("T", "C_y")
    >>> print(s)
    func main:
        alloc T: f32[10] global
        for T_first_y in 0:2:
            block T_first(par y=T_first_y):
                T[y] = (X[y] * f32(2.0))
        for C_y in 0:8:
            for T_y in 0:1:
                block T(par y=C_y + T_y + 2):
                    T[y] = (X[y] * f32(2.0))
            block C(par y=C_y):
                C[y] = ((T[y] + T[y + 1]) + T[y + 2])
    >>> print(s.roll("T", 0, 3))
    func main:
        alloc T: f32[3] global
        for T_first_y in 0:2:
            block T_first(par y=T_first_y):
                T[y] = (X[y] * f32(2.0))
        for C_y in 0:8:
            for T_y in 0:1:
                block T(par y=C_y + T_y + 2):
                    T[y] = (X[y] * f32(2.0))
            block C(par y=C_y):
                C[y] = ((T[y] + T[y + 1]) + T[y + 2])
    >>> s.roll("T", 0, 3).buffers()["T"].layout.exprs[0]
    Index(__0%3)

    Legal where that loop is serial, one iteration touches at most ``rows`` consecutive indices, these move
    upwards from iteration to iteration, and before the loop at most ``rows`` indices are touched, none above
    the first window. Raises ScheduleError otherwise.
    """
    buf, place = buffer_at(func, buffer)
    if place is None:
        raise refusal(func, f"{buffer!r} is an argument; its memory is the caller's", buffers=[buffer])
    assert isinstance(place.node, Alloc)
    if not 0 <= dim < len(buf.shape):
        raise refusal(
            func,
            f"buffer {buffer!r} has no dimension {dim}",
            hint=f"its dimensions are 0 to {len(buf.shape) - 1}",
            buffers=[buffer],
        )
    if not is_tile(buf):
        raise refusal(
            func,
            f"buffer {buffer!r} has a layout of its own",
            hint="roll it before set_layout",
            buffers=[buffer],
        )
    for site in sites(func):
        ordered = {it.name for it in site.block.iters if it.kind == "ord"}
        writes = [t.indices[dim] for t in touches(site.block, "w") if t.buffer == buffer]
        if ordered and any(ordered.isdisjoint(x.vars) for x in writes):
            raise refusal(
                func,
                f"{site.block.name!r} changes {buffer!r} in order, for each index of dimension {dim} anew:"
                " rows that share memory would be changed by one another's steps",
                hint="roll the dimension along which it goes in order",
                at=[site.block.name],
                buffers=[buffer],
            )
    inner = place.node.body
    while isinstance(inner, Alloc):
        inner = inner.body
    items = inner.stmts if isinstance(inner, Seq) else (inner,)
    used = [s for s in items if touching(s, frozenset((buffer,)))]
    loop = used[-1] if used else None
    if not isinstance(loop, For) or loop.kind.name != "serial" or any(isinstance(s, Alloc) for s in used):
        raise refusal(
            func,
            f"buffer {buffer!r} is not allocated right around a serial loop that slides through it",
            hint="allocate it there: hoist_alloc or slide",
            buffers=[buffer],
        )
    outside = loop_env(place.loops)
    env = {**outside, **loop_env([loop])}
    touched = window(loop.body, env, buf, "rw", loop.var)
    assert touched is not None
    s = touched.spans[dim]
    step = s.lo.coefficient(loop.var)
    if loop.var in (s.lo - var(loop.var) * step).vars or step < 0 or loop.step < 1:
        raise refusal(
            func,
            f"{loop.var!r} does not move evenly upwards through dimension {dim} of {buffer!r} (at {s.lo})",
            hint="roll a dimension through which the loop slides by a constant",
            at=[loop.var],
            buffers=[buffer],
        )
    if not prove_ge0(Index(rows) - s.extent, {}):
        raise refusal(
            func,
            f"an iteration of {loop.var!r} touches {s.extent} indices in dimension {dim} of {buffer!r}",
            hint=f"roll over at least {s.extent} rows",
            at=[loop.var],
            buffers=[buffer],
        )
    first = Span(substitute_index(s.lo, {loop.var: loop.lo}), Index(rows))
    before = footprint(seq(*used[:-1]), outside, buf) if len(used) > 1 else None
    early = None if before is None else before.spans[dim]
    # what is touched ahead may lie below the first window: it was read there, and is not read again
    if early is not None and not (
        prove_ge0(Index(rows) - early.extent, outside)
        and prove_ge0(first.lo + first.extent - early.lo - early.extent, outside)
    ):
        raise refusal(
            func,
            f"{buffer!r} is touched before loop {loop.var!r} at [{early.lo}, +{early.extent}), which is more"
            f" than {rows} rows or above the first of them in the loop",
            hint="roll over more rows",
            at=[loop.var],
            buffers=[buffer],
        )
    box = footprint(inner, outside, buf)
    assert box is not None
    names = map_dims(len(buf.shape))
    exprs = [var(n) - t.lo for n, t in zip(names, box.spans, strict=True)]
    exprs[dim] = mod(var(names[dim]), rows)
    shape = [t.extent for t in box.spans]
    shape[dim] = Index(rows)
    rolled = buf.with_(layout=IndexMap(names, tuple(exprs), tuple(shape)), halo=None)
    return func.with_body(replace_at(func.body, place.path, Alloc(rolled, place.node.body)))
