"""partition: cut a loop's range into two or more loops that follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from tilewright.ir import (
    Env,
    For,
    If,
    Index,
    LoopFunction,
    Stmt,
    Store,
    blocks,
    condition_of,
    imax,
    imin,
    loop_bound,
    lower,
    prove_ge0,
    replace_at,
    seq,
    simplify,
    simplify_seqs,
    substitute_index,
    var,
)
from tilewright.schedule.common import env_at, find_loop, new_names, refusal
from tilewright.schedule.copies import Copies, renamed_copy, tidy
from tilewright.schedule.nests import require_blocks
from tilewright.schedule.registry import primitive

Tail: TypeAlias = Literal["tail"]


@primitive("partition", phase="loop")
def partition(
    func: LoopFunction, loop: str, at: int | Tail | Sequence[int], *, names: Sequence[str] = ()
) -> LoopFunction:
    """Cut the range of ``loop`` at the given values: ``lo:at`` and ``at:hi``; negative: from the end.

    Cuts from the start stand before those from the end: ``(1, -1)`` takes first and last iteration off.
    ``"tail"`` takes off the iterations in which not all of a block runs: of a symbolic extent one or none.

    The first part keeps all names; loops, blocks and allocations of the next ones have ``_1``, ``_2`` …
    appended (``names`` overrides the names of the cut loop in them). Conditions that a part decides
    disappear, and so do empty parts; cuts outside of the range are moved to its ends.

    Raises ScheduleError for cuts that do not rise, for vector and thread loops, and for the tail of a loop
    that has none.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10,), name="X")
    >>> Y = lang.compute((10,), lambda i: X[i] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y]))
    >>> s = s.split("i", 4)
    >>> print(s)
    func main:
        for i_o in 0:3:
            for i_i in 0:4:
                block Y(par i=i_i + 4*i_o) where -i_i - 4*i_o + 9 >= 0:
                    Y[i] = (X[i] * f32(2.0))
    >>> print(s.partition("i_o", -1))
    func main:
        for i_o in 0:2:
            for i_i in 0:4:
                block Y(par i=i_i + 4*i_o):
                    Y[i] = (X[i] * f32(2.0))
        for i_o_1 in 2:3:
            for i_i_1 in 0:4:
                block Y_1(par i=i_i_1 + 4*i_o_1) where -i_i_1 - 4*i_o_1 + 9 >= 0:
                    Y[i] = (X[i] * f32(2.0))
    """
    place, node = find_loop(func, loop)
    env = env_at(place)
    cuts: list[int | Index]
    if isinstance(at, str):
        cuts = [_tail(func, node, env)]
    else:
        cuts = [at] if isinstance(at, int) else list(at)
    if node.step != 1 or node.kind.name in ("vector", "thread"):
        raise refusal(
            func,
            f"{loop!r} is a {node.kind} loop of step {node.step}",
            hint="cut loops of step 1 before they get a kind",
            at=[loop],
        )
    numbers = [a for a in cuts if isinstance(a, int)]
    if not cuts or sorted(set(numbers), key=lambda a: (a < 0, a)) != numbers:
        raise refusal(
            func,
            f"{loop!r} cannot be cut at {cuts}",
            hint="cuts rise; those from the end, negative, follow those from the start",
            at=[loop],
        )
    require_blocks(func, node, "partition")
    copies = Copies(func)
    heads = new_names([f"{loop}_{n}" for n in range(1, len(cuts) + 1)], names, copies.names)
    bounds = [node.lo]
    for a in cuts:
        cut = a if isinstance(a, Index) else node.hi + a if a < 0 else Index(a)
        bounds.append(simplify(imin(imax(cut, bounds[-1]), node.hi), env))
    bounds.append(node.hi)
    parts: list[Stmt] = [tidy(replace(node, lo=bounds[0], hi=bounds[1]), env)]
    for n, head in enumerate(heads, start=1):
        body = renamed_copy(node.body, f"_{n}", copies, {loop: var(head)})
        part = For(head, bounds[n], bounds[n + 1], body, node.kind, 1, node.hints)
        parts.append(tidy(part, env))
    return func.with_body(simplify_seqs(replace_at(func.body, place.path, seq(*parts))))


def _tail(func: LoopFunction, loop: For, env: Env) -> Index:
    found = _ends(loop, env)
    if found is None:
        raise refusal(
            func,
            f"no condition on a block of {loop.var!r} ends with its last iterations",
            hint="a loop that was split has a tail: cut it at a number",
            at=[loop.var],
        )
    return found


def has_tail(func: LoopFunction, loop: str) -> bool:
    """Whether ``partition(loop, "tail")`` finds a condition on a block to cut at."""
    place, node = find_loop(func, loop)
    return _ends(node, env_at(place)) is not None


def _ends(loop: For, env: Env) -> Index | None:
    """Where the iterations of a loop begin in which a condition on one of its blocks may fail."""
    ends: list[Index] = []
    inner: list[Index] = []
    for place in blocks(loop.body):
        below = {f.var: (f.lo, f.hi - 1) for f in place.loops}
        block = place.node
        inside = condition_of(block.body)[0] if isinstance(block.body, Store | If) else ()
        binding = block.binding()
        own = [substitute_index(c.index, binding) for c in inside if c.op == "ge" and c.index is not None]
        where = [c.index for c in block.where if c.op == "ge" and c.index is not None]
        for found, conditions in ((ends, where), (inner, own)):
            for x in conditions:
                least = lower(x, below)
                bound = None if least is None else loop_bound(least, loop.var)
                if bound is not None and bound[0] == "hi":
                    found.append(simplify(bound[1], env))
    # what a statement asks (is this padding?) ends the loop as well, unless nothing would be left of it
    if not ends or not prove_ge0(loop.lo - imin(*ends, *inner), env):
        ends += inner
    return imax(imin(*ends), loop.lo) if ends else None
