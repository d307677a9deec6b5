"""peel: take the first or the last iteration out of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from tilewright.ir import (
    For,
    LoopFunction,
    Stmt,
    imax,
    imin,
    prove_ge0,
    replace_at,
    seq,
    simplify_seqs,
    var,
)
from tilewright.schedule.common import env_at, find_loop, new_names, refusal
from tilewright.schedule.copies import Copies, renamed_copy, tidy
from tilewright.schedule.nests import require_blocks
from tilewright.schedule.registry import primitive


@primitive("peel", phase="loop")
def peel(
    func: LoopFunction, loop: str, which: Literal["first", "last"], *, names: Sequence[str] = ()
) -> LoopFunction:
    """Run the ``first`` or ``last`` iteration of ``loop`` in a copy of its body, before or after it.

    Everything in the copy is named with ``_first`` or ``_last``. Where the loop may be empty the copy stays
    in a loop of at most one iteration (named alike, or by ``names``).

    Raises ScheduleError for vector and thread loops.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10,), name="X")
    >>> Y = lang.compute((10,), lambda i: X[i] * 2, name="Y")
    >>> s = Schedule(lang.program([X], [Y]))
    >>> print(s)
    func main:
        for i in 0:10:
            block Y(par i=i):
                Y[i] = (X[i] * f32(2.0))
    >>> print(s.peel("i", "last"))
    func main:
        for i in 0:9:
            block Y(par i=i):
                Y[i] = (X[i] * f32(2.0))
        block Y_last(par i=9):
            Y[i] = (X[i] * f32(2.0))
    """
    place, node = find_loop(func, loop)
    if node.step != 1 or node.kind.name in ("vector", "thread"):
        raise refusal(
            func,
            f"{loop!r} is a {node.kind} loop of step {node.step}",
            hint="peel loops of step 1 before they get a kind",
            at=[loop],
        )
    require_blocks(func, node, "peel")
    env = env_at(place)
    copies = Copies(func)
    (head,) = new_names([f"{loop}_{which}"], names, copies.names)
    never_empty = prove_ge0(node.extent - 1, env)
    if which == "first":
        cut = node.lo + 1 if never_empty else imin(node.lo + 1, node.hi)
        lo, hi, rest = node.lo, cut, replace(node, lo=cut)
    else:
        cut = node.hi - 1 if never_empty else imax(node.hi - 1, node.lo)
        lo, hi, rest = cut, node.hi, replace(node, hi=cut)
    single: Stmt = renamed_copy(node.body, f"_{which}", copies, {loop: lo if never_empty else var(head)})
    if not never_empty:
        single = For(head, lo, hi, single)
    parts = [tidy(single, env), tidy(rest, env)]
    if which == "last":
        parts.reverse()
    return func.with_body(simplify_seqs(replace_at(func.body, place.path, seq(*parts))))
