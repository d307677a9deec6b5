"""The list of all primitives: what a schedule offers and a trace may name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tilewright.schedule.loop.annotate import annotate
from tilewright.schedule.registry import Primitive, primitive_of

_FUNCTIONS = (
    # order of loops
    annotate,
    # producers, consumers and storage
    # layouts and other program-phase primitives
)

PRIMITIVES: Final[Mapping[str, Primitive]] = MappingProxyType(
    {p.name: p for p in map(primitive_of, _FUNCTIONS)}
)
"""Read-only: every primitive by name."""
