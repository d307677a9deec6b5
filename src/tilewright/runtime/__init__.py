"""Running compiled code: the native thread pool, memory, timers and the plan executor."""

from tilewright.runtime.executor import (
    BufferRef,
    ExecutionPlan,
    KernelCall,
    ParamRef,
    PlanBuilder,
    PlanContents,
)
from tilewright.runtime.memory import address_of, aligned_copy, aligned_empty, guarded_array
from tilewright.runtime.native import ALIGNMENT, HEADER_PATH, now_ns
from tilewright.runtime.pool import PoolOptions, ThreadPool, default_pool, shared_pool
from tilewright.runtime.tensors import TensorInfo, checked_feeds, checked_names, draw_feeds

__all__ = [
    "ALIGNMENT",
    "HEADER_PATH",
    "BufferRef",
    "ExecutionPlan",
    "KernelCall",
    "ParamRef",
    "PlanBuilder",
    "PlanContents",
    "PoolOptions",
    "TensorInfo",
    "ThreadPool",
    "address_of",
    "aligned_copy",
    "aligned_empty",
    "checked_feeds",
    "checked_names",
    "default_pool",
    "draw_feeds",
    "guarded_array",
    "now_ns",
    "shared_pool",
]
