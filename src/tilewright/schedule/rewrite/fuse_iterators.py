"""fuse_iterators: two axes of a stage become one, along which operands may move by single elements."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import (
    ZERO,
    Iter,
    Program,
    Stmt,
    floordiv,
    map_exprs,
    mod,
    simplify_deep,
    simplify_expr,
    substitute_index,
    var,
)
from tilewright.schedule.registry import primitive
from tilewright.schedule.rewrite.common import stage_called
from tilewright.support import ScheduleError


@primitive("fuse_iterators", phase="program")
def fuse_iterators(program: Program, stage: str, outer: str, inner: str) -> Program:
    """Make one axis ``<outer>_<inner>`` of two axes of ``stage``: ``outer`` is it over ``inner``'s extent.

    What reads ``X[n*outer + inner]`` with the ``n`` iterations of ``inner`` reads ``X[outer_inner]``. Unlike
    fusing loops this changes the program, and the mapper sees one axis. (ISA Mapper, Sec. 2.3: re-indexing.)

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X, W = lang.placeholder((4, 6), name="X"), lang.placeholder((6, 5), name="W")
    >>> q, r = lang.reduce_axis(3, "q"), lang.reduce_axis(2, "r")
    >>> C = lang.compute((4, 5), lambda i, k: lang.sum(X[i, 2 * q + r] * W[2 * q + r, k], (q, r)), name="C")
    >>> s = Schedule(lang.program([X, W], [C])).fuse_iterators("C", "q", "r")
    >>> print(s.program.stage("C").body.writes[0].value)
    (C[i, k] + (X[i, q_r] * W[q_r, k]))

    Raises ScheduleError for axes that the stage does not have, of two kinds, with ranges from elsewhere than
    0, the inner one to no positive constant, where the range of another axis depends on them, and for
    ordered ones.
    """
    old = stage_called(program, stage)
    known = {it.name: it for it in old.iters}
    for axis in (outer, inner):
        if axis not in known:
            raise ScheduleError(
                f"stage {stage!r} has no axis {axis!r}", hint=f"its axes are {', '.join(known)}"
            )
    a, b = known[outer], known[inner]
    constant = a.lo == ZERO == b.lo and b.extent.is_const and b.extent != ZERO
    if any({outer, inner} & (it.lo.vars | it.hi.vars) for it in old.iters):
        raise ScheduleError(
            f"the range of an axis of stage {stage!r} depends on {outer!r} or {inner!r}, which become one"
        )
    if outer == inner or a.kind != b.kind or a.kind == "ord" or not constant:
        raise ScheduleError(
            f"{outer!r} and {inner!r} of stage {stage!r} cannot be one axis",
            hint="two axes of one kind from 0, the inner one to a positive constant",
        )
    name = f"{outer}_{inner}"
    while name in known:
        name += "_"
    n = b.extent.as_int()
    both = Iter(name, ZERO, a.extent * n, a.kind)
    values = {outer: floordiv(var(name), n), inner: mod(var(name), n)}
    iters = tuple(both if it == a else it for it in old.iters if it != b)
    env = {it.name: (it.lo, it.hi - 1) for it in iters}

    def rewritten(part: Stmt) -> Stmt:
        return map_exprs(
            part,
            lambda i: simplify_deep(substitute_index(i, values, lambda e: e.substitute(values)), env),
            lambda e: simplify_expr(e.substitute(values), env),
        )

    init = None if old.init is None else rewritten(old.init)
    new = replace(old, iters=iters, body=rewritten(old.body), init=init)
    return program.with_stages(tuple(new if s == old else s for s in program.stages))
