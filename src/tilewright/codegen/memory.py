"""How the emitter sees buffers: memory with strides, or registers addressed by constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.codegen.llvm.builder import Builder
from tilewright.codegen.llvm.scopes import Scope
from tilewright.codegen.llvm.values import Val
from tilewright.ir import Atom, Buffer, Index

#: Room between the rows of a register buffer's numbering, for the unused lanes of a row's last vector.
ROW_GAP = 64


@dataclass(slots=True)
class Resolved:
    """An index for certain values of the loop variables, but for its constant.

    ``terms`` mentions no lane; ``lane`` is the coefficient of the lane where that enters linearly.
    """

    terms: Index
    lane: int
    irregular: bool  # the lane enters in other ways
    volatile: bool  # depends on the contents of memory
    shift: int  # to be added to the sum of the constants
    whole: Index  # terms and lanes
    place: Place | None = None
    signs: dict[tuple[int, str], bool | None] = field(default_factory=dict)  # by constant and condition


@dataclass(slots=True)
class Plan:
    """An index split for fast evaluation: plain variables here, everything else in ``rest``."""

    const: int
    plain: tuple[tuple[str, int], ...]
    rest: tuple[tuple[Atom, int], ...]
    names: tuple[str, ...]  # variables of ``rest``
    cache: dict[tuple[object, ...], Resolved] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)  # what keys of the cache name by identity


LoadKey: TypeAlias = tuple[int | tuple[int, str], int, int, str]
"""Constant offset, or the depth and the text of an address; lanes, and the mask's depth and text."""

Loads: TypeAlias = dict[LoadKey, tuple[Val, int, Scope]]
"""What has been loaded, the version of the buffer that it was, and where that was done."""


@dataclass(slots=True)
class Place:
    """A pointer into a buffer, and what has been loaded around it: by constant offset, lanes and mask."""

    pointer: Val | None = None
    home: Scope | None = None
    loads: Loads = field(default_factory=dict)


Products: TypeAlias = tuple[tuple[Index, Val], ...]
"""Indices times symbolic strides."""


@dataclass(slots=True)
class AccessPlan:
    """How an access of a buffer in memory is computed: one plan, and products with symbolic strides."""

    indices: tuple[Index, ...]
    plan: Plan  # of this buffer alone: what it resolves to knows the place
    products: Products


@dataclass(slots=True)
class MemoryBuffer:
    """A buffer behind a pointer. ``strides`` are in elements; symbolic ones are values."""

    buffer: Buffer  # loops that its layout mentions are open as long as it lives
    pointer: Val
    strides: tuple[int | Val, ...]
    shift: int  # elements between the allocation's start and logical zero (the halo)
    block: Index  # elements of the dimensions whose strides are constants: of all, the allocation's
    version: int = 0  # changes whenever the contents may have changed
    plans: dict[int, AccessPlan] = field(default_factory=dict)  # by identity of the indices
    places: dict[Index, Place] = field(default_factory=dict)
    loads: Loads = field(default_factory=dict)  # with symbolic strides, by address instead of offset


RegisterKey: TypeAlias = tuple[int, int, int]
"""First cell, distance of the cells of consecutive lanes, number of lanes (a scalar: 0 and 1)."""
Keys: TypeAlias = frozenset[tuple[str, RegisterKey]]
"""Registers, each by its buffer's name and its key."""


class RegistersReusedError(Exception):
    """A loop writes registers in some of its turns only: later ones would lose what is in them.

    ``lanes``: lanes that the loop leaves out are written later in it, they are to be kept after all.
    ``keys``: registers, by buffer, that not every turn writes and that are to be carried through the loops.
    """

    def __init__(self, lanes: bool, keys: Keys) -> None:
        super().__init__()
        self.lanes = lanes
        self.keys = keys


