"""How the emitter sees buffers: memory with strides, or registers addressed by constants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.codegen.llvm.builder import Val
from tilewright.ir import Buffer, Index


@dataclass(slots=True)
class MemoryBuffer:
    """A buffer behind a pointer. ``strides`` are in elements; symbolic ones are values."""

    buffer: Buffer  # its layout over values: loop variables are already replaced
    pointer: Val
    strides: tuple[int | Val, ...]
    shift: int  # elements between the allocation's start and logical zero (the halo)
    version: int = 0
    linear: dict[tuple[Index, ...], tuple[Index, tuple[tuple[Index, Val], ...]]] = field(default_factory=dict)


RegisterKey: TypeAlias = tuple[tuple[int, ...], int, int]
"""First element, the dimension that lanes run along (-1 for a scalar), number of lanes."""


@dataclass(slots=True)
class RegisterBuffer:
    """A buffer whose elements are SSA values, scalars or vectors along one dimension."""

    buffer: Buffer
    values: dict[RegisterKey, Val] = field(default_factory=dict)
    physical: dict[tuple[Index, ...], tuple[Index, ...]] = field(default_factory=dict)
