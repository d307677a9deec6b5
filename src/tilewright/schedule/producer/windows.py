"""Windows that slide: where a loop's reads lie, with what clamps at borders add left to the domain."""

from __future__ import annotations

from tilewright.ir import (
    Buffer,
    Env,
    Expr,
    Index,
    Load,
    MinMax,
    Span,
    Stmt,
    map_loads,
    prove_ge0,
    var,
)
from tilewright.schedule.footprint import Box, Mode, footprint


def window(part: Stmt, env: Env, buffer: Buffer, mode: Mode, loop: str) -> Box | None:
    """The box of ``buffer`` that ``part`` touches, its dimensions moving evenly with ``loop`` where they can.

    A read clamped to the buffer, ``T[min(max(y - 1, 0), H - 1)]``, moves unevenly at the borders. Where the
    windows without clamps, ``[y - 1, …]``, all meet ``[0, H - 1]``, they hold what the clamps lead to, too:
    then they are taken, and may reach past the buffer. ``None`` where ``part`` touches nothing.
    """
    box = footprint(part, env, buffer, mode)
    if box is None or all(_even(s, loop) for s in box.spans):
        return box
    clamps: list[dict[tuple[Index | None, Index | None], None]] = [{} for _ in buffer.shape]

    def of_load(ld: Load) -> Expr:
        if ld.buffer != buffer.name:
            return ld
        indices: list[Index] = []
        for d, x in enumerate(ld.indices):
            inner, low, high = _unclamped(x)
            if low is not None or high is not None:
                clamps[d][low, high] = None
            indices.append(inner)
        return Load(ld.buffer, tuple(indices), ld.dtype)

    moving = footprint(map_loads(part, of_load), env, buffer, mode)
    assert moving is not None
    spans = [
        new if not _even(old, loop) and _even(new, loop) and _meets(new, ends, env) else old
        for old, new, ends in zip(box.spans, moving.spans, clamps, strict=True)
    ]
    return Box(tuple(spans))


def _even(s: Span, loop: str) -> bool:
    """Whether a span moves by a constant, or not at all."""
    return loop not in (s.lo - var(loop) * s.lo.coefficient(loop)).vars


def _unclamped(x: Index) -> tuple[Index, Index | None, Index | None]:
    """An index without the minimum and the maximum around it that limit it by sizes, and these limits."""
    low: Index | None = None
    high: Index | None = None
    while len(x.terms) == 1 and x.terms[0][1] == 1 and isinstance(x.terms[0][0], MinMax):
        atom, shift = x.terms[0][0], x.const
        limits = [a + shift for a in atom.args if not a.vars]
        others = [a + shift for a in atom.args if a.vars]
        if len(limits) != 1 or len(others) != 1 or (high if atom.op == "min" else low) is not None:
            break
        if atom.op == "min":
            high = limits[0]
        else:
            low = limits[0]
        (x,) = others
    return x, low, high


def _meets(s: Span, ends: dict[tuple[Index | None, Index | None], None], env: Env) -> bool:
    """Whether all values of a span reach every range that its indices are clamped to."""
    last = s.lo + s.extent - 1
    return all(
        (low is None or prove_ge0(last - low, env)) and (high is None or prove_ge0(high - s.lo, env))
        for low, high in ends
    )
