"""What names mean to the interpreter at one point of a function, and where the elements of a buffer lie.

The interpreter keeps the state of one thread of control in a list: slot 0 holds its task, others the values
of loop variables and iterators, and per buffer its storage (a list of values, ``None`` where uninitialised)
and its :class:`~tilewright.ir.interp_memory.Shadow`. A name is resolved to its slot once, when a closure is
built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilewright.ir.buffer import Buffer
from tilewright.ir.interp_memory import ExecutionError, OutOfBoundsError

Env: TypeAlias = list[Any]
IntFn: TypeAlias = Callable[[Env], int]
ValueFn: TypeAlias = Callable[[Env], Any]

TASK = 0  # the slot of the running task
EPOCH = 1  # the slot of a counter: which evaluation of a store's values the kept parts belong to


class Slots:
    """Hands out positions of the environment."""

    def __init__(self) -> None:
        self.count = 2
        self.tracked = 0  # accesses that the race detector watches, so far

    def new(self) -> int:
        """A position nobody else has."""
        self.count += 1
        return self.count - 1


@dataclass(slots=True)
class Place:
    """A buffer in scope: where its storage is, its box, and which accesses must be recorded.

    ``level`` counts the forks around its storage: an access under more of them may race with another.
    """

    buffer: Buffer
    data: int
    shadow: int
    writable: bool
    level: int
    logical: tuple[int, ...]
    box: tuple[tuple[int, int], ...]  # physical [lo, hi), halo included
    strides: tuple[int, ...]
    size: int
    once: bool = False
    layout: tuple[IntFn, ...] = ()
    dim_slots: tuple[int, ...] = ()
    beside: tuple[int, ...] | None = ()  # of variables besides its dimensions; None where data decide, too
    shadowed: bool = False
    private: bool = False
    allocated: bool = False

    @property
    def mapped(self) -> bool:
        """Whether an index map says where elements lie; that of a single element may have no dimensions."""
        return bool(self.layout or self.dim_slots)


@dataclass(slots=True)
class Scope:
    """What names mean at one point of the function."""

    slots: Slots
    params: Mapping[str, int]
    vars: dict[str, int] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    level: int = 0
    shared: frozenset[int] = frozenset()
    kept: dict[int, ValueFn] | None = None  # closures of parts that the expression being built shares
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)  # [lo, hi) of loops with constant bounds
    updated: tuple[str, str] | None = None  # the buffer that a block updates atomically, and the operation

    def inner(self, **changes: Any) -> Scope:
        """A copy whose tables can grow on their own."""
        out = Scope(self.slots, self.params, dict(self.vars), dict(self.places), self.level)
        out.ranges = dict(self.ranges)
        out.updated = self.updated
        for key, value in changes.items():
            setattr(out, key, value)
        return out

    def place(self, name: str) -> Place:
        """The buffer called ``name``; ExecutionError where none is in scope."""
        try:
            return self.places[name]
        except KeyError:
            raise ExecutionError(f"buffer {name} is not in scope") from None


def flat_fn(place: Place) -> Callable[[Env, tuple[int, ...]], int]:
    """The flat position of an element given by its logical indices; OutOfBoundsError outside of the box."""
    box, strides, logical = place.box, place.strides, place.logical
    layout, dim_slots = place.layout, place.dim_slots
    base = -sum(lo * t for (lo, _), t in zip(box, strides, strict=True))
    mapped, halo = place.mapped, place.buffer.halo is not None

    def physical(e: Env, indices: tuple[int, ...]) -> tuple[int, ...]:
        # the halo belongs to the physical box: only there may a logical index leave its range
        if not halo and not all(0 <= i < n for i, n in zip(indices, logical, strict=True)):
            raise _outside(place, indices, "outside of its shape")
        for s, i in zip(dim_slots, indices, strict=True):
            e[s] = i
        return tuple(f(e) for f in layout)

    def run(e: Env, indices: tuple[int, ...]) -> int:
        at = physical(e, indices) if mapped else indices
        total = base
        for i, (lo, hi), t in zip(at, box, strides, strict=True):
            if not lo <= i < hi:
                raise _outside(place, indices, "outside of its storage", at)
            total += i * t
        return total

    beside = place.beside
    if not mapped or beside is None:
        return run
    known: dict[tuple[int, ...], int] = {}

    def remembered(e: Env, indices: tuple[int, ...]) -> int:
        key = (*indices, *[e[s] for s in beside]) if beside else indices
        at = known.get(key)
        if at is None:
            at = known[key] = run(e, indices)
        return at

    return remembered


def _outside(
    place: Place, indices: tuple[int, ...], what: str, at: tuple[int, ...] | None = None
) -> OutOfBoundsError:
    shape = "[" + ", ".join(map(str, place.logical)) + "]"
    text = f"access to {place.buffer.name}{list(indices)} {what}: its shape is {shape}"
    if place.buffer.halo is not None:
        text += f" with halo {place.buffer.halo}"
    if at is not None and place.mapped:
        text += f", its physical indices are {list(at)} in a box of {[hi - lo for lo, hi in place.box]}"
    return OutOfBoundsError(text)
