"""unroll: expand a loop of constant extent."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import UNROLL, LoopFunction, replace_at
from tilewright.schedule.common import constant_extent, find_loop, refusal
from tilewright.schedule.registry import primitive


@primitive("unroll", phase="loop")
def unroll(func: LoopFunction, loop: str) -> LoopFunction:
    """Expand ``loop`` into copies of its body in code generation; its extent must be a constant."""
    place, node = find_loop(func, loop)
    if node.kind.name not in ("serial", "unroll"):
        raise refusal(func, f"{loop!r} is already a {node.kind} loop", at=[loop])
    constant_extent(func, place, node, "unrolled")
    return func.with_body(replace_at(func.body, place.path, replace(node, kind=UNROLL)))
