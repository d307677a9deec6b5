"""What default schedules ask about caches: sizes, what buffers take of them, and what falls into one set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Final

from tilewright.cost.shares import KEPT_SHARE
from tilewright.ir import Buffer
from tilewright.support import InternalError
from tilewright.target import GpuTarget, Target

#: Bytes of the last cache level of a machine that does not say.
UNKNOWN: Final = 1 << 23
#: Cycles a second of the clock of a machine that does not say.
CLOCK_HZ: Final = 3.0e9
#: Bytes after which addresses fall into the same set of the first cache level: a page, since caches of this
#: level are looked up while the page is; so the lines of a set follow from the size.
SET_SPAN: Final = 4096
#: Bytes of a page, as far as one cannot rely on larger ones.
PAGE: Final = 4096
#: Lines that a set of the first two levels holds at least.
WAYS: Final = 8
#: Cycles of a page's walk from which requests ahead pay that bring its address, too. Measured were 7 to 11
#: (Zen), where they gain nothing, and 50 (Emerald and Granite Rapids): the next block of channels 0.89 to
#: 0.97 of the time, lines of a transposition's result 0.52 and 0.99 to 1.00. 20 and 50 decide alike.
SLOW_WALK: Final = 20.0
#: How much faster one stream must be than several in turns. Measured were 1.0 (Zen 4) and 2.0 (Zen 5).
STREAM_GAIN: Final = 1.5
#: What may be found in the last cache level when it is read again, in parts of what the cores bring to it:
#: while others who use it need little, there is more. Zen 4, 8 MB of 32, products of one column while the
#: others work, asked for ahead in place of not: 3072x1024 (13 MB) 0.080 -> 0.120 ms, 4608x1536 (28 MB) 0.66
#: -> 0.36.
PERHAPS_KEPT: Final = 2


@dataclass(frozen=True, slots=True)
class Machine:
    """What plans are made for: a target, and the threads of a run (on a device one: the host's).

    What a plan asks of CPUs or of GPUs it asks of :attr:`target` or of :attr:`gpu`.
    """

    on: Target | GpuTarget
    threads: int

    @property
    def target(self) -> Target:
        """The CPU."""
        if isinstance(self.on, GpuTarget):
            raise InternalError(f"a plan for CPUs was asked for {self.on.name}")
        return self.on

    @property
    def gpu(self) -> GpuTarget:
        """The device."""
        if not isinstance(self.on, GpuTarget):
            raise InternalError(f"a plan for devices was asked for {self.on.name}")
        return self.on

    def with_threads(self, threads: int) -> Machine:
        """The same machine for a run, or a part of one, by so many threads."""
        return self if threads == self.threads else replace(self, threads=threads)

    @property
    def clock_hz(self) -> float:
        """Cycles a second of the CPU."""
        return self.target.clock_hz or CLOCK_HZ

    @property
    def fork_cycles(self) -> float:
        """Cycles that one parallel loop costs besides its work; 0 with one thread."""
        return self.target.fork_seconds * self.clock_hz if self.threads > 1 else 0.0


def first_cache(target: Target) -> int:
    """Bytes of the cache level next to the registers; 0 where a machine does not say."""
    return target.level("l1").size or 0


def second_cache(target: Target) -> int:
    """Bytes of the second cache level; 0 where a machine does not say."""
    return target.level("l2").size or 0


def line_bytes(target: Target) -> int:
    """Bytes of a line of the second cache level: what cores take from one another."""
    return target.level("l2").line


def last_cache(target: Target) -> int:
    """Bytes of the last cache level that can be counted on."""
    return max((level.size for level in target.memory if level.size is not None), default=UNKNOWN)


def whole_cache(target: Target) -> int:
    """Bytes of the last cache level while others who share it rest."""
    return max(last_cache(target), *(level.whole or 0 for level in target.memory))


def perhaps_kept(target: Target) -> int:
    """Bytes that the last cache level may keep until they are read again."""
    return min(PERHAPS_KEPT * last_cache(target), whole_cache(target))


def exceeds_caches(b: Buffer, target: Target) -> bool:
    """Whether a buffer is larger than the last cache level."""
    return buffer_bytes(b) > last_cache(target)


def goes_past_caches(nbytes: int, target: Target) -> bool:
    """Whether a result of so many bytes is best stored past the caches."""
    return nbytes > target.past_share * last_cache(target)


def comes_from_memory(b: Buffer, target: Target) -> bool:
    """Whether a buffer is so large that what is read of it was certainly not left in a cache."""
    return buffer_bytes(b) > perhaps_kept(target)


def buffer_bytes(b: Buffer) -> int:
    """Bytes of a buffer; 0 where its size is known only when it runs."""
    shape = b.physical_shape
    return prod(e.as_int() for e in shape) * b.dtype.bytes if all(e.is_const for e in shape) else 0


def first_ways(target: Target) -> int:
    """Lines that a set of the first cache level holds: 8 of 32 KiB, 12 of 48 KiB."""
    return max(1, (target.memory[0].size or 0) // SET_SPAN)


def rows_collide(rows: int, apart: int, span: int = SET_SPAN, ways: int = WAYS) -> bool:
    """Whether so many rows, so many bytes apart, need more of a set of a cache than the ``ways`` it has.

    Addresses ``span`` bytes apart fall into the same set, by default those of the first level.
    """
    return rows > ways * (span // gcd(span, apart))


def page_cycles(apart: int, target: Target) -> float:
    """Cycles that each of many lines so many bytes apart waits for the address of its page."""
    return target.page_walk * min(1.0, apart / PAGE)


def walks_slowly(target: Target) -> bool:
    """Whether lines in pages of their own are best asked for before they are read, or filled by stores."""
    return target.page_walk >= SLOW_WALK


def shares_core(target: Target) -> bool:
    """Whether another hardware thread works on the same core: in its first cache level, too."""
    return target.shared_issue is not None


def fetches_ahead(target: Target) -> bool:
    """Whether the core brings what follows in memory as well by itself as instructions that ask for it."""
    return not any(target.far_requests)


def prefers_one_stream(target: Target) -> bool:
    """Whether the second cache level is best read one row after the other."""
    return target.stream_gain >= STREAM_GAIN


def bandwidth(machine: Machine, nbytes: float, share: float = KEPT_SHARE) -> float:
    """Bytes a cycle from the innermost level, from the second on, that keeps so many bytes of each thread.

    They may take the part ``share`` of a level.
    """
    for level in machine.target.memory[1:]:
        if level.size is None or nbytes * min(machine.threads, level.shared_by) <= share * level.size:
            return level.bandwidth
    return machine.target.memory[-1].bandwidth
