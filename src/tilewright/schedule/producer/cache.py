"""cache: keep the part of a buffer that is used below a loop in storage of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tilewright.ir import (
    I64,
    ZERO,
    Block,
    Buffer,
    Compare,
    Condition,
    Const,
    Env,
    Expr,
    For,
    Index,
    Iter,
    Load,
    LoopFunction,
    OfIndex,
    Path,
    Select,
    Span,
    Stmt,
    blocks,
    buffers_of,
    floordiv,
    fresh_name,
    imax,
    loop_env,
    map_blocks,
    prove_ge0,
    replace_at,
    seq,
    store,
    upper,
    var,
)
from tilewright.schedule.common import find_loop, refusal, taken_names
from tilewright.schedule.dead import without_dead_store
from tilewright.schedule.footprint import Box, Touch, footprint
from tilewright.schedule.producer.nest import (
    around,
    below_allocs,
    buffer_at,
    build_nest,
    check_available,
    check_unrolled,
    sites,
    solve,
    touching,
)
from tilewright.schedule.producer.packing import packed_map
from tilewright.schedule.producer.redirect import dimension_names, redirect, redirect_body
from tilewright.schedule.producer.written import Writer, defined, domain_of, guard_of, writers, writes_all
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError

Mode = Literal["read", "write", "accumulate"]
SCOPES = ("global", "local", "shared", "register")


@primitive("cache", phase="loop")
def cache(
    func: LoopFunction,
    buffer: str,
    at: str | None = None,
    *,
    scope: str = "local",
    layout: Sequence[str] = (),
    mode: Mode = "read",
    name: str | None = None,
    pad: Sequence[int] = (),
    keep: bool = True,
) -> LoopFunction:
    """Give the box of ``buffer`` that one iteration of ``at`` uses a buffer of its own, allocated there.

    ``mode``

    * ``read``: a nest ``name`` copies the box in, before its first use; loads below are redirected.
    * ``write``: stores (and loads) below are redirected, a nest ``<name>_out`` copies the box out at the end.
      Every element of the box must be defined below ``at`` before it is read.
    * ``accumulate``: the running values of a reduction. If all reduction loops are below ``at``, a nest
      ``<name>_init`` starts them (the block's own init is taken away); if some are outside, the nest ``name``
      loads what is there, which needs ``decompose_init`` first. ``<name>_out`` stores them at the end.

    The new buffer is called ``name`` (default ``<buffer>_<scope>``), keeps the logical indices of ``buffer``
    and stores the box row by row, or as ``layout`` says: one string for each physical dimension,
    ``("j//48", "k", "j%48")``, see :mod:`~tilewright.schedule.producer.packing`. Dimensions are called as
    the iterator that indexes them in the first access, or ``d0``, ``d1`` … The copying nests are ordinary
    blocks with loops ``<name>_<dimension>`` (``<name>_out_<dimension>``, ``<name>_init_<iterator>``).

    With ``keep=False`` nothing is copied out: for what is read below ``at`` alone, such as the last part of
    a sum whose epilogue is there too.

    ``pad`` rounds the box up to multiples, one a dimension (1: leave it), in mode ``read``; what lies past
    the end of ``buffer`` is then filled with zeros. Without ``at`` the whole function counts as the loop.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> A, B = lang.placeholder((3,), name="A"), lang.placeholder((3, 8), name="B")
    >>> k = lang.reduce_axis(3, "k")
    >>> C = lang.compute((8,), lambda j: lang.sum(A[k] * B[k, j], axis=k), name="C")
    >>> s = Schedule(lang.program([A, B], [C])).split("j", 4).reorder("j_o", "k", "j_i")
    >>> print(s)
    func main:
        for j_o in 0:2:
            for k in 0:3:
                for j_i in 0:4:
                    block C(par j=j_i + 4*j_o, red k=k):
                        init:
                            C[j] = f32(0.0)
                        C[j] = (C[j] + (A[k] * B[k, j]))
    >>> print(s.cache("B", "j_o", name="P"))
    func main:
        for j_o in 0:2:
            alloc P: f32[3, 4] local
            for P_k in 0:3:
                for P_j in 0:4:
                    block P(par k=P_k, par j=P_j + 4*j_o):
                        P[k, j] = B[k, j]
            for k in 0:3:
                for j_i in 0:4:
                    block C(par j=j_i + 4*j_o, red k=k):
                        init:
                            C[j] = f32(0.0)
                        C[j] = (C[j] + (A[k] * P[k, j]))
    >>> print(s.cache("C", "j_o", mode="accumulate", scope="register", name="acc"))
    func main:
        for j_o in 0:2:
            alloc acc: f32[4] register
            for acc_init_j in 0:4:
                block acc_init(par j=acc_init_j + 4*j_o):
                    acc[j] = f32(0.0)
            for k in 0:3:
                for j_i in 0:4:
                    block C(par j=j_i + 4*j_o, red k=k):
                        acc[j] = (acc[j] + (A[k] * B[k, j]))
            for acc_out_j in 0:4:
                block acc_out(par j=acc_out_j + 4*j_o):
                    C[j] = acc[j]

    Raises ScheduleError where nothing below ``at`` uses the buffer that way, where copying (or not copying)
    would change results, or for a layout that does not hold the box.
    """
    spot = _spot(func, buffer, at)
    _check_arguments(func, spot, scope, mode, pad)
    if not keep and mode == "read":
        raise ScheduleError("keep=False is for modes 'write' and 'accumulate': 'read' copies nothing out")
    taken = taken_names(func)
    known = set(buffers_of(func))
    new = name if name is not None else fresh_name(f"{buffer}_{scope}", taken | known)
    if name is not None and (not _is_name(name) or name in taken | known):
        raise ScheduleError(f"the name {name[:80]!r} is taken or no identifier", hint="choose another name")
    taken.add(new)
    last = fresh_name(f"{new}_out", taken)
    if mode == "read":
        inside = _read(func, spot, new, scope, tuple(layout), tuple(pad), taken)
    else:
        taken.add(last)
        inside = _write(func, spot, new, scope, tuple(layout), mode, last, taken)
    body = around(spot.allocated, inside)
    if spot.loop is not None:
        body = replace(spot.loop, body=body)
    staged = func.with_body(replace_at(func.body, spot.path, body))
    return staged if keep else without_dead_store(staged, last)


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where to stage: the loop (``None``: the whole function), what is allocated and what runs inside it."""

    buffer: Buffer
    loop: For | None
    path: Path
    env: Env
    allocated: tuple[Buffer, ...]
    inside: tuple[Stmt, ...]
    loops: tuple[For, ...]
    parallel: tuple[str, ...]
    at: str

    @property
    def loop_names(self) -> tuple[str, ...]:
        """The loop, if any, as names to mark in a refusal."""
        return (self.at,) if self.loop is not None else ()

    def refusal(
        self, func: LoopFunction, what: str, *, hint: str | None = None, at: Sequence[str] = ()
    ) -> ScheduleError:
        """The error of staging here: buffer, loop and ``at`` are marked."""
        return refusal(func, what, hint=hint, at=(*self.loop_names, *at), buffers=[self.buffer.name])


def _spot(func: LoopFunction, name: str, at: str | None) -> _Spot:
    buf, storage = buffer_at(func, name)
    loop: For | None = None
    path: Path = ()
    env: Env = {}
    around_it: tuple[For, ...] = ()
    body = func.body
    if at is not None:
        place, loop = find_loop(func, at)
        if loop.kind.name == "vector":
            raise refusal(func, f"loop {at!r} is a vector loop: nothing can be staged in it", at=[at])
        path, env, around_it = place.path, loop_env((*place.loops, loop)), (*place.loops, loop)
        body = loop.body
    allocated, inside = below_allocs(body)
    if storage is not None and name not in {b.name for b in allocated}:
        if path[: len(storage.path)] != storage.path or at is None:
            raise refusal(
                func,
                f"buffer {name!r} is allocated further in",
                hint="cache it at a loop inside its allocation",
                at=[at] if at else [],
                buffers=[name],
            )
    check_unrolled(func, (name,), (name, *([at] if at else [])))
    depth = 0 if storage is None else len(storage.loops)
    parallel = tuple(f.var for f in around_it[depth:] if f.kind.name in ("parallel", "thread"))
    shown = "the function" if at is None else f"loop {at!r}"
    return _Spot(buf, loop, path, env, tuple(allocated), tuple(inside), around_it, parallel, at or shown)


def _check_arguments(func: LoopFunction, spot: _Spot, scope: str, mode: Mode, pad: Sequence[int]) -> None:
    rank = len(spot.buffer.shape)
    if not rank:
        raise spot.refusal(func, f"buffer {spot.buffer.name!r} is a scalar")
    if not _is_name(scope):
        raise ScheduleError(f"{scope[:80]!r} is no name of a scope", hint=f"such as {', '.join(SCOPES)}")
    if pad and mode != "read":
        raise ScheduleError("pad is for mode 'read' only: what is copied out has the buffer's own size")
    if pad and (len(pad) != rank or any(p < 1 for p in pad)):
        raise ScheduleError(
            f"pad={tuple(pad)} does not fit buffer {spot.buffer.name!r}",
            hint=f"give {rank} positive multiples, 1 for a dimension that stays as it is",
        )


def _declare(
    spot: _Spot, new: str, scope: str, layout: tuple[str, ...], names: tuple[str, ...], box: Box
) -> Buffer:
    """The staged buffer, storing ``box``."""
    index_map = packed_map(layout, names, box) if layout else box.layout()
    return Buffer(new, spot.buffer.shape, spot.buffer.dtype, scope, index_map)


def _read(
    func: LoopFunction,
    spot: _Spot,
    new: str,
    scope: str,
    layout: tuple[str, ...],
    pad: tuple[int, ...],
    taken: set[str],
) -> Stmt:
    name = spot.buffer.name
    only = frozenset((name,))
    written = [n for n, s in enumerate(spot.inside) if touching(s, only, "w")]
    first = written[-1] + 1 if written else 0
    using = [n for n, s in enumerate(spot.inside) if n >= first and touching(s, only, "r")]
    if not using:
        what = "reads" if not written else "reads, after it is written,"
        raise spot.refusal(func, f"nothing inside {_shown(spot)} {what} {name!r}")
    used = seq(*spot.inside[using[0] :])
    box = footprint(used, spot.env, spot.buffer, "r")
    assert box is not None
    names = dimension_names(used, name, len(box.spans))
    shape = list(spot.buffer.shape)
    value: Expr = Load(name, tuple(var(n) for n in names), spot.buffer.dtype)
    for d, multiple in enumerate(pad):
        if multiple > 1:
            s = box.spans[d]
            s = Span(s.lo, floordiv(s.extent + (multiple - 1), multiple) * multiple)
            box = Box((*box.spans[:d], s, *box.spans[d + 1 :]))
            end = upper(s.lo + s.extent, spot.env)
            if end is None or prove_ge0(shape[d] - end, {}):
                continue
            # zeros past the end: the logical shape grows, and only real elements are loaded
            inside = Compare("lt", OfIndex(var(names[d]), I64), OfIndex(shape[d], I64))
            value = Select(inside, value, _zero(spot.buffer))
            shape[d] = end if prove_ge0(end - shape[d], {}) else imax(end, shape[d])
    staged = replace(_declare(spot, new, scope, layout, names, box), shape=tuple(shape))
    copy = _copy_block(new, names, [(ZERO, n) for n in shape], staged.name, value)
    nest = build_nest(copy, _ranges(names, box, copy), spot.env, taken, new)
    check_available(func, sites(func), frozenset(), nest, spot.loops, (name, *spot.loop_names))
    items = [*spot.inside[: using[0]], nest, *(redirect(s, name, new, "r") for s in spot.inside[using[0] :])]
    return around([staged], seq(*items))


def _write(
    func: LoopFunction,
    spot: _Spot,
    new: str,
    scope: str,
    layout: tuple[str, ...],
    mode: Mode,
    last: str,
    taken: set[str],
) -> Stmt:
    name = spot.buffer.name
    only = frozenset((name,))
    using = [n for n, s in enumerate(spot.inside) if touching(s, only)]
    part = spot.inside[using[0] : using[-1] + 1] if using else ()
    found = writers(part, spot.buffer, spot.env)
    if found is None:
        raise spot.refusal(func, f"a block inside {_shown(spot)} writes {name!r} in several places")
    if not found:
        raise spot.refusal(func, f"nothing inside {_shown(spot)} writes {name!r}")
    marks = tuple(w.block.name for w in found)
    box = footprint(seq(*part), spot.env, spot.buffer, "rw")
    domain = domain_of(found)
    assert box is not None
    if domain is None:
        raise spot.refusal(func, f"the part of {name!r} that is defined is no box", at=marks)
    names = dimension_names(seq(*part), name, len(box.spans))
    staged = _declare(spot, new, scope, layout, names, box)
    indices = tuple(var(n) for n in names)

    starting = [w for w in found if w.reads and w.starts] if mode == "accumulate" else []
    complete = defined(found, box, spot.env)
    guard: tuple[Condition, ...] = ()
    if not complete and mode == "write" and _all_write(part, found, name):
        # a part of the box, the same for all writers, is written, and that is copied out
        wanted = guard_of(found, names)
        if wanted and defined(found, box, spot.env, guarded=True):
            guard, complete = wanted, True
    before: list[Stmt] = []
    if not complete:
        if mode == "write" or starting:
            raise spot.refusal(
                func,
                f"not every element of {name!r} that would be copied out is first defined inside"
                f" {_shown(spot)}",
                hint=None
                if starting
                else "use mode='accumulate', which loads what is there; for a reduction decompose_init first",
                at=marks,
            )
        _check_loadable(func, spot, found, domain, marks)
        copy = _copy_block(new, names, domain, new, Load(name, indices, spot.buffer.dtype))
        before.append(build_nest(copy, _ranges(names, box, copy), spot.env, taken, new))
        check_available(func, sites(func), frozenset(), before[0], spot.loops, (name, *spot.loop_names))
    new_part = [redirect(s, name, new, "rw") for s in part]
    for w in starting:
        before.append(_init_nest(w, spot, new, taken))
    started = frozenset(w.block.name for w in starting)
    new_part = [map_blocks(s, lambda b: replace(b, init=None) if b.name in started else b) for s in new_part]
    out = _copy_block(last, names, domain, name, Load(new, indices, spot.buffer.dtype))
    after = build_nest(out, _ranges(names, box, out), spot.env, taken, last, guard)
    return seq(
        *spot.inside[: using[0]],
        around([staged], seq(*before, *new_part, after)),
        *spot.inside[using[-1] + 1 :],
    )


def _all_write(part: Sequence[Stmt], found: Sequence[Writer], name: str) -> bool:
    """Whether no other blocks of a part touch the buffer than those that write it."""
    using = [place.node for place in blocks(seq(*part)) if touching(place.node, frozenset((name,)))]
    return {b.name for b in using} == {w.block.name for w in found}


def _check_loadable(
    func: LoopFunction,
    spot: _Spot,
    found: list[Writer],
    domain: list[tuple[Index, Index]],
    marks: tuple[str, ...],
) -> None:
    """Refuse loading running values that are not there yet, or copying back what others may change."""
    name = spot.buffer.name
    for w in found:
        if w.block.init is not None:
            raise spot.refusal(
                func,
                f"{w.block.name!r} starts {name!r} in the first iteration of a loop around {_shown(spot)}",
                hint=f"decompose_init on {w.block.name!r} first",
                at=marks,
            )
        if spot.parallel and not writes_all(w, spot.env):
            raise spot.refusal(
                func,
                f"copying {name!r} back would race with other iterations of loop {spot.parallel[0]!r}",
                at=[*marks, spot.parallel[0]],
            )
    own = {w.block.name for w in found}
    before = [w for w in writers((func.body,), spot.buffer, {}) or () if w.block.name not in own]
    before = [w for w in before if w.place.path < spot.path]
    there = domain_of(before) if before else None
    if there is None or not all(
        prove_ge0(lo - first, {}) and prove_ge0(end - hi, {})
        for (lo, hi), (first, end) in zip(domain, there, strict=True)
    ):
        raise spot.refusal(
            func,
            f"{name!r} is not defined before {_shown(spot)}, so there is nothing to load",
            hint="for a reduction, decompose_init first",
            at=marks,
        )


def _init_nest(w: Writer, spot: _Spot, new: str, taken: set[str]) -> Stmt:
    """The nest that starts the running values of a writer, in the staged buffer."""
    iters = tuple(it for it in w.block.iters if it.kind == "par")
    assert w.block.init is not None
    start = Block(
        fresh_name(f"{new}_init", taken),
        w.block.stage,
        iters,
        tuple(ZERO for _ in iters),
        redirect_body(w.block.init, spot.buffer.name, new),
    )
    taken.add(start.name)
    # what defines every element of a box stores at single iterators, which can be solved for
    ranges = solve(start, Touch(new, w.indices, True), w.box, spot.env)
    return build_nest(start, ranges, spot.env, taken, start.name)


def _copy_block(
    name: str, names: tuple[str, ...], domain: Sequence[tuple[Index, Index]], target: str, value: Expr
) -> Block:
    """The block ``target[names] = value`` over a domain; its bindings are still to be set."""
    iters = tuple(Iter(n, lo, hi, "par") for n, (lo, hi) in zip(names, domain, strict=True))
    body = store(target, tuple(var(n) for n in names), value)
    return Block(name, name, iters, tuple(ZERO for _ in iters), body)


def _ranges(names: tuple[str, ...], box: Box, block: Block) -> dict[str, Span]:
    """The box as ranges of a copying block's iterators, without those that are its whole domain."""
    return {
        n: s
        for n, s, it in zip(names, box.spans, block.iters, strict=True)
        if not (s.lo == it.lo and s.extent == it.extent)
    }


def _is_name(text: str) -> bool:
    return text.isascii() and text.isidentifier()


def _zero(buffer: Buffer) -> Const:
    kind = buffer.dtype.kind
    return Const(0.0 if kind == "float" else False if kind == "bool" else 0, buffer.dtype)


def _shown(spot: _Spot) -> str:
    return "the function" if spot.loop is None else f"loop {spot.loop.var!r}"
