"""Inputs whose sizes are open: what they are, and the sizes that arrays show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.runtime.tensors import TensorInfo
from tilewright.support import InputError, known_names, quoted, whole_number

Sizes: TypeAlias = tuple[int, ...]
"""A value of each open size, in their order."""
Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""The least and the largest value of each open size, in their order."""


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The values of a size: from the least to the largest, both included, in steps."""

    least: int
    largest: int
    step: int = 1

    @property
    def values(self) -> range:
        """All of them."""
        return range(self.least, self.largest + 1, self.step)

    def __contains__(self, value: int) -> bool:
        return self.least <= value <= self.largest and value % self.step == 0

    def __str__(self) -> str:
        steps = f" in steps of {self.step}" if self.step != 1 else ""
        return f"{self.least} to {self.largest}{steps}"


@dataclass(frozen=True, slots=True)
class AffineDim:
    """A dimension of ``offset`` elements and for each of some sizes a factor, not 0, times its value."""

    terms: tuple[tuple[str, int], ...]
    offset: int = 0

    def at(self, sizes: Mapping[str, int]) -> int:
        """The elements at some sizes."""
        return self.offset + sum(factor * sizes[name] for name, factor in self.terms)

    def unknown(self, extent: int, sizes: Mapping[str, int]) -> tuple[str, int | None] | None:
        """The one size that is not among ``sizes``, and its value, if there is one, where the dimension has
        so many elements; ``None`` where more or none are open.
        """
        missing = [(name, factor) for name, factor in self.terms if name not in sizes]
        if len(missing) != 1:
            return None
        ((name, factor),) = missing
        rest = extent - self.offset - sum(f * sizes[known] for known, f in self.terms if known in sizes)
        value, left = divmod(rest, factor)
        return name, None if left else value

    def __str__(self) -> str:
        text = ""
        for name, factor in self.terms:
            sign = "-" if factor < 0 else "+" if text else ""
            times = "" if abs(factor) == 1 else f"{abs(factor)}*"
            text += f" {sign} {times}{name}" if text else f"{sign}{times}{name}"
        return text + (f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}" if self.offset else "")


@dataclass(frozen=True, slots=True)
class OpenTensor:
    """An input of a model with open sizes; those are names among its dimensions, or affine in some."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | AffineDim, ...]

    @property
    def sizes(self) -> set[str]:
        """The names of the sizes that it shows."""
        return {name for dim in self.shape for name in _names(dim)}

    def at(self, sizes: Mapping[str, int]) -> TensorInfo:
        """What it is at some sizes."""
        return TensorInfo(self.name, self.dtype, tuple(extent_at(dim, sizes) for dim in self.shape))

    def __str__(self) -> str:
        return f"{quoted(self.name)}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"


def extent_at(dim: int | str | AffineDim, sizes: Mapping[str, int]) -> int:
    """The elements of a dimension at some sizes."""
    if isinstance(dim, AffineDim):
        return dim.at(sizes)
    return sizes[dim] if isinstance(dim, str) else dim


def _names(dim: int | str | AffineDim) -> list[str]:
    if isinstance(dim, AffineDim):
        return [name for name, _ in dim.terms]
    return [dim] if isinstance(dim, str) else []


