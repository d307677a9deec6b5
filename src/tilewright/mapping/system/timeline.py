"""Timelines: which node works when, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.mapping.system.timing import Timing

WIDTH: Final = 72
"""Characters of a timeline unless something else is asked for."""


def timeline(timing: Timing, nodes: Sequence[str] = (), width: int = WIDTH) -> str:
    """A line for each node, from the first cycle to the end of the last item that ``timing`` kept.

    ``#``: the node works most of the character's cycles, ``:``: some of them. ``nodes``: those to be shown,
    in order; all that worked, by name, where none are given.
    """
    spans = timing.spans
    end = max((s.end for s in spans), default=0)
    names = list(nodes) or sorted({s.node for s in spans})
    busy = {name: [0.0] * width for name in names}
    for s in spans:
        if s.node not in busy:
            continue
        for n in range(s.start * width // max(1, end), min(width, -(-s.end * width // max(1, end)))):
            lo, hi = n * end / width, (n + 1) * end / width
            busy[s.node][n] += max(0.0, min(hi, s.end) - max(lo, s.start)) / (hi - lo)
    margin = max((len(n) for n in names), default=0)
    lines = [f"{'cycle':<{margin}} 0{'':{width - 1 - len(str(end))}}{end}"]
    for name in names:
        marks = "".join("#" if part >= 0.5 else ":" if part > 0 else " " for part in busy[name])
        lines.append(f"{name:<{margin}} {marks}".rstrip())
    return "\n".join(lines)
