"""Methods of a schedule for the primitives on loops (``schedule/loop/``).

A test holds their signatures equal to those of the primitives.
"""

from __future__ import annotations

from typing import Self

from tilewright.schedule.methods import Methods


class LoopMethods(Methods):
    """Primitives that change the order of loops."""

    __slots__ = ()

    def annotate(self, loop: str, key: str, value: str = "") -> Self:
        """Give a loop a back-end hint: :func:`tilewright.schedule.loop.annotate.annotate`."""
        return self.apply("annotate", loop, key, value)