class SizeReader:
    """Reads the values of open sizes off a run's arrays, each at most microseconds, and checks them."""

    def __init__(self, inputs: Iterable[OpenTensor], sizes: Mapping[str, SizeRange]) -> None:
        self._inputs = tuple(inputs)
        self._sizes = dict(sizes)
        # names first: what is affine in them follows
        places = [(each.name, axis, dim) for each in self._inputs for axis, dim in enumerate(each.shape)]
        self._places = [(name, axis, dim) for name, axis, dim in places if isinstance(dim, str)]
        self._affine = [(name, axis, dim) for name, axis, dim in places if isinstance(dim, AffineDim)]
        self._ranks = [(each.name, len(each.shape)) for each in self._inputs]

    def read(self, feeds: Mapping[str, npt.NDArray[Any]]) -> Sizes:
        """The sizes that arrays show.

        Raises InputError for what is no mapping, inputs that are missing, have another rank or contradict
        each other, and sizes out of their range.
        """
        if not isinstance(feeds, Mapping):
            raise InputError(f"inputs must be a mapping from names to arrays, got {type(feeds).__name__}")
        known = self._seen(feeds)
        if known is not None:
            return known
        found = read_open_sizes(self._inputs, {name: np.shape(a) for name, a in feeds.items()})
        return tuple(self.checked(name, found[name]) for name in self._sizes)

    def given(self, sizes: Mapping[str, int]) -> Sizes:
        """Sizes by name as a caller gives them.

        Raises InputError for one that is missing, that there is not, or out of its range.
        """
        for name in sizes:
            if name not in self._sizes:
                hint = known_names(name, list(self._sizes), "its sizes")
                raise InputError(f"the model has no open size {quoted(name)}", hint=hint)
        if missing := [name for name in self._sizes if name not in sizes]:
            raise InputError(f"the size {quoted(missing[0])} is missing")
        return tuple(self.checked(name, sizes[name]) for name in self._sizes)

    def checked(self, name: str, value: object) -> int:
        """The value of a size. Raises InputError for what is none, or out of its range."""
        size = whole_number(value)
        if size is None or size not in self._sizes[name]:
            raise InputError(
                f"the size {quoted(name)} is {value}; the model is compiled for {self._sizes[name]}"
            )
        return size

    def _seen(self, feeds: Mapping[str, npt.NDArray[Any]]) -> Sizes | None:
        """The sizes of arrays that fit; ``None`` where something does not, or is no array."""
        found: dict[str, int] = {}
        try:
            shapes = {name: feeds[name].shape for name, _ in self._ranks}
            if any(len(shapes[name]) != rank for name, rank in self._ranks):
                return None
            for name, axis, size in self._places:
                if found.setdefault(size, shapes[name][axis]) != shapes[name][axis]:
                    return None
            for name, axis, dim in self._affine:
                settled = dim.unknown(shapes[name][axis], found)
                if settled is not None and settled[1] is not None:
                    found[settled[0]] = settled[1]
            if any(dim.at(found) != shapes[name][axis] for name, axis, dim in self._affine):
                return None
            sizes = tuple(found[name] for name in self._sizes)
        except (KeyError, AttributeError):
            return None
        within = all(n in known for n, known in zip(sizes, self._sizes.values(), strict=True))
        return sizes if within else None


def read_open_sizes(inputs: Iterable[OpenTensor], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The open sizes that the shapes of inputs show.

    Raises InputError where two inputs contradict each other, or an input has another rank.
    """
    sizes: dict[str, int] = {}
    seen: dict[str, str] = {}
    affine: list[tuple[str, int, AffineDim]] = []
    for each in inputs:
        shape = shapes.get(each.name)
        if shape is None:
            raise InputError(f"the input {quoted(each.name)} is missing")
        if len(shape) != len(each.shape):
            raise InputError(f"the input {each} has {len(each.shape)} dimensions; got {list(shape)}")
        for axis, (dim, extent) in enumerate(zip(each.shape, shape, strict=True)):
            place = f"axis {axis} of {quoted(each.name)}"
            if isinstance(dim, AffineDim):
                affine.append((place, int(extent), dim))
            elif isinstance(dim, str):
                if sizes.setdefault(dim, int(extent)) != int(extent):
                    raise InputError(
                        f"the size {quoted(dim)} is {sizes[dim]} by {seen[dim]} and {extent} by {place}"
                    )
                seen.setdefault(dim, place)
    for place, extent, dim in affine:
        settled = dim.unknown(extent, sizes)
        if settled is not None:
            name, value = settled
            if value is None:
                raise InputError(f"{place} has {extent} elements, which is {dim} for no size {quoted(name)}")
            sizes[name], seen[name] = value, place
    for place, extent, dim in affine:
        if all(name in sizes for name, _ in dim.terms) and dim.at(sizes) != extent:
            by = ", ".join(f"{quoted(name)} is {sizes[name]} by {seen[name]}" for name, _ in dim.terms)
            raise InputError(f"{place} has {extent} elements, not {dim}: {by}")
    return sizes
