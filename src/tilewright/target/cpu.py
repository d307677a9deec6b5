"""CPUs: vector registers, caches, and what is known of how their cores fetch, issue and store."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import DType
from tilewright.support import TargetError
from tilewright.target.model import ParallelLevel, TargetBase


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTarget(TargetBase):
    """A CPU, whose code LLVM makes.

    ``vector_bits`` is the widest vector register, ``preferred_vector_bits`` the width worth using by default.
    ``fma_per_cycle`` counts fused multiply-adds of full vectors that start in one cycle, ``fma_latency`` the
    cycles until a result can be used. ``features`` are the CPU features in LLVM's spelling; those of the
    tables that a machine lacks are in ``missing_features``. ``memory`` goes from the level next to the
    registers outwards. ``functions`` are functions of the IR's ``CALLS`` and ``MACHINE_CALLS`` that are
    instructions here, unlike elsewhere.
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
    best stored past the caches. ``fork_seconds`` is what a parallel loop takes longer than its busiest thread
    would alone: threads that begin and end, and what they get of others' caches. Zen 4, two threads of 16,384
    to 131,072 f32 each: 1.8 to 2.4 microseconds (``benchmarks/parallel_cost.py``).
    ``clock_hz`` is the highest clock where known. ``moves`` bring operands of instructions to and from scopes
    other than memory; ``tiles`` are the registers of scope ``tile``.
    """

    vector_registers: int
    vector_bits: int
    preferred_vector_bits: int
    fma_per_cycle: float
    fma_latency: int
    llvm_triple: str
    llvm_cpu: str
    missing_features: frozenset[str] = frozenset()
    far_requests: tuple[int, int] = (1, 1)
    page_walk: float = 7
    store_requests: bool = False
    far_chunks: bool = False
    one_stream: bool = False
    past_share: float = 1.0
    gaps_level: int = 1
    next_blocks: bool = False
    shared_issue: tuple[float, float] | None = None
    tiles: int = 0
    fork_seconds: float = 2.0e-6

    def __post_init__(self) -> None:
        # not super(): dataclasses with slots are made anew, and it would not find the class
        TargetBase.__post_init__(self)
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
        if self.fork_seconds < 0:
            raise TargetError(f"target {self.name!r}: fork_seconds must not be negative")
        if self.page_walk < 0:
            raise TargetError(f"target {self.name!r}: page_walk must not be negative")
        if self.gaps_level not in (1, 2, 3):
            raise TargetError(f"target {self.name!r}: gaps_level must be 1, 2 or 3, got {self.gaps_level}")
        if self.shared_issue is not None and min(self.shared_issue) <= 0:
            raise TargetError(f"target {self.name!r}: shared_issue must be positive")
        sizes = [level.size for level in self.memory]
        finite = [size for size in sizes if size is not None]
        if finite != sorted(finite) or None in sizes[:-1]:
            raise TargetError(f"target {self.name!r}: memory levels must grow outwards")
        if self.features & self.missing_features:
            raise TargetError(f"target {self.name!r}: a feature is both present and missing")

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

    def lanes(self, dtype: DType) -> int:
        """Elements of ``dtype`` in a vector of the preferred width."""
        return self.preferred_vector_bits // 8 // dtype.bytes
