"""fuse: two perfectly nested loops become one."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import For, Index, LoopFunction, floordiv, mod, replace_at, substitute, var
from tilewright.schedule.common import env_at, find_loop, new_names, refusal, taken_names
from tilewright.schedule.nests import settle
from tilewright.schedule.registry import primitive


@primitive("fuse", phase="loop")
def fuse(func: LoopFunction, outer: str, inner: str, *, names: Sequence[str] = ()) -> LoopFunction:
    """Replace ``outer`` and the loop ``inner`` directly in it by one loop, ``outer_inner``.

    The order of execution stays. Refused for loops that are not directly in one another or of different
    kinds, and where the inner extent is no positive constant, unless the outer loop has one iteration.

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
    >>> print(s.fuse("i", "j"))
    func main:
        for i_j in 0:80:
            block Y(par i=i_j//8, par j=i_j%8):
                Y[i, j] = (X[i, j] * f32(2.0))
    """
    place, a = find_loop(func, outer)
    _, b = find_loop(func, inner)
    if a.body is not b:
        raise refusal(
            func,
            f"{inner!r} is not directly inside of {outer!r}",
            hint="fuse neighbours of a perfect nest; reorder brings loops together",
            at=[outer, inner],
        )
    if a.step != 1 or b.step != 1:
        raise refusal(func, "only loops of step 1 are fused", at=[outer, inner])
    if outer in b.lo.vars or outer in b.hi.vars:
        raise refusal(func, f"the bounds of {inner!r} depend on {outer!r}", at=[outer, inner])
    n = b.extent
    divides = n.is_const and n.const >= 1
    if not divides and a.extent != Index(1):
        raise refusal(
            func,
            f"the extent of {inner!r} is {n}, not a positive constant",
            hint="fuse the other way round, or split the symbolic loop first",
            at=[inner],
        )
    if a.kind != b.kind or a.kind.name in ("vector", "thread"):
        raise refusal(
            func,
            f"a {a.kind} and a {b.kind} loop cannot be fused",
            hint="fuse loops before they get a kind",
            at=[outer, inner],
        )
    env = env_at(place)
    (name,) = new_names([f"{outer}_{inner}"], names, taken_names(func) - {outer, inner})
    position = var(name)
    if divides:
        total = a.extent * n.const
        values = {outer: a.lo + floordiv(position, n.const), inner: b.lo + mod(position, n.const)}
    else:
        total, values = n, {outer: a.lo, inner: b.lo + position}
    body = settle(substitute(b.body, values), {**env, name: (Index(0), total - 1)})
    hints = (*a.hints, *((k, v) for k, v in b.hints if k not in dict(a.hints)))
    return func.with_body(
        replace_at(func.body, place.path, For(name, Index(0), total, body, a.kind, 1, hints))
    )
