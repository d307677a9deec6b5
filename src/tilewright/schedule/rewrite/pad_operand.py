"""pad_operand: a reduction reads one operand from a tensor of its own that holds the padding, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.analysis import update_of
from tilewright.ir import (
    I64,
    ZERO,
    Access,
    Binary,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    Index,
    IndexMap,
    Iter,
    Load,
    OfIndex,
    Pred,
    Program,
    Select,
    Stage,
    Store,
    condition_of,
    floordiv,
    int_lower,
    int_upper,
    iter_env,
    map_loads,
    mod,
    stmt_loads,
    var,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import (
    check_bounds,
    check_name,
    operand_of,
    stage_called,
    taken_names,
    with_operand,
)
from tilewright.support import ScheduleError


@primitive("pad_operand", phase="program")
def pad_operand(
    program: Program, stage: str, operand: int, name: str, order: Sequence[int] = (), block: int = 0
) -> Program:
    """Copy the ``operand``-th load of the sum ``stage``, counted from 0, to a tensor ``name`` with zeros.

    The tensor spans what the load's indices reach; terms that the stage left out are zeros in it, and the
    stage leaves none out any more: what does whole rows at once, such as an instruction for matrices, meets
    no condition. ``order`` are the dimensions from the slowest to the fastest in memory (default: in order),
    of which the last one may come in blocks: then each block lies together, one after the other.
    Results are the same but where the other factor is infinite or NaN (0 times that is NaN).

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X, W = lang.placeholder((8,), name="X"), lang.placeholder((3,), name="W")
    >>> k = lang.reduce_axis(3, "k")
    >>> P = lang.compute((10,), lambda i: lang.select((i >= 1) & (i < 9), X[i - 1], 0.0), name="P")
    >>> C = lang.compute((8,), lambda i: lang.sum(P[i + k] * W[k], axis=k), name="C")
    >>> s = Schedule(lang.program([X, W], [C])).inline_stage("P").skip_padding("C")
    >>> print(s)
    func main:
        for i in 0:8:
            for k in 0:3:
                block C(par i=i, red k=k):
                    init:
                        C[i] = f32(0.0)
                    if i + k - 1 >= 0 and -i - k + 8 >= 0:
                        C[i] = (C[i] + (X[i + k - 1] * W[k]))
    >>> print(s.pad_operand("C", 0, "P"))
    func main:
        alloc P: f32[10] global
        for d0 in 0:10:
            block P(par d0=d0):
                P[d0] = select(and(ge(i64[d0 - 1], i64(0)), le(i64[d0 - 1], i64(7))), X[d0 - 1], f32(0.0))
        for i in 0:8:
            for k in 0:3:
                block C(par i=i, red k=k):
                    init:
                        C[i] = f32(0.0)
                    C[i] = (C[i] + (P[i + k] * W[k]))

    Raises ScheduleError for an unknown stage or operand, a stage that is no sum of products, ranges that are
    not constant, conditions that are not bounds of the operand's indices, an element elsewhere that is in
    bounds only where they hold, or a name that is taken.
    """
    old = stage_called(program, stage)
    check_name(name, taken_names(program))
    load = operand_of(old, operand)
    guard, body = condition_of(old.body)
    if not isinstance(body, Store) or not _is_factor(body, load):
        raise ScheduleError(f"stage {stage!r} is no sum of products with {load}: zeros would not be neutral")
    shape = program.buffer(load.buffer).shape
    bounds = _bounds(guard, load, stage)
    for other in stmt_loads(body):
        if guard and other != load:
            # read, and multiplied with a zero, where the conditions left the term out
            check_bounds(program, old, other)
    env = iter_env(old.iters)
    order = tuple(order) or tuple(range(len(shape)))
    if sorted(order) != list(range(len(shape))):
        raise ScheduleError(f"order={order} does not name each dimension of {load.buffer!r} once")
    dims = tuple(f"d{n}" for n in range(len(shape)))
    starts, extents, inside = [], [], list[Expr]()
    for n, (i, size) in enumerate(zip(load.indices, shape, strict=True)):
        low, high = int_lower(i, env), int_upper(i, env)
        if low is None or high is None or not size.is_const:
            raise ScheduleError(f"{load}: the range of {i} is not constant")
        starts.append(low)
        extents.append(Index(high - low + 1))
        first, last = bounds.get(n, (None, None))
        here = OfIndex(var(dims[n]) + low, I64)
        if first is not None and low < first:
            inside.append(Compare("ge", here, Const(first, I64)))
        if last is not None and high > last:
            inside.append(Compare("le", here, Const(last, I64)))
        if (low if first is None else max(low, first)) < 0 or (
            high if last is None else min(high, last)
        ) >= size.const:
            raise ScheduleError(
                f"{load} may lie outside of {load.buffer!r} where a condition of stage {stage!r} hides it"
            )
    value: Expr = Load(
        load.buffer, tuple(var(d) + low for d, low in zip(dims, starts, strict=True)), load.dtype
    )
    if inside:
        whole = inside[0]
        for c in inside[1:]:
            whole = Binary("and", whole, c)
        value = Select(whole, value, Const(0.0 if load.dtype.is_float else 0, load.dtype))
    layout = None
    if block:
        *others, last = order
        if block < 0 or extents[last].as_int() % block:
            raise ScheduleError(
                f"dimension {last} of {name!r}, {extents[last]} long, has no blocks of {block}"
            )
        exprs = (
            floordiv(var(dims[last]), block),
            *(var(dims[d]) for d in others),
            mod(var(dims[last]), block),
        )
        counts = (floordiv(extents[last], block), *(extents[d] for d in others), Index(block))
        layout = IndexMap(dims, exprs, counts)
    elif order != tuple(range(len(shape))):
        layout = IndexMap(dims, tuple(var(dims[d]) for d in order), tuple(extents[d] for d in order))
    made = Stage(
        name,
        tuple(Iter(d, ZERO, extent, "par") for d, extent in zip(dims, extents, strict=True)),
        Store((Access(name, tuple(map(var, dims)), value),)),
        None,
        old.source,
    )
    padded = Load(name, tuple(i - low for i, low in zip(load.indices, starts, strict=True)), load.dtype)
    new = replace(old, body=map_loads(body, lambda ld: padded if ld == load else ld))
    buffer = Buffer(name, tuple(extents), load.dtype, layout=layout)
    return with_operand(program, old, new, made, buffer)


def _is_factor(body: Store, load: Load) -> bool:
    """Whether a stage adds products of which ``load`` is one factor, and another element the other."""
    update = update_of(body.writes[0]) if len(body.writes) == 1 else None
    factors = [_element(e) for e in (update.factors if update is not None else None) or ()]
    return factors.count(load) == 1 and None not in factors


def _element(e: Expr) -> Load | None:
    """The element that an expression is, perhaps in another type."""
    while isinstance(e, Cast):
        e = e.a
    return e if isinstance(e, Load) else None


def _bounds(guard: Pred, load: Load, stage: str) -> dict[int, tuple[int | None, int | None]]:
    """The first and last value that the conditions allow of each index; ``None`` for no bound."""
    out: dict[int, tuple[int | None, int | None]] = {}
    for c in guard:
        for n, i in enumerate(load.indices):
            if c.index is None or c.op != "ge":
                continue
            first, last = out.get(n, (None, None))
            low, high = c.index - i, c.index + i
            if low.is_const:
                out[n] = (-low.const if first is None else max(first, -low.const), last)
                break
            if high.is_const and not i.is_const:
                out[n] = (first, high.const if last is None else min(last, high.const))
                break
        else:
            raise ScheduleError(
                f"a condition of stage {stage!r} bounds no index of {load}",
                hint="only padding can be stored, not other conditions",
            )
    return out
