"""Algorithms that compute a stage by other arithmetic: what they need besides the primitive itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from tilewright.ir import Program, Stage
from tilewright.schedule.trace import Step

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class DerivedConstant:
    """A constant argument made of the program's own arguments ``sources`` by ``compute``."""

    sources: tuple[str, ...]
    compute: Callable[..., Array]
    error: Callable[..., float]
    """The error of the algorithm that takes it, in a sample, relative to the largest result."""
    variant: str = ""
    """The variant of that algorithm, as its record names it."""

    def of(self, arrays: Mapping[str, Array]) -> Array:
        """The constant, from the arrays of the program's arguments."""
        return self.compute(*(arrays[name] for name in self.sources))


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm, recorded beside the primitive ``name`` that rewrites a stage by it.

    The first argument of the primitive is the stage. ``match`` says what of a stage the rewrite and its nest
    need to know, ``None`` where it cannot be done so. ``constants`` are those that a step takes in the place
    of the program's own, by name. ``parts`` are the names of stages that a step made, with what a
    description of the kernel calls them. When it pays is asked of ``plan.METHODS``. ``variants`` are the
    forms that can be left out one by one (by default itself), ``variant`` says which of them a step took.
    """

    name: str
    match: Callable[[Program, Stage], Any]
    constants: Callable[[Any, Step], Mapping[str, DerivedConstant]]
    parts: Callable[[Step], Mapping[str, str]]
    variants: tuple[str, ...] = ()
    variant: Callable[[Step], str] = field(default=lambda step: step.primitive)

    def __post_init__(self) -> None:
        if not self.variants:
            object.__setattr__(self, "variants", (self.name,))
