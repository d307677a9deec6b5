"""What things cost on a machine: its caches, bandwidths and issue, each question with one answer."""

from tilewright.cost.issue import reloaded_rows, shared_cycles
from tilewright.cost.machine import (
    PAGE,
    WAYS,
    Machine,
    buffer_bytes,
    comes_from_memory,
    exceeds_caches,
    first_ways,
    goes_past_caches,
    last_cache,
    page_cycles,
    perhaps_kept,
    rows_collide,
    whole_cache,
)

__all__ = [
    "Machine",
    "PAGE",
    "WAYS",
    "buffer_bytes",
    "comes_from_memory",
    "exceeds_caches",
    "first_ways",
    "goes_past_caches",
    "last_cache",
    "page_cycles",
    "perhaps_kept",
    "reloaded_rows",
    "rows_collide",
    "shared_cycles",
    "whole_cache",
]
