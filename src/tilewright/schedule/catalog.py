"""The list of all primitives: what a schedule offers and a trace may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tilewright.schedule.loop.annotate import annotate
from tilewright.schedule.producer.compute_at import compute_at
from tilewright.schedule.producer.stage import stage
from tilewright.schedule.registry import Primitive, primitive_of

_FUNCTIONS: Final[tuple[Callable[..., Any], ...]] = (
    # order of loops
    annotate,
    # producers, consumers and storage
    compute_at,
    stage,
    # layouts and other program-phase primitives
)

PRIMITIVES: Final[Mapping[str, Primitive]] = MappingProxyType(
    {p.name: p for p in map(primitive_of, _FUNCTIONS)}
)
"""Read-only: every primitive by name."""
