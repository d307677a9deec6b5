"""What a profile of a compiled model holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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

    @property
    def gflops(self) -> float:
        """Billions of floating-point operations a second, at the median."""
        return self.flops / (self.milliseconds * 1e6) if self.milliseconds else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """The kernels of a run in order, and the median time of a whole run in milliseconds."""

    rows: tuple[KernelProfile, ...]
    total: float
    repeats: int

    def share(self, row: KernelProfile) -> float:
        """The part of the kernels' time that a row takes, from 0 to 1."""
        every = sum(each.milliseconds for each in self.rows)
        return row.milliseconds / every if every else 0.0

    def as_data(self) -> dict[str, Any]:
        """The profile as plain data, for JSON."""
        return {
            "total_ms": self.total,
            "repeats": self.repeats,
            "kernels": [
                {
                    "group": row.index,
                    "kernel": row.kernel,
                    "nodes": list(row.nodes),
                    "operators": row.operators,
                    "median_ms": row.milliseconds,
                    "min_ms": row.fastest,
                    "flops": row.flops,
                    "gflops": row.gflops,
                    "share": self.share(row),
                }
                for row in self.rows
            ],
        }

    def __str__(self) -> str:
        lines = [f"{'ms':>9} {'share':>6} {'GFLOP/s':>8}  nodes"]
        for row in sorted(self.rows, key=lambda each: -each.milliseconds):
            nodes = row.nodes[0] if len(row.nodes) == 1 else f"{row.nodes[0]} … {row.nodes[-1]}"
            numbers = f"{row.milliseconds:9.4f} {self.share(row):6.1%} {row.gflops:8.1f}"
            lines.append(f"{numbers}  {nodes!r} ({row.operators})")
        return "\n".join([*lines, f"{self.total:9.4f} a run, median of {self.repeats}"])
