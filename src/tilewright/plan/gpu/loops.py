"""Loops of nests on GPUs, several as one: what blocks or threads are then spread over."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.schedule import Schedule


def fused_loops(s: Schedule, loops: Sequence[str], name: str) -> tuple[Schedule, str]:
    """Nested loops as one, outermost first, and its name: ``name`` and a number, or that of a single loop."""
    first, *rest = loops
    for n, loop in enumerate(rest):
        s = s.fuse(first, loop, names=[f"{name}{n}"])
        first = f"{name}{n}"
    return s, first
