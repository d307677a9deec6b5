"""Inputs whose sizes are open: what they are, and the sizes that arrays show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.runtime.tensors import TensorInfo
from tilewright.support import InputError, quoted, whole_number

Sizes: TypeAlias = tuple[int, ...]
"""A value of each open size, in their order."""
Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""The least and the largest value of each open size, in their order."""


@dataclass(frozen=True, slots=True)
class AffineDim:
    """A dimension of ``factor * size + offset`` elements, the factor not 0."""

    size: str
    factor: int
    offset: int

    def at(self, value: int) -> int:
        """The elements at a value of the size."""
        return self.factor * value + self.offset

    def read(self, extent: int) -> int | None:
        """The size at which there are so many elements; ``None`` where there is none."""
        value, rest = divmod(extent - self.offset, self.factor)
        return None if rest else value

    def __str__(self) -> str:
        factor = f"{self.factor}*" if self.factor != 1 else ""
        offset = f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}" if self.offset else ""
        return f"{factor}{self.size}{offset}"


@dataclass(frozen=True, slots=True)
class OpenTensor:
    """An input of a model with open sizes; those are names among its dimensions, or affine in one."""

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int | str | AffineDim, ...]

    @property
    def places(self) -> list[tuple[int, str]]:
        """The axes that are open sizes themselves, and their names."""
        return [(axis, dim) for axis, dim in enumerate(self.dims) if isinstance(dim, str)]

    @property
    def affine(self) -> list[tuple[int, AffineDim]]:
        """The axes that are affine in a size."""
        return [(axis, dim) for axis, dim in enumerate(self.dims) if isinstance(dim, AffineDim)]

    @property
    def sizes(self) -> set[str]:
        """The names of the sizes that it shows."""
        return {dim for _, dim in self.places} | {dim.size for _, dim in self.affine}

    def at(self, sizes: Mapping[str, int]) -> TensorInfo:
        """What it is at some sizes."""
        return TensorInfo(self.name, self.dtype, tuple(_extent(dim, sizes) for dim in self.dims))

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.dims))}]"


def _extent(dim: int | str | AffineDim, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, AffineDim):
        return dim.at(sizes[dim.size])
    return sizes[dim] if isinstance(dim, str) else dim


class SizeReader:
    """Reads the values of open sizes off a run's arrays, each at most microseconds, and checks them."""

    def __init__(self, inputs: Iterable[OpenTensor], sizes: Mapping[str, tuple[int, int]]) -> None:
        self._inputs = tuple(inputs)
        self._sizes = dict(sizes)
        self._places = [(each.name, len(each.dims), each.places, each.affine) for each in self._inputs]

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

    def checked(self, name: str, value: object) -> int:
        """The value of a size. Raises InputError for what is none, or out of its range."""
        lo, hi = self._sizes[name]
        size = whole_number(value)
        if size is None or not lo <= size <= hi:
            raise InputError(f"the size {quoted(name)} is {value}; the model is compiled for {lo} to {hi}")
        return size

    def _seen(self, feeds: Mapping[str, npt.NDArray[Any]]) -> Sizes | None:
        """The sizes of arrays that fit; ``None`` where something does not, or is no array."""
        found: dict[str, int] = {}
        try:
            for name, rank, places, affine in self._places:
                shape = feeds[name].shape
                if len(shape) != rank:
                    return None
                for axis, size in places:
                    if found.setdefault(size, shape[axis]) != shape[axis]:
                        return None
                for axis, dim in affine:
                    value = dim.read(shape[axis])
                    if value is None or found.setdefault(dim.size, value) != value:
                        return None
            sizes = tuple(found[name] for name in self._sizes)
        except (KeyError, AttributeError):
            return None
        within = all(lo <= n <= hi for n, (lo, hi) in zip(sizes, self._sizes.values(), strict=True))
        return sizes if within else None


def read_open_sizes(inputs: Iterable[OpenTensor], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The open sizes that the shapes of inputs show.

    Raises InputError where two inputs contradict each other, or an input has another rank.
    """
    sizes: dict[str, int] = {}
    seen: dict[str, str] = {}
    for each in inputs:
        shape = shapes.get(each.name)
        if shape is None:
            raise InputError(f"the input {quoted(each.name)} is missing")
        if len(shape) != len(each.dims):
            raise InputError(
                f"the input {quoted(each.name)} has {len(each.dims)} dimensions, {each}; got {list(shape)}"
            )
        for axis, (dim, extent) in enumerate(zip(each.dims, shape, strict=True)):
            if isinstance(dim, int):
                continue
            place = f"axis {axis} of {quoted(each.name)}"
            name, size = (
                (dim.size, dim.read(int(extent))) if isinstance(dim, AffineDim) else (dim, int(extent))
            )
            if size is None:
                raise InputError(f"{place} has {extent} elements, which is {dim} for no size {quoted(name)}")
            if sizes.setdefault(name, size) != size:
                raise InputError(
                    f"the size {quoted(name)} is {sizes[name]} by {seen[name]} and {size} by {place}"
                )
            seen.setdefault(name, place)
    return sizes