@dataclass(slots=True)
class RegisterBuffer:
    """A buffer whose elements are SSA values: scalars, or vectors of equally spaced elements.

    Elements are numbered row by row (cells). The known keys never overlap: writing a key that does takes the
    others apart into scalars, reading one that is not there puts it together. Cells that no write has reached
    yet are ``blank``: the unused lanes of tails; those that only some ways to here wrote are ``partial``.
    """

    buffer: Buffer
    strides: tuple[int, ...]
    depth: int  # of the scope that it lives in: masks from there are the same as long as it lives
    values: dict[RegisterKey, Val] = field(default_factory=dict)
    owners: dict[int, RegisterKey] = field(default_factory=dict)  # the known key that holds a cell
    blank: set[int] = field(default_factory=set)  # cells of known keys that nothing was written to
    partial: set[int] = field(default_factory=set)  # cells that not every way to here has written
    plans: dict[int, tuple[tuple[Index, ...], Plan]] = field(default_factory=dict)
    masks: dict[RegisterKey, tuple[int, str] | None] = field(default_factory=dict)  # of all writes

    def get(self, b: Builder, key: RegisterKey) -> Val | None:
        """The value under a key; ``None`` where nothing was written. Unwritten lanes are undefined."""
        got = self.values.get(key)
        if got is not None:
            return got
        cells = [self._cell(b, c) for c in _cells(key)]
        known = next((c for c in cells if c is not None), None)
        if known is None or key[2] == 1:
            return known
        return b.vector(cells, known.dtype)

    def put(self, b: Builder, key: RegisterKey, v: Val, lanes: Sequence[bool] | None = None) -> None:
        """Write a key; only the cells of the given lanes count as written."""
        if key not in self.values:
            self._claim(b, key)
        self.values[key] = v
        if self.blank or self.partial:
            reached = {c for n, c in enumerate(_cells(key)) if lanes is None or lanes[n]}
            self.blank -= reached
            self.partial -= reached

    def always_under(self, key: RegisterKey, mask: Val | None) -> bool:
        """Whether a key, which is written under ``mask`` now, was never written under another one.

        Then the lanes that the mask leaves out mean nothing, and need not be kept.
        """
        now = (mask.depth, mask.text) if mask is not None and 0 < mask.depth <= self.depth else None
        if self.masks.setdefault(key, now) != now or now is None:
            self.masks[key] = None
            return False
        cells = set(_cells(key))
        return all(other == key or cells.isdisjoint(_cells(other)) for other in self.masks)

    def put_in_part(self, key: RegisterKey) -> None:
        """Take what was written under a key for written on some ways only."""
        self.partial.update(_cells(key))

    def is_partial(self, key: RegisterKey) -> bool:
        """Whether some way to here has not written all cells of a key."""
        return not self.partial.isdisjoint(_cells(key))

    def spares(self, key: RegisterKey, lanes: Sequence[bool]) -> bool:
        """Whether nothing was ever written to the other lanes of a key."""
        return all(
            on or c in self.blank or c not in self.owners for c, on in zip(_cells(key), lanes, strict=True)
        )

    def reset(self, values: dict[RegisterKey, Val], blank: set[int]) -> None:
        """Know exactly these values."""
        if values.keys() != self.values.keys():
            self.owners = {c: key for key in values for c in _cells(key)}
        self.values = values
        self.blank = blank

    def others(self, keys: list[RegisterKey]) -> list[RegisterKey]:
        """What is known besides ``keys``: keys that share no cell with them, cells of those that do."""
        if self.values.keys() <= set(keys):
            return []
        taken = {c for key in keys for c in _cells(key)}
        rest: list[RegisterKey] = []
        for key in self.values:
            cells = _cells(key)
            if taken.isdisjoint(cells):
                rest.append(key)
            else:
                rest += [(c, 0, 1) for c in cells if c not in taken and c not in self.blank]
        return rest

    def _claim(self, b: Builder, key: RegisterKey) -> None:
        """Make all cells of a new key its own: those that were nobody's are blank."""
        cells = _cells(key)
        for old in {self.owners[c] for c in cells if c in self.owners}:
            whole = self.values.pop(old)
            for n, c in enumerate(_cells(old)):
                single = (c, 0, 1)
                self.values[single] = whole if old[2] == 1 else b.lane(whole, n)
                self.owners[c] = single
        for c in cells:
            if c in self.owners:
                del self.values[self.owners[c]]
            else:
                self.blank.add(c)
            self.owners[c] = key

    def _cell(self, b: Builder, cell: int) -> Val | None:
        owner = self.owners.get(cell)
        if owner is None:
            return None
        v = self.values[owner]
        return v if owner[2] == 1 else b.lane(v, _cells(owner).index(cell))


def _cells(key: RegisterKey) -> range | tuple[int, ...]:
    first, distance, lanes = key
    return range(first, first + distance * lanes, distance) if lanes > 1 else (first,)
