"""CPUs: vector registers, caches, and what is known of how their cores fetch, issue and store."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.ir import DType
from tilewright.support import TargetError, digest
from tilewright.target.model import ParallelLevel, TargetBase
from tilewright.target.quantities import LINE_SECONDS, Quantities


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
    ``shared_issue`` are the instructions and the loads that start a cycle while the other hardware thread of
    the core works, where that may be another guest's; ``None`` where nothing is known, or counts.
    ``stream_gain`` says how much faster the second cache level delivers lines one after the other than those
    of several streams in turns. ``past_share`` is the part of the last cache level from which on results are
    best stored past the caches. ``fork_seconds`` is what a parallel loop takes longer than its busiest thread
    would alone: threads that begin and end, and what they get of others' caches. Zen 4, two threads of 16,384
    to 131,072 f32 each: 1.8 to 2.4 microseconds (``tilewright targets --calibrate``).
    ``line_seconds`` is what a line costs more that another core has just written than one of the core's own.
    ``clock_hz`` is the highest clock where known. Those that :class:`Quantities` has are measured: a table
    has what was measured on one machine of its kind, :mod:`~tilewright.target.calibration` what was measured
    on this one. ``moves`` bring operands of instructions to and from scopes
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
    stream_gain: float = 1.0
    past_share: float = 1.0
    shared_issue: tuple[float, float] | None = None
    tiles: int = 0
    fork_seconds: float = 2.0e-6
    line_seconds: float = LINE_SECONDS

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
        if self.line_seconds < 0:
            raise TargetError(f"target {self.name!r}: line_seconds must not be negative")
        if self.page_walk < 0:
            raise TargetError(f"target {self.name!r}: page_walk must not be negative")
        if self.stream_gain <= 0 or self.past_share <= 0:
            raise TargetError(f"target {self.name!r}: stream_gain and past_share must be positive")
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
    def measured(self) -> str:
        """The digest of :attr:`quantities`: equal where decisions are made from equal ones."""
        return self.quantities.digest

    @property
    def quantities(self) -> Quantities:
        """What was measured, here or on another machine of this kind."""
        return Quantities(
            clock_hz=self.clock_hz,
            fma_per_cycle=self.fma_per_cycle,
            bandwidths=tuple(level.bandwidth for level in self.memory),
            page_walk=self.page_walk,
            far_requests=self.far_requests,
            stream_gain=self.stream_gain,
            past_share=self.past_share,
            fork_seconds=self.fork_seconds,
            line_seconds=self.line_seconds,
        )

    def with_quantities(self, found: Quantities) -> CpuTarget:
        """The same machine as measured otherwise. Raises TargetError where the memory levels are others."""
        if len(found.bandwidths) != len(self.memory):
            raise TargetError(f"target {self.name!r}: has {len(self.memory)} memory levels")
        levels = zip(self.memory, found.bandwidths, strict=True)
        return replace(
            self,
            memory=tuple(replace(level, bandwidth=bandwidth) for level, bandwidth in levels),
            clock_hz=found.clock_hz,
            fma_per_cycle=found.fma_per_cycle,
            page_walk=found.page_walk,
            far_requests=found.far_requests,
            stream_gain=found.stream_gain,
            past_share=found.past_share,
            fork_seconds=found.fork_seconds,
            line_seconds=found.line_seconds,
        )

    @property
    def fingerprint(self) -> str:
        """A digest of what this machine is: of everything but the quantities that are measured."""
        return digest(self.with_quantities(Quantities(bandwidths=(1.0,) * len(self.memory))))

    @property
    def llvm_features(self) -> str:
        """The feature string for LLVM: present ones with ``+``, missing ones with ``-``, sorted."""
        present = [f"+{name}" for name in sorted(self.features)]
        return ",".join(present + [f"-{name}" for name in sorted(self.missing_features)])

    def lanes(self, dtype: DType) -> int:
        """Elements of ``dtype`` in a vector of the preferred width."""
        return self.preferred_vector_bits // 8 // dtype.bytes
