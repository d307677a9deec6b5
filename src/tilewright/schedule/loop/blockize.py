"""blockize: a loop with everything in it becomes one opaque block."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    Alloc,
    Barrier,
    Block,
    For,
    If,
    Iter,
    IterKind,
    Location,
    LoopFunction,
    Stmt,
    blocks,
    buffers_of,
    locate,
    loop_env,
    replace_at,
    stmt_children,
    substitute_body,
    var,
    with_stmt_children,
)
from tilewright.schedule.carried import conflicts
from tilewright.schedule.common import find_loop, new_names, refusal, taken_names
from tilewright.schedule.nests import fed, require_blocks
from tilewright.schedule.registry import primitive


@primitive("blockize", phase="loop")
def blockize(func: LoopFunction, loop: str, *, name: str | None = None) -> LoopFunction:
    """Make ``loop`` and everything in it one block, ``<loop>_block``, which later steps move as a whole.

    Its iterators are the loops around ``loop`` that the subtree uses, by their names. An iterator is parallel
    where different values touch different elements, a reduction where they only accumulate, else ordered.
    Refused for subtrees with initialisations that were not decomposed, barriers, parallel loops, and vector
    loops over reductions.

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
    >>> print(s.blockize("j"))
    func main:
        for i in 0:10:
            block j_block(par i=i):
                for j in 0:8:
                    Y[i, j] = (X[i, j] * f32(2.0))
    """
    place, node = find_loop(func, loop)
    (chosen,) = new_names([f"{loop}_block"], () if name is None else (name,), taken_names(func))
    block = opaque_block(func, place, node, chosen, chosen, "blockize")
    return func.with_body(replace_at(func.body, place.path, block))


def opaque_block(
    func: LoopFunction, place: Location, node: For, name: str, stage: str, primitive: str
) -> Block:
    """The loop ``node`` at ``place`` with everything in it as one block; refuses as :func:`blockize` does."""
    _check(func, place, node, primitive)
    used = _free(node)
    for f in reversed(place.loops):
        if f.var in used:
            used |= f.lo.vars | f.hi.vars
    iters = tuple(Iter(f.var, f.lo, f.hi, _kind(func, place, f)) for f in place.loops if f.var in used)
    return Block(name, stage, iters, tuple(var(it.name) for it in iters), _opaque(node))


def _check(func: LoopFunction, place: Location, node: For, primitive: str) -> None:
    require_blocks(func, node, primitive)
    for inner in blocks(node):
        if inner.node.init is not None:
            raise refusal(
                func,
                f"block {inner.node.name!r} still has its initialisation",
                hint="decompose_init first",
                at=[inner.node.name],
            )
    if any(locate(node, Barrier)):
        raise refusal(func, f"there is a barrier inside of {node.var!r}", at=[node.var])
    for loop in locate(node, For):
        s = loop.node
        if s.kind.name in ("parallel", "thread"):
            raise refusal(
                func,
                f"the {s.kind} loop {s.var!r} would be hidden in a block",
                hint="blockize a loop inside of it",
                at=[node.var, s.var],
            )
        if s.kind.name == "vector" and any(it.kind == "red" for _, it, _ in fed(s, s.var)):
            raise refusal(
                func,
                f"the lanes of {s.var!r} add up one result, which nobody could tell of an opaque block",
                hint="leave the loop serial",
                at=[node.var, s.var],
            )
    for f in place.loops:
        if f.step != 1:
            raise refusal(func, f"{f.var!r} has step {f.step}", at=[f.var, node.var])


def _free(s: Stmt) -> set[str]:
    """Loop variables that a subtree uses and does not bind."""
    out: set[str] = set()
    match s:
        case For():
            return (_free(s.body) - {s.var}) | s.lo.vars | s.hi.vars
        case Block():
            out.update(*(b.vars for b in s.bind), *(c.vars for c in s.where))
        case If():
            out.update(*(c.vars for c in s.cond))
        case Alloc() if s.buffer.layout is not None:
            out.update(s.buffer.layout.vars)
        case _:
            pass
    return out.union(*(_free(k) for k in stmt_children(s)))


def _kind(func: LoopFunction, place: Location, f: For) -> IterKind:
    """The kind of the loop ``f`` around ``place`` as an iterator of what stands there."""
    outer = loop_env(place.loops[: place.loops.index(f)])
    inside = replace(f, body=place.node)
    buffers = buffers_of(func)
    kinds = {it.kind for _, it, _ in fed(place.node, f.var)}
    one = frozenset((f.var,))
    if "ord" in kinds:
        return "ord"
    if kinds <= {"par"} and not any(True for _ in conflicts(inside, outer, buffers, one)):
        return "par"
    if kinds == {"red"} and not any(True for _ in conflicts(inside, outer, buffers, one, reorderable=True)):
        return "red"
    return "ord"


def _opaque(s: Stmt) -> Stmt:
    """The subtree with its blocks replaced by their bodies."""
    if isinstance(s, Block):
        body = substitute_body(s.body, s.binding())
        return If(s.where, body) if s.where else body
    return with_stmt_children(s, tuple(_opaque(k) for k in stmt_children(s)))
