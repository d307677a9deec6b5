"""Benchmarks side by side: engines in processes of their own, taking turns."""

from tilewright.driver.bench.engines import ENGINES as ENGINES
from tilewright.driver.bench.harness import (
    OURS as OURS,
    Bench as Bench,
    BenchPlan as BenchPlan,
    BenchResult as BenchResult,
    EngineResult as EngineResult,
    run_benchmark as run_benchmark,
)
