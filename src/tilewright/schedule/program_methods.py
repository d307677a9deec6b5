"""Methods of a schedule for the program phase: layouts and rewrites of the program."""

from __future__ import annotations

from typing import Self

from tilewright.schedule.methods import Methods


class ProgramMethods(Methods):
    """Primitives that change the program before its loops exist."""

    __slots__ = ()

    def inline_stage(self, stage: str) -> Self:
        """Put a stage's definition into its readers, in the program: see ``producer/inline_stage.py``."""
        return self.apply("inline_stage", stage)

    def skip_padding(self, stage: str) -> Self:
        """See :func:`~tilewright.schedule.rewrite.skip_padding.skip_padding`."""
        return self.apply("skip_padding", stage)
