"""Benchmarks side by side: engines in processes of their own, taking turns."""

from tilewright.driver.bench.engines import ENGINES
from tilewright.driver.bench.harness import OURS, Bench, BenchPlan, BenchResult, EngineResult, run_benchmark

__all__ = ["ENGINES", "OURS", "Bench", "BenchPlan", "BenchResult", "EngineResult", "run_benchmark"]
