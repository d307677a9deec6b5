"""Running one stage: whole boxes at once, reductions by numpy, ordered iterators one value after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from tilewright import ir
from tilewright.ir import Access, Iter, Load, Stage, Stmt, Store
from tilewright.lang.evaluation.contraction import contract
from tilewright.lang.evaluation.domains import Array, Box, positions, view
from tilewright.lang.evaluation.expressions import Evaluator, Memory, Value, bounds
from tilewright.lang.patterns import Extremum, Fold, Pattern, patterns_of

#: Points of a box that are evaluated at once; bounds the size of temporary arrays.
CHUNK: Final = 1 << 22

_REDUCERS: MappingProxyType[str, Callable[..., Array]] = MappingProxyType(
    {
        "add": np.add.reduce, "mul": np.multiply.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce,
        "and": np.logical_and.reduce, "or": np.logical_or.reduce,
    }
)  # fmt: skip
_COMBINERS: MappingProxyType[str, Callable[..., Array]] = MappingProxyType(
    {
        "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
        "and": np.logical_and, "or": np.logical_or,
    }
)  # fmt: skip


def run_stage(stage: Stage, memory: Memory, params: Mapping[str, int]) -> None:
    """Run a stage on the arrays of ``memory``."""
    sequential = [it.name for it in stage.iters if it.kind == "ord"]
    plans = None if sequential else patterns_of(stage)
    if stage.is_reduction and plans is None:
        sequential += [it.name for it in stage.iters if it.kind == "red"]
    if sequential:
        _run_ordered(stage, memory, params, set(sequential))
        return
    box = hull(stage.iters, params)
    if not stage.is_reduction:
        for part in box.chunks(CHUNK, tuple(range(len(box.names)))):
            _execute(stage.body, Evaluator(memory, part), _domain_mask(stage.iters, part, memory))
        return
    assert plans is not None
    par = tuple(it for it in stage.iters if it.kind == "par")
    if stage.init is not None:
        outer = hull(par, params)
        for part in outer.chunks(CHUNK, tuple(range(len(par)))):
            _execute(stage.init, Evaluator(memory, part), _domain_mask(par, part, memory))
    for plan in plans:
        _reduce(plan, stage, box, memory)


def hull(iters: tuple[Iter, ...], params: Mapping[str, int]) -> Box:
    """The smallest box of constant ranges around the iterators' domain."""
    ranges: dict[str, tuple[int, int]] = {}
    for it in iters:
        ranges[it.name] = bounds(it, ranges, params)
    return Box(tuple(ranges), tuple(ranges.values()), params)


def _domain_mask(iters: tuple[Iter, ...], box: Box, memory: Memory) -> Array | None:
    """Where a point of the hull lies in the domain; ``None`` for a rectangular domain."""
    mask: Array | None = None
    evaluator = Evaluator(memory, box)
    for it in iters:
        if it.lo.vars or it.hi.vars:
            at = box.grid(it.name)
            inside = (at >= evaluator.index(it.lo, None)) & (at < evaluator.index(it.hi, None))
            mask = inside if mask is None else mask & inside
    return mask


def _execute(s: Stmt, ev: Evaluator, mask: Array | None) -> None:
    match s:
        case Store():
            # all values first: the stores of one statement are simultaneous
            values = [(w, ev.value(w.value, mask)) for w in s.writes]
            for w, (v, m) in values:
                if np.may_share_memory(v, ev.memory.arrays[w.buffer]):
                    v = v.copy()
                    m = None if m is None else m.copy()
                _write(w, (v, m), ev, mask)
        case ir.If():
            inside = ev.pred(s.cond, mask)
            if inside is None or np.any(inside):
                _execute(s.then, ev, inside)
            if s.orelse is not None and inside is not None:
                outside = ~inside if mask is None else ~inside & mask
                _execute(s.orelse, ev, outside)
        case ir.Seq():
            for k in s.stmts:
                ev.cache.clear()
                _execute(k, ev, mask)
        case _:
            raise AssertionError(f"no {type(s).__name__} in a stage")


def _write(w: Access, value: Value, ev: Evaluator, mask: Array | None) -> None:
    arrays = ev.memory.arrays
    pairs = [(arrays[w.buffer], value[0])]
    if ev.memory.magnitudes is not None and value[1] is not None:
        pairs.append((ev.memory.magnitudes[w.buffer], value[1]))
    if ev.box.size == 0:
        return
    for array, v in pairs:
        target = view(array, w.indices, ev.box)
        if target is not None and mask is None:
            shape = np.broadcast_shapes(target.shape, v.shape)
            if shape == target.shape:
                target[...] = v
            else:
                # several instances write one element: the last one wins
                at = positions(array, w.indices, ev.box, mask, ev.opaque(mask))
                array[tuple(np.broadcast_to(p, ev.box.shape) for p in at)] = np.broadcast_to(v, ev.box.shape)
            continue
        at = positions(array, w.indices, ev.box, mask, ev.opaque(mask))
        if mask is None:
            array[at] = v
            continue
        inside = np.broadcast_to(mask, ev.box.shape)
        where = tuple(np.broadcast_to(p, ev.box.shape)[inside] for p in at)
        array[where] = np.broadcast_to(v, ev.box.shape)[inside]


