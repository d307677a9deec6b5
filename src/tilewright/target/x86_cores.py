"""What is known of single x86 CPU models besides the table of their class: one `Core` each.

A field holds what the measurements below a model ask for; a field left out keeps the value of the table. A
new model is one more entry of ``CORES``. Times are of two threads; "in turns" means versions that alternated
in one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar

from tilewright.target.cpu import CpuTarget
from tilewright.target.instruction import Instruction
from tilewright.target.model import MemoryLevel

MIB: Final = 1024 * 1024
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """A CPU model's own figures; those called as a field of :class:`CpuTarget` replace it.

    ``bandwidths`` are bytes a cycle of L1, L2, L3 and memory, ``rates`` the instructions that start in a
    cycle, by their names. ``last_level_share`` are the bytes of the last cache level that each core brings,
    for a guest that sees all of a level that it shares with others (``None``: sees what it has); ``lent``
    says whether the rest is there while the others rest.
    """

    fma_per_cycle: float | None = None
    bandwidths: tuple[float, ...] | None = None
    rates: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    far_requests: tuple[int, int] | None = None
    page_walk: float | None = None
    shared_issue: tuple[float, float] | None = None
    stream_gain: float | None = None
    past_share: float | None = None
    line_seconds: float | None = None
    last_level_share: int | None = None
    lent: bool = False

    def applied(self, table: CpuTarget) -> CpuTarget:
        """The table with this model's figures; its instructions are those of the table (:meth:`rated`)."""
        bandwidths = self.bandwidths or tuple(level.bandwidth for level in table.memory)
        levels = zip(table.memory, bandwidths, strict=True)
        return replace(
            table,
            memory=tuple(replace(level, bandwidth=bandwidth) for level, bandwidth in levels),
            fma_per_cycle=_known(self.fma_per_cycle, table.fma_per_cycle),
            far_requests=_known(self.far_requests, table.far_requests),
            page_walk=_known(self.page_walk, table.page_walk),
            shared_issue=_known(self.shared_issue, table.shared_issue),
            stream_gain=_known(self.stream_gain, table.stream_gain),
            past_share=_known(self.past_share, table.past_share),
            line_seconds=_known(self.line_seconds, table.line_seconds),
        )

    def rated(self, instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        """The instructions at the rates of this model."""
        return tuple(
            replace(known, per_cycle=self.rates.get(known.name, known.per_cycle)) for known in instructions
        )

    def own_share(self, levels: tuple[MemoryLevel, ...], units: int) -> tuple[MemoryLevel, ...]:
        """The levels with no more of the last cache than ``units`` cores bring to it."""
        share = self.last_level_share
        if share is None:
            return levels
        return tuple(
            replace(level, size=min(level.size, units * share), whole=level.size if self.lent else None)
            if level.name == "l3" and level.size is not None
            else level
            for level in levels
        )


def _known(own: _T | None, table: _T) -> _T:
    return table if own is None else own


ZEN_4: Final = Core(
    fma_per_cycle=1.0,
    bandwidths=(64.0, 32.0, 16.0, 6.0),
    far_requests=(2, 4),
    last_level_share=4 * MIB,
    lent=True,
)
"""Full-width FMAs run over two cycles, on 256-bit pipes.

Requests ahead: those that find no room among the pending ones are dropped. Of reading, 8448x2816 by 4
columns reached 47, 54, 79, 86% with 1 to 4 requests, by one column 76, 84, 86, 93%; 6144x2048, of which the
last level keeps a part, 54, 66, 68, 56% and 81, 77, 72, 66%; 4x1024x65536 68, 80, 90, 96%.

The last level, a guest's 2 of 8 cores that share 32 MiB, with the others at work: lines in random order take
22 ns of 4 and 8 MB, 160 of 16, 195 of 64; counting on the cores' share instead of all, the products
3072x1500x1024 68.7 -> 48.6 ms, 1024x3000x2048 92.4 -> 62.8, results of 13 MB transposed 1.40 -> 0.67.
"""

ZEN_5: Final = Core(
    bandwidths=(128.0, 64.0, 16.0, 6.0),
    rates=MappingProxyType({"vdpbf16ps": 2.0}),
    far_requests=(0, 0),
    stream_gain=2.0,
    past_share=0.5,
)
"""Two products of bf16 start in a cycle (measured: 2.0 times the peak of f32).

Each request ahead costs: 7680x2560 by one column took 0.52, 0.63, 0.97 ms with 0, 1, 2 where the last level
kept the matrix, reading 0.51; 1x4096x4096 0.43, 0.53, 0.69, reading 0.36; from memory they made no
difference.

One stream: 512 KiB a thread, read line after line, 55 bytes a cycle, 2 to 8 rows in turns 28, whatever their
distance, and however many lines of one row come before the next row's (`plan/rows/row_tiling.py`).

Results past the caches from half of the last level on, of 32 MiB that others use too, in turns: depthwise 3x3
16x32 at 112 pixels (26 MB) 0.63 to 0.74 of the time; of the peak ResNet-50's 1x1 64-64 at 56 pixels, 28
images (22 MB) 0.83 -> 0.92, 256-1024 at 14 0.92 -> 0.95, 3x3 64-64 0.95 -> 0.97; models with 16 images 1.00
to 1.01. From 8 MiB on: 0.48 of the time of 13 MB transposed, but ResNet-18 with 16 images 1.06.
"""

SAPPHIRE_RAPIDS: Final = Core(
    rates=MappingProxyType({"vdpbf16ps": 0.5}),
    shared_issue=(2.4, 1.75),
)
"""As measured on Emerald Rapids, which has the same cores."""

EMERALD_RAPIDS: Final = Core(
    bandwidths=(128.0, 45.0, 10.0, 6.0),
    rates=MappingProxyType({"vdpbf16ps": 0.5}),
    far_requests=(0, 0),
    page_walk=50.0,
    shared_issue=(2.4, 1.75),
    last_level_share=5 * MIB,
)
"""One product of bf16 starts in two cycles (measured: 0.49 times the peak of f32).

Requests ahead: 1 to 4 columns of 25 to 67 MB 0 to 11% slower with 1 than with 0, 2x4096x4096 5%; of 1 to 2 GB
the same.

The last level, 2 cores, 300 MiB reported: lines in random order take 42 ns of 4 MB, 77 of 8, 130 of 16 to
512 MB. Counting on all of it, 4096x4096 transposed took 12.4 ms, on the cores' share 4.3; 65536x1024x4 36.7
and 9.4; the product 4608x3000x1536 377 and 179.

Pages, where the host maps the guest's memory by 4 KiB, whatever the guest asks for: lines of 16384 pages,
1 MB, in random order 26.7 ns each, side by side 7.6.

Shared issue: a virtual CPU is a hardware thread, the other one often another guest's. Multiply-adds of
registers alone ran at 160 to 175 GFLOP/s all the time; tiles in the first level, 64 steps, at 175 or, most of
the time, at 128 (14x2 and 7x2), 136 (7x3), 143 (9x3), 146 (6x4), 148 (5x5): all of them 2.4 instructions a
cycle. With all broadcasts as operands of multiply-adds the limit was 1.76 loads a cycle (14x2 137, 28x1 138).

Stores wait for lines one after the other, where these lie apart: 1000x1000 transposed in squares, by hand,
409 us; with the result's lines asked for, to be written, 64 elements ahead 214; copying takes 143.

Lines asked for with gaps between: strided 1x1 convolutions, 28 images, of which each line is asked for a row
ahead (`plan/contraction/prefetch.py`), in turns: into the second instead of the first level 256-128 at 56
pixels 8.89 -> 8.16 ms, 512-1024 at 28 29.2 -> 27.8, 256-512 at 56 30.6 -> 30.0. On Zen 4 the second level
gains nothing.

The next block of channels: while the core is shared, with half of the scheduler's entries, multiply-adds
that wait for the second cache level fill it in about 20 cycles, at the start of each block. 1x1 layers of
ResNet-50, 28 images, the next block asked for into the first level, against the next row into the second, in
turns: 0.93 to 0.97 of the time with 14 rows, 0.89 to 0.95 with 7; both requests 0.98 to 1.04, none 0.95 to
1.12.

Rows from main memory that share columns are summed in chunks of these (`plan/rows/chunks.py`), ms:
512x4x500000 48.4 -> 39.4, 6144x4x2048 1.40 -> 1.33, 8448x4x2816 2.99 -> 2.61, 7680x4x2560 2.03 -> 1.93; on
Zen 4 requests for the rows do as well.
"""

GRANITE_RAPIDS: Final = Core(
    bandwidths=(128.0, 47.0, 8.0, 4.0),
    rates=MappingProxyType({"vdpbf16ps": 0.5}),
    page_walk=50.0,
    line_seconds=5.0e-9,
    last_level_share=5 * MIB,
)
"""One product of bf16 starts in two cycles (measured: 0.48 times the peak of f32).

Reading, both cores, 3.5 GHz: 23 bytes a cycle and core of 4 MB, 8 of 8 to 64 MB, 4 from 256 MB on. Loads and
multiply-adds start at their full rates: the core is not shared; but the clock falls to 2.9 GHz where most
multiply-adds have a load beside them, so tiles in the first level reach 185 GFLOP/s, multiply-adds of
registers 195 over long times and 223 in the first moments.

The last level, 2 cores, 480 MiB reported: lines in random order take 55 ns of 4 MB, 64 of 8, 162 of 16, 180
of 256. Products with all of it, 32, 16 and 5 MiB a core, in turns: 512x1500x2560 21.8, 22.5, 16.3, 12.5 ms,
1024x6000x2048 134, 124, 126, 82; 2 MiB 14.1 and 79. With the walks of pages beside that, 512x3000x1536
25.5 -> 14.8; 20 cycles or 50 are the same.

The next block of channels, as on Emerald Rapids: ResNet-50's 1x1 layers, 28 images, 0.91 to 0.99 of the time.
Of what else that table has nothing helped: as many broadcasts as operands 1.06 to 1.09 of the time, rows in
chunks of the columns 1.00 to 1.18, none asked for ahead 1.00 to 1.13 (7680x4x2560, 8448x4x2816), lines with
gaps into the second level 1.0 to 1.05, lines to be stored asked for 0.99 to 1.00.

Lines that the other core has just written: 4.6 to 6.2 ns more than own ones (2.2 once), over ten minutes
(`benchmarks/joins.py`).
"""

OF_A_CLIENT: Final = Core(fma_per_cycle=1.0)
"""Client cores with AVX-512: one full-width pipe."""

CORES: Final = MappingProxyType(
    {
        "icelake-client": OF_A_CLIENT,
        "tigerlake": OF_A_CLIENT,
        "rocketlake": OF_A_CLIENT,
        "sapphirerapids": SAPPHIRE_RAPIDS,
        "emeraldrapids": EMERALD_RAPIDS,
        "graniterapids": GRANITE_RAPIDS,
        "graniterapids-d": GRANITE_RAPIDS,
        "znver4": ZEN_4,
        "znver5": ZEN_5,
    }
)
"""The models by LLVM's names."""


def core(name: str) -> Core:
    """What is known of the model with this name of LLVM's; nothing of one that is not listed."""
    return CORES.get(name, Core())
