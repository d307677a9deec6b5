"""What an application is: a program, inputs for it, and the same in numpy; with helpers for the latter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import ir
from tilewright.schedule import Schedule

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Application:
    """One application: ``program(height, width)``, ``inputs(height, width)``, ``reference(inputs)`` in numpy.

    ``small`` and ``large`` are sizes to test and to time. Results may differ from the reference by
    ``tolerance`` of its largest magnitude (0: not at all), but for a share ``flips`` of the elements, where a
    rounding error makes a number another index. ``picture`` makes an image of results, ``schedule`` is
    written by hand.
    """

    name: str
    title: str
    program: Callable[[int, int], ir.Program]
    inputs: Callable[[int, int], dict[str, Array]]
    reference: Callable[[Mapping[str, Array]], Array]
    small: tuple[int, int]
    large: tuple[int, int] = (1536, 2560)
    tolerance: float = 1e-5
    flips: float = 0.0
    picture: Callable[[Array], Array] | None = None
    schedule: Callable[[ir.Program], Schedule] | None = None

    def check(self, found: Array, want: Array) -> str:
        """What is wrong with a result, or nothing."""
        if found.shape != want.shape or found.dtype != want.dtype:
            return f"{found.dtype} of shape {found.shape}, not {want.dtype} of shape {want.shape}"
        a, b = found.astype(np.float64), want.astype(np.float64)
        if not np.isfinite(b).all():
            return "the reference is not finite"
        wrong = ~(np.abs(a - b) <= self.tolerance * np.abs(b).max())
        if wrong.mean() <= self.flips:
            return ""
        place = tuple(map(int, np.argwhere(wrong)[0]))
        first = f"the first at {place}: {found[place]}, not {want[place]}"
        return f"{wrong.mean():.3%} of the elements differ, {first}"


def at(image: Array, dy: int, dx: int, margin: int) -> Array:
    """The image moved: what stands ``(dy, dx)`` further on, for the pixels that are ``margin`` inside."""
    h, w = image.shape[-2:]
    return image[..., margin + dy : h - margin + dy, margin + dx : w - margin + dx]


def padded(image: Array, margin: int) -> Array:
    """The image with its border repeated ``margin`` times around its last two dimensions."""
    return np.pad(image, [(0, 0)] * (image.ndim - 2) + [(margin, margin)] * 2, mode="edge")


def to_bytes(image: Array) -> Array:
    """Values from 0 to 1 as bytes."""
    return np.clip(image * 255 + 0.5, 0, 255).astype(np.uint8)


def shades(plane: Array) -> Array:
    """The numbers of a plane as bytes, the least black and the greatest white."""
    values = plane.astype(np.float64)
    return to_bytes((values - values.min()) / max(float(np.ptp(values)), 1e-30))


@dataclass(frozen=True)
class Grid:
    """Values at the places from ``(top, left)`` on, which may be negative."""

    values: Array
    top: int
    left: int

    @property
    def rows(self) -> range:
        """Rows that have values."""
        return range(self.top, self.top + self.values.shape[-2])

    @property
    def columns(self) -> range:
        """Columns that have values."""
        return range(self.left, self.left + self.values.shape[-1])

    def at(self, rows: npt.ArrayLike, columns: npt.ArrayLike) -> Array:
        """The values at all pairs of the given rows and columns."""
        y, x = np.asarray(rows) - self.top, np.asarray(columns) - self.left
        assert min(y.min(), x.min()) >= 0
        return self.values[..., y[:, None], x]
