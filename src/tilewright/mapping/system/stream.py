"""Instruction streams: what a managed machine executes, loops over moves of tiles and calls of instructions.

    machine("clusters", "5f1c…")
    A = tensor(bf16[500, 300])
    C = tensor(f32[500, 200], output=True)
    with stream("c0"):
        move("c0.load_a", A[0:64, 0:64], at("c0.ra", 0, bf16[64, 64]))
        for k in range(0, 4):
            move("c0.load_a", A[0:64, 64*k + 64:64], at("c0.ra", 8192*((k + 1)%2), bf16[64, 64]))
            call("c0.mxu0", "matmul", dict(m=64, n=64, k=64), A=at("c0.ra", 8192*(k%2), bf16[64, 64]), ...)

``A[low:extent, ...]`` is a box of a tensor in the machine's home memory; its dimensions are those of the tile
in their order, unless ``dims`` says which dimension of the tensor each of the tile's is (-1: a new one of
extent 1). ``at`` is a dense tile at a byte offset of another memory. Streams run side by side; ``post`` and
``wait`` count events between them. A stream issues in order, units and movers execute each in order, and an
item waits for those before it in its stream that touch the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from tilewright.ir import DType, Index, Param, substitute_index


@dataclass(frozen=True, slots=True)
class Region:
    """A dense tile at a byte offset of an on-chip memory."""

    memory: str
    offset: Index
    shape: tuple[int, ...]
    dtype: DType

    @property
    def bytes(self) -> int:
        """Bytes of the tile."""
        return prod(self.shape) * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a tensor in the home memory. ``dims``: the tensor's dimension of each of the tile's, or -1.

    Along each of the tensor's dimensions it takes ``extents`` elements, ``steps`` apart (none: each one).
    """

    tensor: str
    lows: tuple[Index, ...]
    extents: tuple[int, ...]
    dims: tuple[int, ...]
    steps: tuple[int, ...] = ()

    @property
    def spans(self) -> tuple[int, ...]:
        """Elements of the tensor from the first to the last that it takes, along each dimension."""
        return spans(self.extents, self.steps)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tile."""
        return tuple(1 if d < 0 else self.extents[d] for d in self.dims)

    @property
    def in_order(self) -> bool:
        """Whether the tile's dimensions come in the tensor's order."""
        real = [d for d in self.dims if d >= 0 and self.extents[d] > 1]
        return real == sorted(real)


def spans(extents: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
    """Elements from the first to the last of so many that lie ``steps`` apart."""
    return tuple((n - 1) * s + 1 for n, s in zip(extents, steps, strict=True)) if steps else extents


Ref: TypeAlias = Region | Box


@dataclass(frozen=True, slots=True)
class Move:
    """One copy of a tile by a mover."""

    mover: str
    source: Ref
    target: Ref


@dataclass(frozen=True, slots=True)
class Call:
    """One instruction at a unit: its sizes and operands by name."""

    unit: str
    instruction: str
    sizes: tuple[tuple[str, int], ...]
    operands: tuple[tuple[str, Ref], ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``body`` for each value of ``var`` from ``lo`` to below ``hi``."""

    var: str
    lo: Index
    hi: Index
    body: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Post:
    """Adds one to an event."""

    event: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits until an event is above zero, and takes one from it."""

    event: str


Item: TypeAlias = Move | Call | Repeat | Post | Wait


@dataclass(frozen=True, slots=True)
class StreamTensor:
    """A tensor in the home memory: ``output``: a result; ``temp``: neither given nor returned."""

    name: str
    shape: tuple[Index, ...]
    dtype: DType
    output: bool = False
    temp: bool = False
    given: bool = False
    """An output whose elements may be read before they are written: its contents are an argument, too."""


@dataclass(frozen=True, slots=True)
class StreamProgram:
    """Streams by name over tensors, for the machine of this name and fingerprint."""

    machine: str
    fingerprint: str
    tensors: tuple[StreamTensor, ...]
    streams: Mapping[str, tuple[Item, ...]]
    params: tuple[Param, ...] = ()

    @property
    def size(self) -> int:
        """Items of all streams, each counted once however often it runs."""
        return sum(1 for items in self.streams.values() for _ in walk(items))


def walk(items: tuple[Item, ...]) -> Iterator[Item]:
    """All items, those in loops included."""
    for item in items:
        yield item
        if isinstance(item, Repeat):
            yield from walk(item.body)


def substitute_ref(ref: Ref, values: Mapping[str, Index]) -> Ref:
    """A reference with loop variables replaced."""
    if isinstance(ref, Region):
        offset = substitute_index(ref.offset, values)
        return ref if offset is ref.offset else replace(ref, offset=offset)
    return replace(ref, lows=tuple(substitute_index(x, values) for x in ref.lows))


def substitute_item(item: Item, values: Mapping[str, Index]) -> Item:
    """An item with loop variables replaced (names of loops are unique in a stream)."""
    match item:
        case Move():
            return Move(item.mover, substitute_ref(item.source, values), substitute_ref(item.target, values))
        case Call():
            operands = tuple((n, substitute_ref(r, values)) for n, r in item.operands)
            return replace(item, operands=operands)
        case Repeat():
            return Repeat(
                item.var,
                substitute_index(item.lo, values),
                substitute_index(item.hi, values),
                tuple(substitute_item(i, values) for i in item.body),
            )
        case _:
            return item
