"""reorder: permute loops of a perfect nest."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import For, Location, LoopFunction, Stmt, buffers_of, find, replace_at
from tilewright.schedule.carried import conflicts, name_list
from tilewright.schedule.common import env_at, find_loop, refusal
from tilewright.schedule.nests import fed
from tilewright.schedule.registry import primitive
from tilewright.support import ScheduleError


@primitive("reorder", phase="loop")
def reorder(func: LoopFunction, *loops: str) -> LoopFunction:
    """Put ``loops`` into the given order, outermost first, in the places that they have together.

    The nest between the outermost and the innermost of them must be perfect. Loops of parallel and reduction
    iterators move freely (sums are reassociated), ordered ones keep their order among themselves, and where
    several blocks share the loops no value may be read before it is written. Refused otherwise, and for loops
    that are parallel, vector or thread loops already.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10, 8), name="X")
    >>> Y = lang.compute((10, 8), lambda i, j: X[i, j] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y]))
    >>> print(s)
    func main:
        for i in 0:10:
            for j in 0:8:
                block Y(par i=i, par j=j):
                    Y[i, j] = (X[i, j] * f32(2.0))
    >>> print(s.reorder("j", "i"))
    func main:
        for j in 0:8:
            for i in 0:10:
                block Y(par i=i, par j=j):
                    Y[i, j] = (X[i, j] * f32(2.0))
    """
    if len(loops) < 2:
        return func
    nest, place = _nest(func, loops)
    old = [f.var for f in nest]
    wanted = iter(loops)
    new = [next(wanted) if v in loops else v for v in old]
    if new == old:
        return func
    by_name = {f.var: f for f in nest}
    _check_bounds(func, nest, new)
    moved = [v for v, w in zip(old, new, strict=True) if v != w]
    for v in moved:
        kind = by_name[v].kind.name
        if kind not in ("serial", "unroll"):
            raise refusal(
                func, f"{v!r} is a {kind} loop", hint="reorder loops before they get a kind", at=[v]
            )
    swapped = {
        (u, v) for n, u in enumerate(old) for v in old[n + 1 :] if new.index(v) < new.index(u)
    }  # u was outside of v
    _check_ordered(func, nest, swapped)
    _check_dependences(func, nest, place, swapped)
    body: Stmt = nest[-1].body
    for v in reversed(new):
        f = by_name[v]
        body = replace(f, body=body)
    return func.with_body(replace_at(func.body, place.path, body))


def _nest(func: LoopFunction, loops: tuple[str, ...]) -> tuple[list[For], Location]:
    """The chain of loops from the outermost to the innermost named one, and the place of the first."""
    places = {v: find_loop(func, v)[0] for v in loops}
    if len(places) < len(loops):
        twice = next(v for v in loops if loops.count(v) > 1)
        raise refusal(func, f"{twice!r} is named twice", at=[twice])
    top = min(places.values(), key=lambda p: len(p.path))
    assert isinstance(top.node, For)
    nest: list[For] = [top.node]
    left = set(loops) - {top.node.var}
    while left:
        below = nest[-1].body
        if isinstance(below, For):
            nest.append(below)
            left.discard(below.var)
        else:
            raise _imperfect(func, nest, below, left)
    return nest, top


def _imperfect(func: LoopFunction, nest: list[For], below: Stmt, left: set[str]) -> ScheduleError:
    inner = sorted(left)[0]
    outer = nest[-1].var
    if find(nest[0], inner) is None:
        why = f"{inner!r} is not inside of {nest[0].var!r}"
        return refusal(func, f"these loops are no nest: {why}", at=[nest[0].var, inner])
    what = type(below).__name__.lower()
    article = {
        "seq": "a sequence of statements",
        "if": "a condition",
        "alloc": "an allocation",
        "block": "a block",
    }
    return refusal(
        func,
        f"the nest is not perfect: {article.get(what, what)} stands between {outer!r} and {inner!r}",
        hint="reorder the perfect parts; decompose_init, hoist_alloc, compute_at move what is between",
        at=[outer, inner],
    )


def _check_bounds(func: LoopFunction, nest: list[For], new: list[str]) -> None:
    by_name = {f.var: f for f in nest}
    for n, v in enumerate(new):
        inner = (by_name[v].lo.vars | by_name[v].hi.vars) & set(new[n + 1 :])
        if inner:
            raise refusal(
                func,
                f"the bounds of {v!r} depend on {name_list(inner)}, which would be inside of it",
                hint="keep the loops of a triangular nest in their order, or split first",
                at=[v, *inner],
            )


def _check_ordered(func: LoopFunction, nest: list[For], swapped: set[tuple[str, str]]) -> None:
    ordered: dict[str, dict[str, str]] = {}
    for f in nest:
        for block, it, _ in fed(nest[-1].body, f.var):
            if it.kind == "ord":
                ordered.setdefault(block.name, {})[f.var] = it.name
    for u, v in sorted(swapped):
        for block_name, by_loop in ordered.items():
            if u in by_loop and v in by_loop:
                raise refusal(
                    func,
                    f"{u!r} and {v!r} run ordered iterators of block {block_name!r}: their order must stay",
                    at=[u, v, block_name],
                )


def _check_dependences(
    func: LoopFunction, nest: list[For], place: Location, swapped: set[tuple[str, str]]
) -> None:
    names = frozenset(f.var for f in nest)
    for c in conflicts(nest[0], env_at(place), buffers_of(func), names, reorderable=True):
        for u, v in sorted(swapped):
            if u in c.loops and v in c.loops:
                raise refusal(
                    func,
                    f"exchanging {u!r} and {v!r} may change the order in which {c.blocks} use {c.buffer!r}",
                    hint="give each tile its own copy of the buffer (compute_at), or reorder before fusing",
                    at=[u, v, c.first.name, c.second.name],
                )
