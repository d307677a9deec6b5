"""Buffers of one thread that a block allocates, shrunk to what one thread has of them.

A buffer of scope ``local`` or ``register`` that stands outside of the loops over threads is written as if
it were one for all: each thread has its elements of it. Where a physical index is ``hi*(c*n) + c*t + lo``,
with ``t`` in ``[0, n)`` the thread's coordinate (or a part of it) and ``0 <= lo < c``, in all accesses,
that digit tells threads apart and nothing else, and is left out: ``hi*c + lo``. Only the layout changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import (
    PRIVATE,
    Alloc,
    Atom,
    Buffer,
    Env,
    Index,
    IndexMap,
    LoopFunction,
    floordiv,
    identity_map,
    index,
    int_range,
    is_thread,
    locate,
    loop_env,
    map_buffers,
    mod,
    simplify,
)
from tilewright.schedule import Placed, ownerless, placed_accesses


@dataclass(frozen=True, slots=True)
class _Digit:
    """A part of a physical index that the thread decides: ``scale * atom``, ``0 <= atom < count``."""

    dim: int
    scale: int
    count: int
    atom: Atom


def shrink_private(func: LoopFunction) -> LoopFunction:
    """Give buffers of one thread the layout of a thread's share, under loops over blocks of threads."""
    if not func.body.has_threads:
        return func
    shrunk: dict[Buffer, Buffer] = {}
    for place in locate(func.body, Alloc):
        buffer = place.node.buffer
        if buffer.scope not in PRIVATE or any(is_thread(f.kind) for f in place.loops):
            continue
        if any(f.kind.name == "thread" for f in place.loops):
            env = loop_env(place.loops)
            if ownerless(place.node, env) is None:
                shrunk[buffer] = _shrunk(buffer, *placed_accesses(place.node, env))
    return func.with_body(map_buffers(func.body, lambda b: shrunk.get(b, b))) if shrunk else func


def _shrunk(buffer: Buffer, found: Sequence[Placed], ranges: Env) -> Buffer:
    """The buffer without the digits that all accesses have in common."""
    common: dict[_Digit, None] | None = None
    for access in found:
        here: dict[_Digit, None] = {}
        for d, x in enumerate(buffer.physical(access.indices)):
            here.update(dict.fromkeys(_digits(d, simplify(x, ranges), ranges)))
        common = here if common is None else {g: None for g in common if g in here}
    if not common:
        return buffer
    layout = buffer.layout or identity_map(buffer.shape)
    exprs, shape = list(layout.exprs), list(layout.shape)
    # from the largest digit down: those below stay where they are
    for g in sorted(common, key=lambda g: -g.scale):
        period = g.scale * g.count
        exprs[g.dim] = floordiv(exprs[g.dim], period) * g.scale + mod(exprs[g.dim], g.scale)
        shape[g.dim] = floordiv(shape[g.dim] + (period - 1), period) * g.scale
    return buffer.with_(layout=IndexMap(layout.dims, tuple(exprs), tuple(shape)))


def _digits(dim: int, x: Index, ranges: Env) -> list[_Digit]:
    """The digits of a physical index that coordinates of threads alone decide."""
    out: list[_Digit] = []
    for atom, scale in x.terms:
        names = index(atom).vars
        low, high = int_range(index(atom), ranges)
        if not names or not all(v.startswith("@thread.") for v in names) or low != 0 or high is None:
            continue
        period = scale * (high + 1)
        least = Index(x.const % period, tuple((a, c) for a, c in x.terms if a != atom and c % period))
        low, high = int_range(least, ranges)
        if low is not None and high is not None and low >= 0 and high < scale:
            out.append(_Digit(dim, scale, period // scale, atom))
    return out
