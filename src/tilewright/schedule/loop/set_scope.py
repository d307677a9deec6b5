"""set_scope: choose the memory of an allocated buffer."""

from __future__ import annotations

import re

from tilewright.ir import (
    CONST,
    PRIVATE,
    TILE,
    LoopFunction,
    buffers_of,
    map_buffers,
)
from tilewright.schedule.common import refusal
from tilewright.schedule.registry import primitive
from tilewright.schedule.scopes import check_private, check_scope_of_operands, check_tiles
from tilewright.support import known_names
from tilewright.target import BUILT_IN, Operations

_SCOPE = re.compile(r"[a-z][a-z0-9_.]*\Z")


@primitive("set_scope", phase="loop")
def set_scope(
    func: LoopFunction, buffer: str, scope: str, *, operations: Operations = BUILT_IN
) -> LoopFunction:
    """Place an allocated ``buffer`` in ``scope``: global, local, shared, register or a name of the target.

    Refused for arguments; for memory of one thread that several write; for scopes in which instructions
    cannot have the buffer; for tiles that hold anything but results of contractions, more than there are, or
    where others are. What else a scope asks for (registers: constant indices once loops are expanded) is
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
            hint="cache a copy of it",
            buffers=[buffer],
        )
    if not _SCOPE.match(scope) or scope == CONST:
        raise refusal(
            func,
            f"{scope[:80]!r} is no scope for an allocation",
            hint="scopes are global, local, shared, register and the target's own",
            buffers=[buffer],
        )
    check_scope_of_operands(func, buffer, scope, operations)
    if scope in PRIVATE:
        check_private(func, buffer, scope)
    if scope == TILE:
        check_tiles(func, buffer, operations)
    return func.with_body(
        map_buffers(func.body, lambda b: b.with_(scope=scope) if b.name == buffer and b.scope != scope else b)
    )
