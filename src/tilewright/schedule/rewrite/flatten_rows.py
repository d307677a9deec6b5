"""flatten_rows: a windowed sum runs along lines that follow each other in memory as if they were one."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    I64,
    ZERO,
    Access,
    Buffer,
    Compare,
    Const,
    Index,
    IndexMap,
    Iter,
    Load,
    OfIndex,
    Program,
    Select,
    Stage,
    Stmt,
    Store,
    floordiv,
    int_upper,
    iter_env,
    map_loads,
    mod,
    stmt_loads,
    substitute_expr,
    var,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import (
    check_name,
    copy_maker,
    moved_operand,
    stage_called,
    taken_names,
)
from tilewright.support import ScheduleError


@primitive("flatten_rows", phase="program")
def flatten_rows(program: Program, stage: str, lines: str, line: str, multiple: int, name: str) -> Program:
    """Compute the iterators ``lines`` and ``line`` of a sum as one, windows passing from line to line.

    The operand that moves with them must be a tensor of the program's own, read by this stage alone, such as
    ``pad_operand`` makes: its lines are stored one after the other. Results at the end of a line, where the
    window goes on into the next one, mean nothing and nobody reads them; in return rows of any number, here
    ``multiple``, can be done together however short lines are. The results, ``name``, have their rows in the
    place of ``lines`` and lie with the dimension of the other operand innermost.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X, W = lang.placeholder((5, 6, 3), name="X"), lang.placeholder((2, 3, 4), name="W")
    >>> r, k = lang.reduce_axis(2, "r"), lang.reduce_axis(3, "k")
    >>> P = lang.compute((5, 6, 3), lambda y, x, c: X[y, x, c], name="P")
    >>> C = lang.compute((5, 5, 4), lambda y, x, n: lang.sum(P[y, x + r, k] * W[r, k, n], (r, k)), name="C")
    >>> s = Schedule(lang.program([X, W], [C]))
    >>> print(s.flatten_rows("C", "y", "x", 8, "rows"))
    func main:
        alloc P: f32[36, 3] global
        alloc rows: f32[32, 4] global
        for y_x in 0:36:
            for c in 0:3:
                block P(par y_x=y_x, par c=c):
                    P[y_x, c] = select(lt(i64[y_x], i64(30)), X[y_x//6, y_x%6, c], f32(0.0))
        for C_y_x in 0:32:
            for n in 0:4:
                for r in 0:2:
                    for k in 0:3:
                        block C(par y_x=C_y_x, par n=n, red r=r, red k=k):
                            init:
                                rows[y_x, n] = f32(0.0)
                            rows[y_x, n] = (rows[y_x, n] + (P[r + y_x, k] * W[r, k, n]))
        for d0 in 0:5:
            for d1 in 0:5:
                for d2 in 0:4:
                    block rows_lines(par d0=d0, par d1=d1, par d2=d2):
                        C[d0, d1, d2] = rows[6*d0 + d1, d2]

    Raises ScheduleError where the stage is no such sum, or a name is taken.
    """
    old = stage_called(program, stage)
    check_name(name, taken_names(program), f"{name}_lines")
    if multiple < 1:
        raise ScheduleError(f"rows come in multiples from 1, not {multiple}")
    load, maker = _operand(program, old, lines, line)
    assert isinstance(old.body, Store)
    write = old.body.writes[0]
    if len(old.body.writes) > 1 or len(program.producers(write.buffer)) > 1:
        raise ScheduleError(f"stage {stage!r} does not alone write one tensor, {write.buffer!r}")
    at = [i.as_var() for i in write.indices]
    down, across = (next(d for d, i in enumerate(load.indices) if v in i.vars) for v in (lines, line))
    source = program.buffer(load.buffer)
    pitch = source.shape[across].as_int()
    rows = (old.extent(lines) - 1) * pitch + old.extent(line)
    rows = -(-rows // multiple) * multiple
    env = iter_env(old.iters)
    offset = (load.indices[down] - var(lines)) * pitch + load.indices[across] - var(line)
    furthest = int_upper(offset, env)
    assert furthest is not None, "operands of constant shapes are read in constant ranges"
    fused = f"{lines}_{line}"
    # whole lines: loops over them need no division for each element
    elements = -(-(rows + furthest) // pitch) * pitch
    stored = _flat_operand(source, maker, down, across, elements, fused)
    result = program.buffer(write.buffer)
    new = _flat_result(result, name, at, (lines, line), rows, load)
    along = replace(load, indices=_without(load.indices, down, across, var(fused) + offset))

    own = _without(write.indices, at.index(lines), at.index(line), var(fused))

    def inside(ld: Load) -> Load:
        """A load of the stage itself."""
        if ld == load:
            return along
        return Load(name, own, ld.dtype) if ld.buffer == write.buffer else ld

    def flat(ld: Load) -> Load:
        """A load of another stage."""
        if ld.buffer != write.buffer:
            return ld
        place = ld.indices[at.index(lines)] * pitch + ld.indices[at.index(line)]
        return Load(name, _without(ld.indices, at.index(lines), at.index(line), place), ld.dtype)

    def stores(s: Stmt) -> Stmt:
        assert isinstance(s, Store)
        return Store(tuple(replace(w, buffer=name, indices=own) for w in s.writes))

    iters = tuple(
        Iter(fused, ZERO, Index(rows), "par") if it.name == lines else it
        for it in old.iters
        if it.name != line
    )
    summed = replace(
        old,
        iters=iters,
        body=stores(map_loads(old.body, inside)),
        init=None if old.init is None else stores(old.init),
    )
    assert isinstance(summed.body, Store)
    left = {lines, line} & summed.body.writes[0].value.vars
    if left or any(ld.buffer == load.buffer and ld not in (along, load) for ld in stmt_loads(old.body)):
        raise ScheduleError(
            f"stage {stage!r} reads more than {load} by {lines!r} and {line!r}",
            hint="skip_padding and pad_operand first, where that is padding",
        )
    stages: list[Stage] = []
    for s in program.stages:
        if s.name == stage:
            stages.append(summed)
        elif s.name == maker.name:
            stages.append(stored[1])
        else:
            stages.append(replace(s, body=map_loads(s.body, flat)))
    temps = [b for b in program.temps if b.name not in (source.name, write.buffer)]
    if any(b.name == write.buffer for b in program.outputs):
        dims = tuple(f"d{n}" for n in range(len(result.shape)))
        copy = flat(Load(write.buffer, tuple(map(var, dims)), result.dtype))
        domain = tuple(Iter(d, ZERO, e, "par") for d, e in zip(dims, result.shape, strict=True))
        body = Store((Access(write.buffer, tuple(map(var, dims)), copy),))
        stages.insert(program.stages.index(old) + 1, Stage(f"{name}_lines", domain, body, None, old.source))
    return replace(program, stages=tuple(stages), temps=(*temps, stored[0], new))


def _operand(program: Program, old: Stage, lines: str, line: str) -> tuple[Load, Stage]:
    """The load that moves along both iterators by single elements, and the stage that makes what it reads."""
    load = moved_operand(old, (lines, line))
    for v in (lines, line):
        along = [i for i in load.indices if v in i.vars]
        if len(along) != 1 or v in (along[0] - var(v)).vars or {lines, line} <= along[0].vars:
            raise ScheduleError(f"{load} does not move by single elements along {v!r}")
    return load, copy_maker(program, load, old.name)


def _flat_operand(
    source: Buffer, maker: Stage, down: int, across: int, elements: int, fused: str
) -> tuple[Buffer, Stage]:
    """The operand with its lines one after the other and zeros behind them, and the stage that makes it."""
    assert isinstance(maker.body, Store)
    pitch, height = source.shape[across].as_int(), source.shape[down].as_int()
    names = [it.name for it in maker.iters]
    position = {names[down]: floordiv(var(fused), pitch), names[across]: mod(var(fused), pitch)}
    w = maker.body.writes[0]
    value = substitute_expr(w.value, position)
    if elements > pitch * height:
        inside = Compare("lt", OfIndex(var(fused), I64), Const(pitch * height, I64))
        value = Select(inside, value, Const(0.0 if source.dtype.is_float else 0, source.dtype))
    shape = _without(source.shape, down, across, Index(elements))
    # as the dimensions were, with lines in the place of both; in order where that cannot be said
    old = source.layout
    layout = None
    if old is not None and old.dims[down] in (e.as_var() for e in old.exprs):
        flat = tuple(d for n, d in enumerate(old.dims) if n != across)
        kept = [(e, n) for e, n in zip(old.exprs, old.shape, strict=True) if old.dims[across] not in e.vars]
        sizes = tuple(Index(elements) if e.as_var() == old.dims[down] else n for e, n in kept)
        exprs = tuple(e for e, _ in kept)
        layout = None if exprs == tuple(map(var, flat)) else IndexMap(flat, exprs, sizes)
    iters = tuple(
        Iter(fused, ZERO, Index(elements), "par") if n == down else it
        for n, it in enumerate(maker.iters)
        if n != across
    )
    body = Store((Access(w.buffer, tuple(var(it.name) for it in iters), value),))
    return replace(source, shape=shape, layout=layout), replace(maker, iters=iters, body=body)


def _flat_result(
    result: Buffer, name: str, at: list[str | None], fused: tuple[str, str], rows: int, load: Load
) -> Buffer:
    """The buffer of the results by rows, with what only the other operand moves along innermost."""
    down, across = at.index(fused[0]), at.index(fused[1])
    shape = _without(result.shape, down, across, Index(rows))
    moved = {v for i in load.indices for v in i.vars}
    left = [n for n in range(len(at)) if n != across]
    last = [n for n in left if at[n] not in moved]
    order = [*(n for n in left if n not in last), *last]
    dims = {n: f"d{k}" for k, n in enumerate(left)}
    layout = None
    if order != left:
        size = dict(zip(left, shape, strict=True))
        layout = IndexMap(
            tuple(dims.values()), tuple(var(dims[n]) for n in order), tuple(size[n] for n in order)
        )
    return Buffer(name, shape, result.dtype, layout=layout)


def _without(items: tuple[Index, ...], at: int, other: int, new: Index) -> tuple[Index, ...]:
    """The items with ``new`` in place ``at``, and without the one in place ``other``."""
    return tuple(new if n == at else item for n, item in enumerate(items) if n != other)
