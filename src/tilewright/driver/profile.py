"""What a profile of a compiled model holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tilewright.driver.limits import Limits
from tilewright.support import shortened

_WIDTH: Final = 120
"""Columns of a table, at most."""


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """The time of one kernel call: median and minimum over the repeats, in milliseconds."""

    index: int
    kernel: str
    nodes: tuple[str, ...]
    operators: str
    milliseconds: float
    fastest: float
    flops: int
    nbytes: int
    algorithm: str = ""
    limit: float | None = None
    """Milliseconds that the machine needs at least for the operations and bytes, where limits are known."""

    @property
    def gflops(self) -> float:
        """Billions of floating-point operations a second, at the median."""
        return self.flops / (self.milliseconds * 1e6) if self.milliseconds else 0.0

    @property
    def bandwidth(self) -> float:
        """Billions of bytes of arguments a second, at the median."""
        return self.nbytes / (self.milliseconds * 1e6) if self.milliseconds else 0.0

    @property
    def of_limit(self) -> float | None:
        """The part of the limit reached, at the median; above 1 where an algorithm saves operations."""
        if self.limit is None:
            return None
        return self.limit / self.milliseconds if self.milliseconds else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """The kernels of a run in order, and the median time of a whole run in milliseconds."""

    rows: tuple[KernelProfile, ...]
    total: float
    repeats: int
    limits: Limits | None = None

    @property
    def of_limit(self) -> float | None:
        """The part of the limit that all kernels together reach."""
        limits = [row.limit for row in self.rows]
        every = sum(row.milliseconds for row in self.rows)
        if None in limits or not every:
            return None
        return sum(limit for limit in limits if limit is not None) / every

    def share(self, row: KernelProfile) -> float:
        """The part of the kernels' time that a row takes, from 0 to 1."""
        every = sum(each.milliseconds for each in self.rows)
        return row.milliseconds / every if every else 0.0

    def as_data(self) -> dict[str, Any]:
        """The profile as plain data, for JSON."""
        limits = self.limits
        return {
            "total_ms": self.total,
            "repeats": self.repeats,
            "flops": sum(row.flops for row in self.rows),
            "of_limit": self.of_limit,
            "limits": None
            if limits is None
            else {
                "threads": limits.threads,
                "gflops": limits.gflops,
                "read_gb_s": {str(size): rate for size, rate in limits.read.items()},
                "dots_gops": dict(limits.dots),
            },
            "kernels": [
                {
                    "group": row.index,
                    "kernel": row.kernel,
                    "nodes": list(row.nodes),
                    "operators": row.operators,
                    "median_ms": row.milliseconds,
                    "min_ms": row.fastest,
                    "flops": row.flops,
                    "bytes": row.nbytes,
                    "algorithm": row.algorithm,
                    "gflops": row.gflops,
                    "gb_s": row.bandwidth,
                    "limit_ms": row.limit,
                    "of_limit": row.of_limit,
                    "share": self.share(row),
                }
                for row in self.rows
            ],
        }

    def __str__(self) -> str:
        limited = self.of_limit is not None
        head = f"{'ms':>9} {'share':>6} {'GFLOP/s':>8} {'GB/s':>7}" + (f" {'limit':>6}" if limited else "")
        lines = [f"{head}  {'algorithm':<20}  nodes"]
        for row in sorted(self.rows, key=lambda each: -each.milliseconds):
            nodes = row.nodes[0] if len(row.nodes) == 1 else f"{row.nodes[0]} … {row.nodes[-1]}"
            numbers = f"{row.milliseconds:9.4f} {self.share(row):6.1%} {row.gflops:8.1f} {row.bandwidth:7.1f}"
            if row.of_limit is not None:
                numbers += f" {row.of_limit:6.0%}"
            lines.append(shortened(f"{numbers}  {row.algorithm:<20}  {nodes!r} ({row.operators})", _WIDTH))
        lines.append(f"{self.total:9.4f} a run, median of {self.repeats}")
        if self.limits is not None and self.of_limit is not None:
            flops = sum(row.flops for row in self.rows)
            lines[-1] += (
                f"; {flops / self.total / 1e6:.1f} GFLOP/s of a peak of {self.limits.gflops:.1f}\n"
                f"{'':>9} kernels together reach {self.of_limit:.0%} of what operations and bytes allow"
            )
        return "\n".join(lines)
