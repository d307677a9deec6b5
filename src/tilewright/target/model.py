"""What a machine is to the compiler: compute units, memory levels, parallel levels and instructions.

A :class:`Target` is data. Latencies are in clock cycles, sizes in bytes, bandwidths in bytes a cycle; the
clock itself is known only for some machines, so costs are counted in cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from tilewright.ir import DType
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
class Target:
    """A machine to compile for.

    ``vector_bits`` is the widest vector register, ``preferred_vector_bits`` the width worth using by default.
    ``fma_per_cycle`` counts fused multiply-adds of full vectors that start in one cycle, ``fma_latency`` the
    cycles until a result can be used. ``masked`` says whether loads and stores of parts of a vector are
    single instructions. ``features`` are the CPU features in LLVM's spelling; those of the tables that a
    machine lacks are in ``missing_features``. ``memory`` goes from the level next to the registers outwards.
    ``functions`` are functions of the IR's ``CALLS`` and ``MACHINE_CALLS`` that are instructions here,
    unlike elsewhere.
    ``far_requests`` says how often instructions best ask ahead for each line of an operand in main memory:
    one of up to twice the caches, and a larger one; 0 where the core fetches ahead as well by itself.
    ``page_walk`` counts the cycles that a line costs for its address alone where each one read lies in a page
    of its own, and those are many.
    ``gaps_level`` is the cache level into which lines are best asked for that do not lie side by side.
    ``next_blocks`` says whether rows that lie in blocks along a reduction are best asked for a block ahead,
    into the first cache level, instead of a row ahead.
    ``shared_issue`` are the instructions and the loads that start a cycle while the other hardware thread of
    the core works, where that may be another guest's; ``None`` where nothing is known, or counts.
    ``store_requests`` says whether lines that stores fill, apart from one another, are best asked for before.
    ``far_chunks`` says whether rows from main memory that share an operand are best summed in chunks of it.
    ``one_stream`` says whether the second cache level delivers lines one after the other faster than those of
    several streams in turns. ``past_share`` is the part of the last cache level from which on results are
    best stored past the caches.
    ``clock_hz`` is the highest clock where known. ``moves`` bring operands of instructions to and from scopes
    other than memory; ``tiles`` are the registers of scope ``tile``.
    """

    name: str
    arch: Literal["x86_64", "aarch64"]
    units: int
    vector_registers: int
    vector_bits: int
    preferred_vector_bits: int
    fma_per_cycle: float
    fma_latency: int
    masked: bool
    memory: tuple[MemoryLevel, ...]
    instructions: tuple[Instruction, ...]
    llvm_triple: str
    llvm_cpu: str
    features: frozenset[str]
    missing_features: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    far_requests: tuple[int, int] = (1, 1)
    page_walk: float = 7
    store_requests: bool = False
    far_chunks: bool = False
    one_stream: bool = False
    past_share: float = 1.0
    gaps_level: int = 1
    next_blocks: bool = False
    shared_issue: tuple[float, float] | None = None
    clock_hz: float | None = None
    moves: tuple[Instruction, ...] = ()
    tiles: int = 0

    def __post_init__(self) -> None:
        if self.units < 1:
            raise TargetError(f"target {self.name!r}: units must be at least 1, got {self.units}")
        for field, bits in (
            ("vector_bits", self.vector_bits),
            ("preferred_vector_bits", self.preferred_vector_bits),
        ):
            if bits < 64 or bits & (bits - 1):
                raise TargetError(f"target {self.name!r}: {field} must be a power of two from 64, got {bits}")
        if self.preferred_vector_bits > self.vector_bits:
            raise TargetError(
                f"target {self.name!r}: preferred_vector_bits ({self.preferred_vector_bits}) exceed "
                f"vector_bits ({self.vector_bits})"
            )
        if self.vector_registers < 8 or self.fma_per_cycle <= 0 or self.fma_latency < 1:
            raise TargetError(f"target {self.name!r}: needs 8 vector registers, and an FMA rate and latency")
        if min(self.far_requests) < 0:
            raise TargetError(f"target {self.name!r}: far_requests must not be negative")
        if self.page_walk < 0:
            raise TargetError(f"target {self.name!r}: page_walk must not be negative")
        if self.gaps_level not in (1, 2, 3):
            raise TargetError(f"target {self.name!r}: gaps_level must be 1, 2 or 3, got {self.gaps_level}")
        if self.shared_issue is not None and min(self.shared_issue) <= 0:
            raise TargetError(f"target {self.name!r}: shared_issue must be positive")
        if not self.memory:
            raise TargetError(f"target {self.name!r}: needs at least one memory level")
        for kind, names in (
            ("memory level", [level.name for level in self.memory]),
            ("instruction", [known.name for known in self.instructions] + [move.name for move in self.moves]),
        ):
            if len(set(names)) != len(names):
                raise TargetError(f"target {self.name!r}: two of its {kind}s have the same name")
        sizes = [level.size for level in self.memory]
        finite = [size for size in sizes if size is not None]
        if finite != sorted(finite) or None in sizes[:-1]:
            raise TargetError(f"target {self.name!r}: memory levels must grow outwards")
        needs = {known.name: known.features for known in self.instructions}
        needs |= {move.name: move.features for move in self.moves}
        for name, features in needs.items():
            if not features <= self.features:
                lacking = ", ".join(sorted(features - self.features))
                raise TargetError(f"target {self.name!r}: instruction {name!r} needs {lacking}")
        if self.features & self.missing_features:
            raise TargetError(f"target {self.name!r}: a feature is both present and missing")

    @property
    def operations(self) -> Operations:
        """Instructions and moves by their names."""
        return MappingProxyType({row.name: row for row in (*self.instructions, *self.moves)})

    @property
    def contractions(self) -> tuple[Instruction, ...]:
        """The instructions that add products of two operands to their result."""
        return tuple(row for row in self.instructions if row.is_contraction)

    @property
    def parallel(self) -> tuple[ParallelLevel, ...]:
        """The ways of doing things at once, outermost first."""
        return (
            ParallelLevel(kind="parallel", count=self.units),
            ParallelLevel(kind="vector", count=self.vector_bits // 8),
        )

    @property
    def llvm_features(self) -> str:
        """The feature string for LLVM: present ones with ``+``, missing ones with ``-``, sorted."""
        present = [f"+{name}" for name in sorted(self.features)]
        return ",".join(present + [f"-{name}" for name in sorted(self.missing_features)])

    @property
    def fingerprint(self) -> str:
        """A digest of everything that decides which code is right and fast here."""
        return digest(self)

    def lanes(self, dtype: DType) -> int:
        """Elements of ``dtype`` in a vector of the preferred width."""
        return self.preferred_vector_bits // 8 // dtype.bytes

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
