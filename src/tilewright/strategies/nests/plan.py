"""The decisions about a nest that a search may vary: points of a tile in each loop of its bands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tilewright.support import ArtefactError

LEAST: Final = 8
MOST: Final = 512
"""Sizes that are searched: below, bounds cost more than points; above, rows of one array fill the caches."""
MOST_LOOPS: Final = 16


@dataclass(frozen=True, slots=True)
class NestPlan:
    """Points of a tile in each loop of a band, outermost first; the last are those of further loops, too.

    Without any the nest keeps the order in which it is written. Raises ArtefactError for sizes that are no
    whole numbers from :data:`LEAST` to :data:`MOST`, or too many.
    """

    tiles: tuple[int, ...] = (32,)

    def __post_init__(self) -> None:
        if len(self.tiles) > MOST_LOOPS or not all(
            type(size) is int and LEAST <= size <= MOST for size in self.tiles
        ):
            raise ArtefactError(
                f"a nest has no tiles of {self.tiles!r}", hint=f"give sizes from {LEAST} to {MOST}"
            )

    def __str__(self) -> str:
        """What a user reads: ``tiles of 8 x 64``, or ``as written``."""
        return f"tiles of {' x '.join(map(str, self.tiles))}" if self.tiles else "as written"

    def neighbours(self, loops: int) -> Iterator[NestPlan]:
        """For bands of at most so many loops: all sizes doubled or halved, then those of one loop alone."""
        sizes = [self.tiles[min(n, len(self.tiles) - 1)] for n in range(loops)] if self.tiles else []
        for changed in (range(loops), *([n] for n in range(loops) if loops > 1)):
            for wider in (True, False):
                made = [
                    (size * 2 if wider else size // 2) if n in changed else size
                    for n, size in enumerate(sizes)
                ]
                if made and all(LEAST <= size <= MOST for size in made):
                    yield NestPlan(tuple(made))


RULE: Final = NestPlan()
"""Tiles of 32 in each loop, as Pluto has them: three arrays of two loops in f64 fit the first level."""
