"""Nests as programs: lifted, scheduled by the rules of programs, and results put where the nest has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir import (
    PARALLEL,
    SERIAL,
    ZERO,
    Access,
    Alloc,
    Block,
    Buffer,
    Exec,
    For,
    Index,
    Iter,
    Load,
    LoopFunction,
    Seq,
    Stmt,
    Store,
    fresh_name,
    loads,
    rename_buffers,
    seq,
    stmt_children,
    stmt_loads,
    substitute_index,
    var,
)
from tilewright.plan import plan_unit
from tilewright.poly import lift
from tilewright.schedule import Schedule
from tilewright.target import Target


def lifted_nest(func: LoopFunction, target: Target, threads: int) -> LoopFunction:
    """A nest of fixed sizes as a program with the default plan, arguments in place as before.

    Raises ScheduleError or ResourceError where the nest cannot be lifted.
    """
    found = lift(func)
    schedule = plan_unit(found.program, target, threads).schedule
    return _with_arguments(func, schedule, found.results)


def _with_arguments(func: LoopFunction, schedule: Schedule, results: Mapping[str, str]) -> LoopFunction:
    """The scheduled function over the arguments of ``func``: each result lies upon the argument it replaces.

    Where elements of the argument may be read after results are there, results go to memory of their own and
    are copied at the end.
    """
    body = schedule.func.body
    moved = {out: arg for out, arg in results.items() if _may_overwrite(schedule, out, arg)}
    taken: set[str] = set(body.inner_names) | {b.name for b in (*func.buffers, *schedule.func.buffers)}
    copies: list[Stmt] = []
    for out, arg in results.items():
        if out not in moved:
            b = func.buffer(arg)
            copies.append(_copy(out, b, taken))
    body = seq(body, *copies)
    for out, arg in results.items():
        if out not in moved:
            body = Alloc(func.buffer(arg).with_(name=out), body)
    return func.with_body(rename_buffers(body, moved))


def _copy(source: str, b: Buffer, taken: set[str]) -> Stmt:
    block = fresh_name(f"copy_{source}", taken)
    taken.add(block)
    dims = [fresh_name(f"{block}_{n}", taken) for n in range(len(b.shape))]
    taken.update(dims)
    at = tuple(map(var, dims))
    iters = tuple(Iter(d, ZERO, n, "par") for d, n in zip(dims, b.shape, strict=True))
    out: Stmt = Block(block, block, iters, at, Store((Access(b.name, at, Load(source, at, b.dtype)),)))
    for k in reversed(range(len(dims))):
        out = For(dims[k], ZERO, b.shape[k], out, PARALLEL if k == 0 and len(dims) > 1 else SERIAL)
    return out


def _may_overwrite(schedule: Schedule, out: str, arg: str) -> bool:
    """Whether a result may lie upon an argument: no element is read once its result is there.

    Parts of the function before the first that writes the result read what they like; later ones only the
    element that they write, each once.
    """
    func = schedule.func
    if any("shift" in (*step.args, *dict(step.kwargs).values()) for step in schedule.trace.steps):
        return False
    parts = list(_parts(func.body))
    writing = [n for n, part in enumerate(parts) if _writes(part, out)]
    if not writing:
        return True
    return all(_reads_own(part, out, arg) for part in parts[writing[0] :])


def _parts(s: Stmt) -> Iterator[Stmt]:
    """What a function does one after another."""
    match s:
        case Seq():
            for child in s.stmts:
                yield from _parts(child)
        case Alloc():
            yield from _parts(s.body)
        case _:
            yield s


def _leaves(s: Stmt) -> Iterator[Stmt]:
    below = stmt_children(s)
    if not below:
        yield s
    for child in below:
        yield from _leaves(child)


def _executed(s: Stmt) -> Iterator[Exec]:
    if isinstance(s, Exec):
        yield s
    for child in (s.body,) if isinstance(s, Block) else stmt_children(s):
        yield from _executed(child)


def _writes(s: Stmt, buffer: str) -> bool:
    if any(w.buffer == buffer and "w" in w.mode for e in _executed(s) for w in e.windows):
        return True
    return any(buffer in {name for name, _ in leaf.writes} for leaf in _leaves(s) if isinstance(leaf, Block))


def _reads_own(part: Stmt, out: str, arg: str) -> bool:
    """Whether a part reads of an argument only the elements whose results it writes in that instance."""
    if any(w.buffer == arg for e in _executed(part) for w in e.windows):
        return False
    for leaf in _leaves(part):
        if not isinstance(leaf, Block):
            if any(ld.buffer == arg for ld in stmt_loads(leaf)):
                return False
            continue
        if all(ld.buffer != arg for ld in leaf.reads):
            continue
        body = leaf.body
        if not isinstance(body, Store) or len(body.writes) != 1 or leaf.init is not None:
            return False
        w = body.writes[0]
        single = {it.name: it.lo for it in leaf.iters if it.extent.is_const and it.extent.const == 1}
        moving = frozenset[str]().union(*(i.vars for i in w.indices))
        if w.buffer != out or any(it.name not in moving and it.name not in single for it in leaf.iters):
            return False
        if any(it.kind != "par" for it in leaf.iters):
            return False
        here = _settled(w.indices, single)
        if any(_settled(ld.indices, single) != here for ld in loads(w.value) if ld.buffer == arg):
            return False
        if any(ld.buffer == arg for ld in leaf.reads if ld not in set(loads(w.value))):
            return False
    return True


def _settled(indices: tuple[Index, ...], single: Mapping[str, Index]) -> tuple[Index, ...]:
    return tuple(substitute_index(i, single) for i in indices)
