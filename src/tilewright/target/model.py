"""What a machine is to the compiler: compute units, memory levels, parallel levels and instructions.

A target is data: :class:`TargetBase` holds what all have, ``cpu.py`` and ``gpu.py`` what CPUs and GPUs add.
Latencies are in clock cycles, sizes in bytes, bandwidths in bytes a cycle; the clock itself is known only for
some machines, so costs are counted in cycles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from tilewright.support import TargetError, digest, known_names
from tilewright.target.instruction import Instruction

Operations: TypeAlias = Mapping[str, Instruction]
"""Instructions by their names: what ``Exec`` means."""

CACHE_LINE: Final = 64
"""Bytes of a cache line of every table; detection overrides it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """One level of storage between the registers and main memory.

    ``size`` is in bytes (``None``: no limit that matters), ``line`` the unit of transfer in bytes,
    ``latency`` cycles from load to use, ``bandwidth`` bytes a cycle for one compute unit, ``shared_by`` the
    compute units that share one instance. ``whole`` are the bytes of the level where others use it, too, and
    ``size`` is what can be counted on (``None``: no others do).
    """

    name: str
    size: int | None
    line: int
    latency: float
    bandwidth: float
    shared_by: int = 1
    whole: int | None = None
    scope: str = ""

    def __post_init__(self) -> None:
        if self.size is not None and self.size <= 0:
            raise TargetError(f"memory level {self.name!r}: size must be positive, got {self.size}")
        if self.line <= 0 or self.line & (self.line - 1):
            raise TargetError(f"memory level {self.name!r}: line must be a power of two, got {self.line}")
        if self.latency <= 0 or self.bandwidth <= 0:
            raise TargetError(f"memory level {self.name!r}: latency and bandwidth must be positive")
        if self.shared_by < 1:
            raise TargetError(f"memory level {self.name!r}: shared_by must be at least 1")
        if self.whole is not None and (self.size is None or self.whole < self.size):
            raise TargetError(f"memory level {self.name!r}: whole must be at least its size, {self.size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelLevel:
    """A way of doing ``count`` things at once; ``kind`` is the loop kind that uses it, ``axis`` its name."""

    kind: Literal["parallel", "vector", "thread"]
    count: int
    axis: str = ""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise TargetError(f"parallel level {self.kind!r}: count must be at least 1, got {self.count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetBase(ABC):
    """What all machines have.

    ``arch`` names the instruction set, ``units`` counts the cores, or streaming multiprocessors. ``memory``
    goes from the level next to the registers outwards. ``functions`` are functions of the IR's ``CALLS``
    and ``MACHINE_CALLS`` that are instructions, or of the language, here. ``clock_hz`` is the highest clock
    where known. ``features`` are what ``instructions`` may need, ``moves`` bring their operands to and from
    scopes other than memory.
    """

    name: str
    arch: str
    units: int
    memory: tuple[MemoryLevel, ...]
    instructions: tuple[Instruction, ...] = ()
    moves: tuple[Instruction, ...] = ()
    features: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    clock_hz: float | None = None

    def __post_init__(self) -> None:
        if self.units < 1:
            raise TargetError(f"target {self.name!r}: units must be at least 1, got {self.units}")
        if not self.memory:
            raise TargetError(f"target {self.name!r}: needs at least one memory level")
        for kind, names in (
            ("memory level", [level.name for level in self.memory]),
            ("instruction", [known.name for known in self.instructions] + [move.name for move in self.moves]),
        ):
            if len(set(names)) != len(names):
                raise TargetError(f"target {self.name!r}: two of its {kind}s have the same name")
        needs = {known.name: known.features for known in self.instructions}
        needs |= {move.name: move.features for move in self.moves}
        for name, features in needs.items():
            if not features <= self.features:
                lacking = ", ".join(sorted(features - self.features))
                raise TargetError(f"target {self.name!r}: instruction {name!r} needs {lacking}")

    @property
    @abstractmethod
    def parallel(self) -> tuple[ParallelLevel, ...]:
        """The ways of doing things at once, outermost first."""

    @property
    def measured(self) -> str:
        """The digest of what was measured of the machine; empty where nothing is."""
        return ""

    @property
    def operations(self) -> Operations:
        """Instructions and moves by their names."""
        return MappingProxyType({row.name: row for row in (*self.instructions, *self.moves)})

    @property
    def contractions(self) -> tuple[Instruction, ...]:
        """The instructions that add products of two operands to their result."""
        return tuple(row for row in self.instructions if row.is_contraction)

    @property
    def fingerprint(self) -> str:
        """A digest of everything that decides which code is right and fast here."""
        return digest(self)

    def level(self, name: str) -> MemoryLevel:
        """The memory level called ``name``; raises TargetError where there is none."""
        for level in self.memory:
            if level.name == name:
                return level
        known = [level.name for level in self.memory]
        raise TargetError(
            f"target {self.name!r} has no memory level {name!r}",
            hint=known_names(name, known, "its levels"),
        )

    def instruction(self, name: str) -> Instruction:
        """The instruction called ``name``; raises TargetError where there is none."""
        for instruction in self.instructions:
            if instruction.name == name:
                return instruction
        known = [instruction.name for instruction in self.instructions]
        raise TargetError(
            f"target {self.name!r} has no instruction {name!r}",
            hint=known_names(name, known, "its instructions"),
        )
