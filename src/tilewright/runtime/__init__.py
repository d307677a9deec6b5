"""Running compiled code: the native thread pool, memory, timers and the plan executor."""

from tilewright.runtime.executor import BufferRef, ExecutionPlan, ParamRef, PlanBuilder
from tilewright.runtime.memory import address_of, aligned_copy, aligned_empty, guarded_array
from tilewright.runtime.native import ALIGNMENT, HEADER_PATH, now_ns
from tilewright.runtime.pool import PoolOptions, ThreadPool, default_pool, shared_pool

__all__ = [
    "ALIGNMENT",
    "HEADER_PATH",
    "BufferRef",
    "ExecutionPlan",
    "ParamRef",
    "PlanBuilder",
    "PoolOptions",
    "ThreadPool",
    "address_of",
    "aligned_copy",
    "aligned_empty",
    "default_pool",
    "guarded_array",
    "now_ns",
    "shared_pool",
]
