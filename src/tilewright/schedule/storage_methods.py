"""Methods of a schedule for the primitives on producers, consumers and storage (``schedule/producer/``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from tilewright.schedule.methods import Methods


class StorageMethods(Methods):
    """Primitives that move computation and storage."""

    __slots__ = ()

    def compute_at(self, block: str, loop: str, *, keep_storage: bool = False) -> Self:
        """Compute a producer inside a loop: :func:`tilewright.schedule.producer.compute_at.compute_at`."""
        return self.apply("compute_at", block, loop, keep_storage=keep_storage)

    def reverse_compute_at(self, block: str, loop: str, *, keep_storage: bool = False) -> Self:
        """Compute a consumer at its operand's loop: see ``producer/reverse_compute_at.py``."""
        return self.apply("reverse_compute_at", block, loop, keep_storage=keep_storage)

    def inline(self, block: str) -> Self:
        """Put a stage's definition into its readers: :func:`tilewright.schedule.producer.inline.inline`."""
        return self.apply("inline", block)

    def cache(
        self,
        buffer: str,
        at: str | None = None,
        *,
        scope: str = "local",
        layout: Sequence[str] = (),
        mode: Literal["read", "write", "accumulate"] = "read",
        name: str | None = None,
        pad: Sequence[int] = (),
        keep: bool = True,
    ) -> Self:
        """Keep a part of a buffer in storage of its own: :func:`tilewright.schedule.producer.cache.cache`."""
        return self.apply(
            "cache", buffer, at, scope=scope, layout=layout, mode=mode, name=name, pad=pad, keep=keep
        )

    def hoist_alloc(self, buffer: str, loop: str | None = None) -> Self:
        """Allocate a buffer further out: :func:`tilewright.schedule.producer.hoist_alloc.hoist_alloc`."""
        return self.apply("hoist_alloc", buffer, loop)

    def slide(self, block: str, loop: str) -> Self:
        """Compute only what is new in each iteration: :func:`tilewright.schedule.producer.slide.slide`."""
        return self.apply("slide", block, loop)

    def roll(self, buffer: str, dim: int, rows: int) -> Self:
        """Keep the last rows of a buffer only: :func:`tilewright.schedule.producer.roll.roll`."""
        return self.apply("roll", buffer, dim, rows)