def _run_ordered(stage: Stage, memory: Memory, params: Mapping[str, int], names: set[str]) -> None:
    """Iterators of ``names`` take their values one after another, the others all at once."""
    loops = [it for it in stage.iters if it.name in names]
    fixed: dict[str, tuple[int, int]] = {}

    def box() -> Box:
        ranges: dict[str, tuple[int, int]] = {}
        for it in stage.iters:
            ranges[it.name] = fixed.get(it.name) or bounds(it, {**ranges, **fixed}, params)
        return Box(tuple(ranges), tuple(ranges.values()), params)

    def visit(depth: int, first: bool) -> None:
        if depth == len(loops):
            here = box()
            mask = _domain_mask(stage.iters, here, memory)
            if first and stage.init is not None:
                _execute(stage.init, Evaluator(memory, here), mask)
            _execute(stage.body, Evaluator(memory, here), mask)
            return
        it = loops[depth]
        # hulls of bounds over iterators that are not fixed; the domain's mask decides each point
        here = box()
        env = {n: r for n, r in zip(here.names, here.ranges, strict=True) if n != it.name}
        lo, hi = bounds(it, env, params)
        for value in range(lo, hi):
            fixed[it.name] = (value, value + 1)
            visit(depth + 1, first and (it.kind != "red" or value == lo))
        fixed.pop(it.name, None)

    visit(0, True)


def _reduce(plan: Pattern, stage: Stage, box: Box, memory: Memory) -> None:
    """Combine the elements of all points of ``box`` into the targets."""
    red = tuple(n for n, it in enumerate(stage.iters) if it.kind == "red")
    par = tuple(n for n in range(len(stage.iters)) if n not in red)
    rectangular = not any(it.lo.vars or it.hi.vars for it in stage.iters)
    if isinstance(plan, Fold) and plan.op == "add" and rectangular and not plan.where and box.size:
        if contract(plan.target, plan.value, box, red, memory):
            return
    # parallel iterators first: a chunk then holds whole reductions if they fit
    for part in box.chunks(CHUNK, (*par, *red)):
        ev = Evaluator(memory, part)
        mask = ev.pred(plan.where, _domain_mask(stage.iters, part, memory))
        outer = Box(tuple(part.names[n] for n in par), tuple(part.ranges[n] for n in par), part.params)
        if isinstance(plan, Fold):
            _fold(plan, ev, mask, red, Evaluator(memory, outer))
        else:
            _pick(plan, ev, mask, par, red, Evaluator(memory, outer))


def _fold(plan: Fold, ev: Evaluator, mask: Array | None, red: tuple[int, ...], outer: Evaluator) -> None:
    v, m = ev.value(plan.value, mask)
    dtype = plan.value.dtype
    start = _identity(plan.op, v.dtype, dtype)
    result = _reduced(plan.op, v, mask, start, ev.box, red)
    before, mag_before = outer.load(Load(plan.target.buffer, plan.target.indices, dtype), None)
    value: Array = np.asarray(_COMBINERS[plan.op](before, result)).astype(v.dtype)
    mag: Array | None = None
    if m is not None and mag_before is not None:
        op = plan.op if plan.op in ("add", "mul") else "max"
        zero: Array = np.asarray(1.0 if op == "mul" else 0.0)
        mag = _COMBINERS[op](mag_before, _reduced(op, m, mask, zero, ev.box, red))
    _write(plan.target, (value, mag), outer, None)


def _reduced(op: str, v: Array, mask: Array | None, start: Array, box: Box, red: tuple[int, ...]) -> Array:
    """``v`` reduced over the dimensions ``red``, which leave the array; masked elements do not count."""
    if mask is not None:
        v = np.where(mask, v, start)
    full: Array = np.broadcast_to(v, box.shape)
    return np.asarray(_REDUCERS[op](full, axis=red, initial=start[()])).astype(v.dtype)


def _identity(op: str, held: np.dtype[np.generic], dtype: ir.DType) -> Array:
    value = {
        "add": 0, "mul": 1, "min": dtype.max_value, "max": dtype.min_value, "and": True, "or": False
    }[op]  # fmt: skip
    return np.asarray(value, held)


def _pick(
    plan: Extremum,
    ev: Evaluator,
    mask: Array | None,
    par: tuple[int, ...],
    red: tuple[int, ...],
    outer: Evaluator,
) -> None:
    v, m = ev.value(plan.value, mask)
    k = ev.value(plan.position, mask)[0]
    shape = tuple(ev.box.shape[n] for n in par)
    order = (*par, *red)

    def flat(a: Array) -> Array:
        return np.broadcast_to(a, ev.box.shape).transpose(order).reshape((*shape, -1))

    best_access, at_access = plan.targets
    best, _ = outer.load(Load(best_access.buffer, best_access.indices, plan.value.dtype), None)
    at, _ = outer.load(Load(at_access.buffer, at_access.indices, ir.I64), None)
    valid: Array = np.ones((*shape, 1), np.bool_)
    x = np.concatenate([np.broadcast_to(best, shape)[..., None], flat(v)], axis=-1)
    pos = np.concatenate([np.broadcast_to(at, shape)[..., None], flat(k)], axis=-1)
    inside = flat(np.asarray(True) if mask is None else mask)
    valid = np.concatenate([valid, inside], axis=-1)
    start = plan.value.dtype.min_value if plan.kind == "argmax" else plan.value.dtype.max_value
    x = np.where(valid, x, np.asarray(start, x.dtype))
    top = np.max(x, axis=-1) if plan.kind == "argmax" else np.min(x, axis=-1)
    hit = valid & ((x == top[..., None]) | ((x != x) & (top != top)[..., None]))
    where = np.min(np.where(hit, pos, ir.I64.max_value), axis=-1)
    mags: tuple[Array | None, Array | None] = (None, None)
    if m is not None:
        mags = np.max(flat(m), axis=-1, initial=0.0), where.astype(np.float64)
    _write(best_access, (top, mags[0]), outer, None)
    _write(at_access, (where, mags[1]), outer, None)
