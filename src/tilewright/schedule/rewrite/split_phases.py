"""split_phases: what a sum reads in steps is stored by remainders of its places, to be read by elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
    Store,
    floordiv,
    int_upper,
    iter_env,
    map_loads,
    mod,
    substitute_expr,
    var,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import copy_maker, moved_operand, stage_called
from tilewright.support import ScheduleError


@primitive("split_phases", phase="program")
def split_phases(program: Program, stage: str, iterators: Sequence[str]) -> Program:
    """Store the operand that moves in steps along ``iterators`` so that it moves along them by elements.

    The operand must be a tensor of the program's own, read by this stage alone, such as ``pad_operand``
    makes. Of a dimension read at ``s * i + tap`` places with the same remainder by ``s``, a phase, come to
    lie side by side; phases that no tap meets are not stored. Phases of all ``iterators`` are outside of the
    first of their dimensions: the polyphase form of a convolution with strides. A dimension of ``n`` elements
    becomes up to ``s`` phases of ``ceil(n / s)`` places. Lines can be flattened then (``flatten_rows``).

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X, W = lang.placeholder((9,), name="X"), lang.placeholder((3,), name="W")
    >>> k = lang.reduce_axis(3, "k")
    >>> P = lang.compute((9,), lambda x: X[x], name="P")
    >>> C = lang.compute((4,), lambda i: lang.sum(P[2 * i + k] * W[k], k), name="C")
    >>> s = Schedule(lang.program([X, W], [C]))
    >>> print(s.split_phases("C", ["i"]))
    func main:
        alloc P: f32[2, 5] global
        for x_phase in 0:2:
            for x in 0:5:
                block P(par x_phase=x_phase, par x=x):
                    P[x_phase, x] = select(lt(i64[2*x + x_phase], i64(9)), X[2*x + x_phase], f32(0.0))
        for i in 0:4:
            for k in 0:3:
                block C(par i=i, red k=k):
                    init:
                        C[i] = f32(0.0)
                    C[i] = (C[i] + (P[k%2, i + k//2] * W[k]))

    Raises ScheduleError where no operand of the stage moves so, or it is shared or stored in blocks.
    """
    old = stage_called(program, stage)
    if not iterators or len(set(iterators)) < len(iterators):
        raise ScheduleError(f"iterators must be named, each once, not {list(iterators)}")
    load = moved_operand(old, iterators)
    maker = copy_maker(program, load, stage)
    steps = dict(_step(old, load, v, iterators) for v in iterators)
    buffer, made = _stored(program.buffer(load.buffer), maker, steps)
    first = min(steps)
    phases = tuple(mod(steps[d].tap, steps[d].size) for d in sorted(steps))
    places = tuple(
        var(steps[d].iterator) + floordiv(steps[d].tap, steps[d].size) if d in steps else i
        for d, i in enumerate(load.indices)
    )
    new = replace(load, indices=(*places[:first], *phases, *places[first:]))
    summed = replace(old, body=map_loads(old.body, lambda ld: new if ld == load else ld))
    instead = {stage: summed, maker.name: made}
    return replace(
        program,
        stages=tuple(instead.get(s.name, s) for s in program.stages),
        temps=tuple(buffer if b.name == load.buffer else b for b in program.temps),
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """How a dimension is read: at ``size * iterator + tap``, whose remainders are ``phases``."""

    iterator: str
    size: int
    tap: Index
    phases: int


def _step(stage: Stage, load: Load, iterator: str, iterators: Sequence[str]) -> tuple[int, _Step]:
    """The dimension of a load that an iterator moves along, and how."""
    refusal = ScheduleError(f"{load} does not move in steps along {iterator!r}")
    dims = [d for d, i in enumerate(load.indices) if iterator in i.vars]
    if len(dims) != 1:
        raise refusal
    size = load.indices[dims[0]].coefficient(iterator)
    tap = load.indices[dims[0]] - var(iterator) * size
    reach = int_upper(tap, iter_env(stage.iters))
    if size < 1 or tap.vars & set(iterators) or reach is None:
        raise refusal
    return dims[0], _Step(iterator, size, tap, min(size, reach + 1))


def _stored(source: Buffer, maker: Stage, steps: Mapping[int, _Step]) -> tuple[Buffer, Stage]:
    """The operand by phases, and the stage that makes it."""
    assert isinstance(maker.body, Store)
    write = maker.body.writes[0]
    names = [it.name for it in maker.iters]
    phase = {d: f"{names[d]}_phase" for d in sorted(steps)}
    for name in set(phase.values()) & set(names):
        raise ScheduleError(f"stage {maker.name!r} has an iterator called as a phase is, {name!r}")
    old = {names[d]: var(names[d]) * steps[d].size + var(phase[d]) for d in steps}
    value = substitute_expr(write.value, old)
    extents = {d: -(-source.shape[d].as_int() // steps[d].size) for d in steps}
    for d, step in sorted(steps.items()):
        size = source.shape[d].as_int()
        if step.size * (extents[d] - 1) + step.phases > size:
            beyond = Compare("lt", OfIndex(old[names[d]], I64), Const(size, I64))
            value = Select(beyond, value, Const(0.0 if source.dtype.is_float else 0, source.dtype))
    first = min(steps)
    iters = [
        Iter(it.name, ZERO, Index(extents[d]), "par") if d in steps else it
        for d, it in enumerate(maker.iters)
    ]
    iters[first:first] = [Iter(phase[d], ZERO, Index(steps[d].phases), "par") for d in sorted(steps)]
    shape = tuple(it.extent for it in iters)
    body = Store((Access(write.buffer, tuple(var(it.name) for it in iters), value),))
    layout = None if source.layout is None else _layout(source, extents, steps)
    return replace(source, shape=shape, layout=layout), replace(maker, iters=tuple(iters), body=body)


def _layout(source: Buffer, extents: Mapping[int, int], steps: Mapping[int, _Step]) -> IndexMap:
    """The operand's layout with the phases outside of the first dimension that has some."""
    old = source.layout
    assert old is not None
    places = {d: [n for n, e in enumerate(old.exprs) if old.dims[d] in e.vars] for d in steps}
    if any(len(at) != 1 or old.exprs[at[0]].as_var() != old.dims[d] for d, at in places.items()):
        raise ScheduleError(f"{source.name!r} is stored in blocks along what is read in steps")
    phase = {d: f"{old.dims[d]}_phase" for d in sorted(steps)}
    size = {places[d][0]: Index(extents[d]) for d in steps}
    exprs, shape = list(old.exprs), [size.get(n, extent) for n, extent in enumerate(old.shape)]
    outer = min(size)
    exprs[outer:outer] = [var(name) for name in phase.values()]
    shape[outer:outer] = [Index(steps[d].phases) for d in phase]
    first = min(steps)
    dims = (*old.dims[:first], *phase.values(), *old.dims[first:])
    return IndexMap(dims, tuple(exprs), tuple(shape))
