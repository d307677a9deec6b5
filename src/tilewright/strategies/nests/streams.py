"""Asking ahead for what loops of data-decided lengths stream from beyond the second cache level.

    for e in range(first[i], first[i + 1]):        for e in range(first[i], first[i + 1]):
        y[i] += A[e, 0] * x[column[e]] + …   ->        ask for the line of A[e, 0] + 1024 elements
                                                       y[i] += A[e, 0] * x[column[e]] + …

Such loops are short, and one begins where the last one ended. Each turn has few elements of a stream and many
instructions for others, whose waiting fills the core's window: what the hardware fetches ahead, within a
page, comes too late. This is for our own code generation: emitted C has no such hints.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.cost import buffer_bytes
from tilewright.ir import (
    Block,
    Buffer,
    For,
    Load,
    LoopFunction,
    Stmt,
    buffers_of,
    is_opaque,
    locate,
    map_stmt,
    stmt_loads,
    stmt_writes,
    var,
)
from tilewright.poly import is_black_box
from tilewright.target import CpuTarget

#: Part of the first cache level ahead of which loops ask. Two threads of Granite Rapids (48 KB), a product of
#: 51,000, 211,000 and 2.7 million blocks of 3x3 f64, by gcc's code, ms: 0.457, 1.86, 22.2; 2 KB ahead 0.334,
#: 1.38, 17.1; 4 KB 0.339, 1.32, 17.0; 8 KB 0.333, 1.33, 17.5; 24 KB 0.341, 1.35, 18.0. Of single elements,
#: 175,000, 724,000 and 10.6 million: 0.255, 0.914, 13.0; 4 KB ahead 0.209, 0.698, 10.4; 8 KB 0.199, 0.710,
#: 10.5.
AHEAD: Final = 1 / 12


def streams_asked_ahead(func: LoopFunction, target: CpuTarget) -> LoopFunction:
    """The function with hints to ask ahead at the innermost loops of its black boxes.

    Asked for are arrays that do not fit the second cache level and along which a loop moves by whole rows:
    then what follows in memory is what comes next, also in the following loop.
    """
    known = buffers_of(func)

    def in_box(s: Stmt) -> Stmt:
        if not isinstance(s, For) or not is_opaque(s.extent):
            return s
        if any(is_opaque(p.node.extent) for p in locate(s.body, For)):
            return s
        return _asking(s, known, target)

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, Block) or not is_black_box(s):
            return s
        return replace(s, body=map_stmt(s.body, in_box))

    return func.with_body(map_stmt(func.body, visit))


def _asking(loop: For, known: dict[str, Buffer], target: CpuTarget) -> For:
    near, ahead = (target.level(name).size or 0 for name in ("l2", "l1"))
    written = {name for name, _ in stmt_writes(loop.body)}
    asked: list[str] = []
    rows = False
    for ld in stmt_loads(loop.body):
        buffer = known.get(ld.buffer)
        if buffer is None or ld.buffer in written or buffer_bytes(buffer) <= near or not _streams(ld, loop):
            continue
        asked.append(f"{ld.buffer}+{int(AHEAD * ahead) // buffer.dtype.bytes}:1")
        rows |= len(ld.indices) > 1
    if not rows:
        return loop  # single elements come in lanes, which waits less, and not where a loop asks for others
    return replace(loop, hints=(*loop.hints, ("prefetch", ",".join(dict.fromkeys(asked)))))


def _streams(ld: Load, loop: For) -> bool:
    """Whether a load moves by one row of its buffer in each turn, and by nothing else."""
    if not ld.indices:
        return False
    first, *others = ld.indices
    return first - first.const == var(loop.var) and all(loop.var not in x.vars for x in others)
