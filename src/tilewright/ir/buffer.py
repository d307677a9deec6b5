"""Index maps and buffers.

A *layout is a map*: accesses name logical indices, and the buffer's :class:`IndexMap` says where an element
lives. Code generation applies the map and linearises the physical indices row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypedDict, Unpack

from tilewright.ir.dtypes import DType
from tilewright.ir.index import Index, IndexLike, index, var
from tilewright.ir.substitution import substitute_index

MAX_RANK: Final = 64
"""Dimensions that a tensor may have: as many as numpy's arrays."""

GLOBAL, CONST, LOCAL, SHARED, REGISTER = "global", "const", "local", "shared", "register"
TILE = "tile"
"""Registers that hold a matrix each: only instructions read and write them."""
PRIVATE = frozenset({LOCAL, REGISTER, TILE})
"""Scopes of which every thread has its own."""


@dataclass(frozen=True, slots=True)
class IndexMap:
    """``(dims) -> exprs`` onto a physical box of the given ``shape``.

    ``exprs`` may also mention variables of loops around the buffer's allocation: a tile's buffer keeps its
    logical indices and subtracts the tile's origin here.
    """

    dims: tuple[str, ...]
    exprs: tuple[Index, ...]
    shape: tuple[Index, ...]

    def apply(self, indices: tuple[Index, ...]) -> tuple[Index, ...]:
        """Physical indices of the element with the given logical ones."""
        env = dict(zip(self.dims, indices, strict=True))
        return tuple(substitute_index(e, env) for e in self.exprs)

    def substitute(self, mapping: Mapping[str, Index]) -> IndexMap:
        """Replace variables of enclosing loops (the map's own dimensions are bound)."""
        free = {k: v for k, v in mapping.items() if k not in self.dims}
        exprs = tuple(substitute_index(e, free) for e in self.exprs)
        if all(a is b for a, b in zip(exprs, self.exprs, strict=True)):
            return self
        return IndexMap(self.dims, exprs, self.shape)

    @property
    def vars(self) -> frozenset[str]:
        """Variables of enclosing loops that the map mentions."""
        return frozenset().union(*(e.vars for e in self.exprs)) - frozenset(self.dims)

    def then(self, outer: IndexMap) -> IndexMap:
        """The composition: this map first, ``outer`` on its result."""
        return IndexMap(self.dims, outer.apply(self.exprs), outer.shape)

    def __str__(self) -> str:
        return (
            f"({', '.join(self.dims)}) -> ({', '.join(map(str, self.exprs))}) "
            f"in [{', '.join(map(str, self.shape))}]"
        )


def identity_map(shape: tuple[IndexLike, ...]) -> IndexMap:
    """The row-major layout of a box."""
    dims = tuple(f"d{n}" for n in range(len(shape)))
    return IndexMap(dims, tuple(var(d) for d in dims), tuple(index(s) for s in shape))


def strided_map(shape: tuple[Index, ...], strides: tuple[int, ...]) -> IndexMap:
    """The layout whose elements lie so many elements apart in one dimension of memory.

    >>> print(strided_map((index(2), index(3)), (8, 1)))
    (d0, d1) -> (8*d0 + d1) in [11]
    """
    dims = tuple(f"d{n}" for n in range(len(shape)))
    place, last = Index(0), Index(0)
    for name, extent, step in zip(dims, shape, strides, strict=True):
        place, last = place + var(name) * step, last + (extent - 1) * step
    return IndexMap(dims, (place,), (last + 1,))


class BufferFields(TypedDict, total=False):
    """What :meth:`Buffer.with_` may replace."""

    name: str
    shape: tuple[Index, ...]
    dtype: DType
    scope: str
    layout: IndexMap | None
    align: int
    alias: str | None
    halo: tuple[tuple[int, int], ...] | None


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named array: logical ``shape``, ``dtype``, ``scope`` and layout.

    ``layout`` ``None`` is row-major over ``shape``. ``align`` is in bytes. Buffers of one ``alias`` group may
    overlap in memory; all others never do. ``halo`` gives, per physical dimension, how many elements before
    and after the box may be read (their contents are zero where the producer wrote it so).
    """

    name: str
    shape: tuple[Index, ...]
    dtype: DType
    scope: str = GLOBAL
    layout: IndexMap | None = None
    align: int = 64
    alias: str | None = None
    halo: tuple[tuple[int, int], ...] | None = None

    @property
    def physical_shape(self) -> tuple[Index, ...]:
        """Extents of the allocated box, without the halo."""
        return self.shape if self.layout is None else self.layout.shape

    def physical(self, indices: tuple[Index, ...]) -> tuple[Index, ...]:
        """Physical indices of a logical access."""
        return indices if self.layout is None else self.layout.apply(indices)

    def with_(self, **changes: Unpack[BufferFields]) -> Buffer:
        """A copy with some fields replaced."""
        return replace(self, **changes)

    def substitute(self, mapping: Mapping[str, Index]) -> Buffer:
        """Replace variables of enclosing loops in the layout."""
        if self.layout is None:
            return self
        layout = self.layout.substitute(mapping)
        return self if layout is self.layout else replace(self, layout=layout)


def buffer(name: str, shape: tuple[IndexLike, ...], dtype: DType, scope: str = GLOBAL) -> Buffer:
    """A row-major buffer with plain integers accepted as extents."""
    return Buffer(name, tuple(index(s) for s in shape), dtype, scope)


def strides_of(b: Buffer) -> tuple[int, ...] | None:
    """The strides of a buffer of one dimension of memory, in elements; ``None`` for other layouts."""
    if b.layout is None or len(b.layout.exprs) != 1 or not b.layout.shape[0].is_const:
        return None
    place = b.layout.exprs[0]
    strides = tuple(place.coefficient(name) for name in b.layout.dims)
    if place - sum((var(n) * s for n, s in zip(b.layout.dims, strides, strict=True)), Index(0)) != Index(0):
        return None
    return strides
