"""Splitting a reduction into independent parts and their combination (split-K, rfactor)."""

from __future__ import annotations

from dataclasses import replace

from tilewright import ir
from tilewright.ir import Access, Buffer, Index, Iter, Load, Program, Stage, Stmt, Store
from tilewright.lang.patterns import Pattern, patterns_of
from tilewright.support import ScheduleError, counted, quoted


def split_reduction(program: Program, stage: str, axis: str, length: int) -> Program:
    """``sum over k`` as the sum over parts of sums over ``length`` values of ``k`` each.

    The stage becomes two. The first keeps its iterators, but ``k`` turns into a parallel iterator ``k_part``
    (the first one) and a reduction ``k`` over ``length``; it writes a temporary ``<stage>_part`` with one
    more dimension. The second reduces that over ``k_part`` into the buffers of the old one. A last shorter
    part is guarded. Floats are summed in another order. Raises ``ScheduleError`` where the stage is no
    reduction of a known kind or ``axis`` no reduction iterator from 0 to a constant.
    """
    old = _stage(program, stage)
    patterns = patterns_of(old)
    it = next((i for i in old.iters if i.name == axis and i.kind == "red"), None)
    if patterns is None or old.init is None or it is None:
        reds = ", ".join(i.name for i in old.iters if i.kind == "red") or "none"
        raise ScheduleError(
            f"stage {quoted(stage)} has no reduction over {quoted(axis)} that can be split",
            hint=f"its reduction iterators are: {reds}",
        )
    if not (it.lo == ir.ZERO and it.hi.is_const):
        raise ScheduleError(
            f"the range of {quoted(axis)} is [{it.lo}, {it.hi})", hint="it has to run from 0 to a constant"
        )
    if any(axis in i.lo.vars | i.hi.vars for i in old.iters):
        raise ScheduleError(f"the range of another iterator of {quoted(stage)} depends on {quoted(axis)}")
    extent = it.hi.as_int()
    if not 1 <= length <= max(1, extent):
        raise ScheduleError(f"parts of {counted(length, 'value')} of an axis of {extent}")
    return _split(program, old, patterns, it, length)


def _stage(program: Program, name: str) -> Stage:
    found = next((s for s in program.stages if s.name == name), None)
    if found is None:
        names = ", ".join(s.name for s in program.stages)
        raise ScheduleError(f"there is no stage {quoted(name)}", hint=f"the stages are {names}")
    return found


def _split(program: Program, old: Stage, patterns: list[Pattern], it: Iter, length: int) -> Program:
    extent = it.hi.as_int()
    parts = -(-extent // length)
    taken = {b.name for b in (*program.inputs, *program.outputs, *program.temps)}
    taken |= {s.name for s in program.stages} | {p.name for p in program.params}
    part = ir.fresh_name(f"{it.name}_part", {i.name for i in old.iters} | {p.name for p in program.params})
    names: dict[str, str] = {}
    temps: list[Buffer] = []
    for b in old.writes:
        names[b] = ir.fresh_name(f"{b}_part", taken)
        taken.add(names[b])
        shape = (ir.index(parts), *program.buffer(b).shape)
        temps.append(ir.buffer(names[b], shape, program.buffer(b).dtype))

    def moved(indices: tuple[Index, ...]) -> tuple[Index, ...]:
        return (ir.var(part), *indices)

    def redirect(s: Stmt) -> Stmt:
        def of_load(ld: Load) -> ir.Expr:
            return Load(names[ld.buffer], moved(ld.indices), ld.dtype) if ld.buffer in names else ld

        return _map_writes(ir.map_loads(s, of_load), names, part)

    k = ir.var(part) * length + ir.var(it.name)
    # the accumulator is redirected before k is substituted: its indices do not mention k
    body = ir.substitute_body(redirect(old.body), {it.name: k})
    if extent % length:
        guard = ir.ge0(ir.index(extent - 1) - k)
        body = ir.If((guard, *body.cond), body.then) if isinstance(body, ir.If) else ir.If((guard,), body)
    assert old.init is not None
    iters = (
        Iter(part, ir.ZERO, ir.index(parts), "par"),
        *(replace(i, hi=ir.index(length)) if i is it else i for i in old.iters),
    )
    name = ir.fresh_name(f"{old.name}_part", taken - set(names.values()))
    first = replace(old, name=name, iters=iters, body=body, init=redirect(old.init))
    second_iters = (
        *(i for i in old.iters if i.kind != "red"),
        Iter(part, ir.ZERO, ir.index(parts), "red"),
    )
    updates: list[Access] = []
    for p in patterns:
        current = tuple(Load(t.buffer, t.indices, v.dtype) for t, v in zip(p.targets, p.values, strict=True))
        values = tuple(Load(names[ld.buffer], moved(ld.indices), ld.dtype) for ld in current)
        new = p.combine(current, values)
        updates.extend(Access(t.buffer, t.indices, v) for t, v in zip(p.targets, new, strict=True))
    second = replace(old, iters=second_iters, body=Store(tuple(updates)))
    stages: list[Stage] = []
    for s in program.stages:
        stages.extend((first, second) if s is old else (s,))
    return replace(program, stages=tuple(stages), temps=(*program.temps, *temps))


def _map_writes(s: Stmt, names: dict[str, str], part: str) -> Stmt:
    match s:
        case Store():
            return Store(
                tuple(Access(names[w.buffer], (ir.var(part), *w.indices), w.value) for w in s.writes)
            )
        case ir.If():
            return ir.If(s.cond, _map_writes(s.then, names, part))
        case _:
            raise AssertionError("patterns are stores, guarded or not")
