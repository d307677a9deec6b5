"""set_scope: choose the memory of an allocated buffer."""

from __future__ import annotations

import re

from tilewright.ir import (
    CONST,
    PRIVATE,
    Alloc,
    For,
    LoopFunction,
    blocks,
    buffers_of,
    map_buffers,
)
from tilewright.schedule.common import refusal
from tilewright.schedule.registry import primitive
from tilewright.support import known_names

_SCOPE = re.compile(r"[a-z][a-z0-9_.]*\Z")


@primitive("set_scope", phase="loop")
def set_scope(func: LoopFunction, buffer: str, scope: str) -> LoopFunction:
    """Place an allocated ``buffer`` in ``scope``: global, local, shared, register or a name of the target.

    Refused for arguments. What a scope asks for (registers: constant indices once loops are expanded) is
    checked in code generation.

    >>> from tilewright import lang
    >>> from tilewright.schedule import Schedule
    >>> X = lang.placeholder((10,), name="X")
    >>> T = lang.compute((10,), lambda i: X[i] * 2, name="T")
    >>> Y = lang.compute((10,), lambda i: T[i] + 1, name="Y")
    >>> s = Schedule(lang.program([X], [Y]))
    >>> print(s)
    func main:
        alloc T: f32[10] global
        for i in 0:10:
            block T(par i=i):
                T[i] = (X[i] * f32(2.0))
        for Y_i in 0:10:
            block Y(par i=Y_i):
                Y[i] = (T[i] + f32(1.0))
    >>> print(s.set_scope("T", "local"))
    func main:
        alloc T: f32[10] local
        for i in 0:10:
            block T(par i=i):
                T[i] = (X[i] * f32(2.0))
        for Y_i in 0:10:
            block Y(par i=Y_i):
                Y[i] = (T[i] + f32(1.0))
    """
    known = buffers_of(func)
    if buffer not in known:
        raise refusal(
            func, f"there is no buffer {buffer!r}", hint=known_names(buffer, sorted(known), "the buffers")
        )
    if any(b.name == buffer for b in func.buffers):
        raise refusal(
            func,
            f"{buffer!r} is an argument; its memory is the caller's",
            hint="stage a copy of it",
            buffers=[buffer],
        )
    if not _SCOPE.match(scope) or scope == CONST:
        raise refusal(
            func,
            f"{scope[:80]!r} is no scope for an allocation",
            hint="scopes are global, local, shared, register and the target's own",
            buffers=[buffer],
        )
    if scope in PRIVATE:
        _check_private(func, buffer, scope)
    return func.with_body(
        map_buffers(func.body, lambda b: b.with_(scope=scope) if b.name == buffer and b.scope != scope else b)
    )


def _check_private(func: LoopFunction, buffer: str, scope: str) -> None:
    """Refuse thread-private memory for what several threads write."""
    for place in blocks(func.body):
        if buffer not in dict(place.node.writes):
            continue
        for at in range(len(place.ancestors) - 1, -1, -1):
            above = place.ancestors[at]
            if isinstance(above, Alloc) and above.buffer.name == buffer:
                break
            if isinstance(above, For) and above.kind.name in ("parallel", "thread"):
                raise refusal(
                    func,
                    f"{buffer!r} cannot be {scope}: the {above.kind} loop {above.var!r} inside of its "
                    "allocation writes it",
                    hint="allocate it inside of the loop",
                    at=[above.var],
                    buffers=[buffer],
                )
