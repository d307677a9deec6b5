"""Which results are stored past the caches: large ones that nobody reads soon."""

from __future__ import annotations

from tilewright.ir import For, Stmt, stmt_children, stmt_loads, stmt_writes
from tilewright.schedule import Schedule
from tilewright.strategies.caches import buffer_bytes, last_cache
from tilewright.target import Target


def store_past_caches(s: Schedule, target: Target) -> Schedule:
    """Annotate the outermost loops that write results larger than the last cache level.

    What is stored as usual is read before it is overwritten, and of such a result next to nothing is left in
    the caches for its readers. A result that its own program reads again stays as it is.
    """
    func = s.func
    large = {b.name for b in func.buffers if b.name in func.outputs and buffer_bytes(b) >= last_cache(target)}
    if not large:
        return s
    read = {ld.buffer for ld in stmt_loads(func.body)}
    for loop, names in _writers(func.body, frozenset(large - read)):
        s = s.annotate(loop, "nontemporal", ",".join(sorted(names)))
    return s


def _writers(s: Stmt, wanted: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """The outermost loops that write wanted buffers, with those."""
    if isinstance(s, For):
        names = wanted & {name for name, _ in stmt_writes(s)}
        return [(s.var, names)] if names else []
    return [found for k in stmt_children(s) for found in _writers(k, wanted)]
