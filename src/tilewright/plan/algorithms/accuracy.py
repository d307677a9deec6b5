"""How exact results must be: which algorithms other than the direct one may compute sums of products."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

#: ``auto``: any algorithm that is exact enough and pays; ``exact``: the direct method alone; ``f2`` and
#: ``f4``: Winograd's method with tiles of 2 or 4 wherever it applies, and no other.
AccuracyMode: TypeAlias = Literal["auto", "exact", "f2", "f4"]
#: The largest error, relative to the largest result, with which ``auto`` takes an algorithm.
MOST_ERROR: Final = 5e-5


@dataclass(frozen=True, slots=True)
class Accuracy:
    """What may be done instead of the direct method, and the largest error, of the largest result, for that.

    The error is measured with each layer's own weights in a sample. ``without`` names variants of algorithms
    that are switched off, as the records of ``methods.py`` name them.
    """

    mode: AccuracyMode = "auto"
    most_error: float = MOST_ERROR
    without: frozenset[str] = frozenset()

    @property
    def is_asked_for(self) -> bool:
        """Whether one algorithm is taken wherever it applies, whatever the model says of it."""
        return self.mode in ("f2", "f4")

    def allows(self, variant: str) -> bool:
        """Whether a variant of an algorithm may be taken."""
        return variant == self.mode or (self.mode == "auto" and variant not in self.without)

    def but(self, variants: Iterable[str]) -> Accuracy:
        """The same without some variants."""
        return replace(self, without=self.without | frozenset(variants))


AUTO: Final = Accuracy()
EXACT: Final = Accuracy("exact")
