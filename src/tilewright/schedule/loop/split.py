"""split: one loop becomes a nest of two or more, with a policy for what the factor does not divide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Literal

from tilewright.ir import (
    SERIAL,
    Condition,
    For,
    Index,
    Location,
    LoopFunction,
    Stmt,
    floordiv,
    ge0,
    imax,
    imin,
    loop_env,
    mod,
    prove_ge0,
    prove_pred,
    replace_at,
    seq,
    substitute,
    var,
)
from tilewright.schedule.common import env_at, find_loop, new_names, refusal
from tilewright.schedule.copies import Copies, renamed_copy, tidy
from tilewright.schedule.nests import is_multiple, require_blocks, settle
from tilewright.schedule.padding import round_up, with_buffers
from tilewright.schedule.registry import primitive
from tilewright.schedule.repeat import why_not_repeatable

Tail = Literal["guard", "peel", "mask", "shift", "roundup"]


@primitive("split", phase="loop")
def split(
    func: LoopFunction,
    loop: str,
    factor: int | Sequence[int],
    *,
    tail: Tail = "guard",
    names: Sequence[str] = (),
) -> LoopFunction:
    """Split ``loop`` into an outer loop and an inner one of ``factor`` iterations (several: a deeper nest).

    Results are ``i_o, i_i`` for one factor and ``i_0, i_1, i_2 …`` for several. ``tail`` says what happens
    where the factor does not divide the extent: ``guard`` adds a condition to the blocks below, ``mask`` the
    same with whole inner loops, which vector code masks, ``peel`` a remainder loop ``i_t`` over a copy of the
    body (everything in it renamed with ``_t``), ``shift`` moves the last tile back so that it overlaps the
    one before, ``roundup`` iterates to the rounded-up extent and grows the written allocations. A factor
    larger than a constant extent is cut to it (not for ``mask`` and ``roundup``, whose inner extents are
    fixed).

    Raises ScheduleError for factors below 1, vector and thread loops, a ``shift`` whose overlap would change
    a result or whose loop may be shorter than the factor, and a ``roundup`` that would leave a buffer.

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
    >>> print(s.split("i", 4))
    func main:
        for i_o in 0:3:
            for i_i in 0:4:
                block Y(par i=i_i + 4*i_o) where -i_i - 4*i_o + 9 >= 0:
                    Y[i] = (X[i] * f32(2.0))
    >>> print(s.split("i", 4, tail="peel"))
    func main:
        for i_o in 0:2:
            for i_i in 0:4:
                block Y(par i=i_i + 4*i_o):
                    Y[i] = (X[i] * f32(2.0))
        for i_t in 0:2:
            block Y_t(par i=i_t + 8):
                Y[i] = (X[i] * f32(2.0))
    >>> print(s.split("i", 4, tail="shift"))
    func main:
        for i_o in 0:3:
            for i_i in 0:4:
                block Y(par i=i_i + min(6, 4*i_o)):
                    Y[i] = (X[i] * f32(2.0))
    """
    place, node = find_loop(func, loop)
    factors = [factor] if isinstance(factor, int) else list(factor)
    _check(func, node, factors)
    env = env_at(place)
    n = node.extent
    if not n.terms and tail not in ("mask", "roundup"):
        factors = _cut(factors, n.const, up=tail == "guard")
    size = prod(factors)
    divides = is_multiple(n, size)
    defaults = (
        [f"{loop}_o", f"{loop}_i"] if len(factors) == 1 else [f"{loop}_{k}" for k in range(len(factors) + 1)]
    )
    if tail == "peel" and not divides:
        defaults.append(f"{loop}_t")
    copies = Copies(func)
    copies.names.discard(loop)
    chosen = new_names(defaults, names, copies.names)
    nest = _Nest(node, chosen, factors)
    if divides or tail in ("guard", "mask"):
        count = floordiv(n if divides else n + (size - 1), size)
        new = nest.build(count, nest.value, env, () if divides else (ge0(n - nest.value - 1),))
    elif tail == "peel":
        new = _peel(nest, n, size, env, chosen[-1], copies)
    elif tail == "shift":
        _check_shift(func, place, node, size)
        start = imin(var(nest.loops[0].var) * size, n - size)
        new = nest.build(floordiv(n + (size - 1), size), start + nest.inner, env, ())
    else:
        count = floordiv(n + (size - 1), size)
        grown, body = round_up(func, node, count * size)
        new = _Nest(replace(node, body=body), chosen, factors).build(count, nest.value, env, ())
        return func.with_body(with_buffers(replace_at(func.body, place.path, new), grown))
    return func.with_body(replace_at(func.body, place.path, new))


class _Nest:
    """The loops that replace one loop: ``value`` is its position, ``inner`` that inside one tile."""

    __slots__ = ("inner", "loops", "node", "value")

    def __init__(self, node: For, names: Sequence[str], factors: list[int]) -> None:
        kind = node.kind if node.kind.name == "unroll" else SERIAL
        self.node = node
        self.loops = [replace(node, var=names[0], lo=Index(0))]
        self.inner = Index(0)
        scale = prod(factors)
        self.value = var(names[0]) * scale
        for name, f in zip(names[1:], factors, strict=False):
            scale //= f
            self.loops.append(For(name, Index(0), Index(f), node.body, kind))
            self.inner = self.inner + var(name) * scale
        self.value = self.value + self.inner

    def build(
        self,
        count: Index,
        value: Index,
        env: dict[str, tuple[Index, Index]],
        conditions: tuple[Condition, ...],
    ) -> Stmt:
        """The nest, ``count`` tiles long, around the old body at position ``value``."""
        loops = [replace(self.loops[0], hi=count), *self.loops[1:]]
        inner = {**env, **loop_env(loops)}
        conditions = tuple(c for c in conditions if not prove_pred((c,), inner))
        body = settle(substitute(self.node.body, {self.node.var: value + self.node.lo}), inner, conditions)
        for f in reversed(loops):
            body = replace(f, body=body)
        return body


def _check(func: LoopFunction, node: For, factors: list[int]) -> None:
    name = node.var
    if not factors or min(factors) < 1:
        shown = factors[0] if len(factors) == 1 else factors
        raise refusal(
            func, f"{name!r} cannot be split by {shown}", hint="factors are integers from 1", at=[name]
        )
    if node.step != 1:
        raise refusal(
            func, f"{name!r} has step {node.step}", hint="only loops of step 1 are split", at=[name]
        )
    if node.kind.name in ("vector", "thread"):
        raise refusal(
            func, f"{name!r} is a {node.kind.name} loop", hint="split loops before they get a kind", at=[name]
        )
    require_blocks(func, node, "split")


def _cut(factors: list[int], extent: int, *, up: bool) -> list[int]:
    """Factors, from the innermost out, no larger than what is left of a constant extent."""
    out: list[int] = []
    left = max(extent, 1)
    for f in reversed(factors):
        f = min(f, left)
        out.append(f)
        left = max(-(-left // f) if up else left // f, 1)
    return out[::-1]


def _peel(
    nest: _Nest, n: Index, size: int, env: dict[str, tuple[Index, Index]], rest: str, copies: Copies
) -> Stmt:
    if not prove_ge0(n, env):
        n = imax(n, 0)  # an empty triangular loop has no remainder
    node = nest.node
    whole = floordiv(n, size)
    main = nest.build(whole, nest.value, env, ())
    start = node.lo + whole * size
    copy = renamed_copy(node.body, "_t", copies, {node.var: start + var(rest)})
    tail = For(rest, Index(0), mod(n, size), copy, hints=node.hints)
    return seq(tidy(main, env), tidy(tail, env))


def _check_shift(func: LoopFunction, place: Location, node: For, size: int) -> None:
    if node.kind.name == "parallel":
        raise refusal(
            func,
            f"{node.var!r} is parallel: a last tile shifted back would write what another thread writes",
            hint="split with another tail policy, or before the loop is made parallel",
            at=[node.var],
        )
    if not prove_ge0(node.extent - size, env_at(place)):
        raise refusal(
            func,
            f"{node.var!r} may have fewer than {size} iterations, so its last tile cannot be shifted back",
            hint="use another tail policy, or state a larger lower bound of the parameter",
            at=[node.var],
        )
    why = why_not_repeatable(node)
    if why is not None:
        raise refusal(
            func,
            f"{node.var!r} cannot be shifted: {why}, and the overlap would run it twice",
            hint="use another tail policy",
            at=[node.var],
        )
