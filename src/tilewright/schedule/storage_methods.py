"""Methods of a schedule for the primitives on producers, consumers and storage."""

from __future__ import annotations

from tilewright.schedule.methods import Methods


class StorageMethods(Methods):
    """Primitives that move computation and storage."""

    __slots__ = ()
