"""Running compiled code: the native thread pool, memory, timers and the plan executor."""

from tilewright.runtime.bound import BoundModel, bound_feeds
from tilewright.runtime.container import Piece, write_container
from tilewright.runtime.course import Branch, Control, Count, Course, ListStep, Loop, RunStage, one_plan
from tilewright.runtime.device_code import DeviceCode, SavedKernel
from tilewright.runtime.executor import (
    Amount,
    BufferRef,
    ExecutionPlan,
    KernelCall,
    ParamRef,
    PlanBuilder,
    PlanContents,
    RangeCheck,
    amount_in,
)
from tilewright.runtime.in_place import named_arguments, pointed_at, run_in_place
from tilewright.runtime.lists import OpenList
from tilewright.runtime.load import OpenedModel, is_saved_model, load_opened, open_saved_model
from tilewright.runtime.manifest import CODE, WEIGHTS, Manifest, NestSignature, Requirements, kernel_symbol
from tilewright.runtime.memory import (
    address_of,
    aligned_copy,
    aligned_empty,
    guarded_array,
    return_free_memory,
)
from tilewright.runtime.model import FixedModel, Model, Prepared
from tilewright.runtime.native import (
    ALIGNMENT,
    ARENA,
    CONSTANT,
    ENTRY_PATH,
    FIRST,
    HEADER_PATH,
    INPUT,
    OUTPUT,
    now_ns,
)
from tilewright.runtime.open_manifest import OpenManifest, PartManifest, RangeManifest
from tilewright.runtime.open_model import OpenModel
from tilewright.runtime.open_plan import OpenPlan, Relation, SizedTensor
from tilewright.runtime.open_sizes import (
    AffineDim,
    OpenTensor,
    Ranges,
    SizeRange,
    SizeReader,
    Sizes,
    extent_at,
)
from tilewright.runtime.pool import PoolOptions, ThreadPool, default_pool, pool_for, shared_pool
from tilewright.runtime.results import Results
from tilewright.runtime.saved import SavedModel
from tilewright.runtime.saved_nest import SavedNest
from tilewright.runtime.saved_open import SavedDynamicModel
from tilewright.runtime.size_program import SIZE_OPS, SizeProgram
from tilewright.runtime.staged import PlanRun, StagedPlan
from tilewright.runtime.stop import Stop
from tilewright.runtime.tensors import (
    HoldsCode,
    TensorInfo,
    as_array,
    as_declared,
    checked_feeds,
    checked_input_names,
    checked_names,
    checked_repeats,
    checked_results,
    draw_feeds,
    laid_out,
    named_feeds,
    tensor_bytes,
)

__all__ = [
    "Stop",
    "AffineDim",
    "ALIGNMENT",
    "ARENA",
    "CODE",
    "CONSTANT",
    "ENTRY_PATH",
    "FIRST",
    "HEADER_PATH",
    "INPUT",
    "OUTPUT",
    "WEIGHTS",
    "BoundModel",
    "BufferRef",
    "ExecutionPlan",
    "HoldsCode",
    "KernelCall",
    "Manifest",
    "ParamRef",
    "Piece",
    "PlanBuilder",
    "PlanContents",
    "PoolOptions",
    "RangeCheck",
    "Requirements",
    "SizedTensor",
    "OpenPlan",
    "Relation",
    "Ranges",
    "SIZE_OPS",
    "SizeProgram",
    "Results",
    "Branch",
    "Control",
    "Count",
    "Course",
    "ListStep",
    "Loop",
    "RunStage",
    "one_plan",
    "FixedModel",
    "Model",
    "PlanRun",
    "OpenModel",
    "PartManifest",
    "Prepared",
    "StagedPlan",
    "OpenList",
    "OpenManifest",
    "OpenTensor",
    "RangeManifest",
    "SavedDynamicModel",
    "SavedModel",
    "SavedNest",
    "NestSignature",
    "named_arguments",
    "pointed_at",
    "run_in_place",
    "SizeRange",
    "SizeReader",
    "Sizes",
    "extent_at",
    "TensorInfo",
    "ThreadPool",
    "address_of",
    "aligned_copy",
    "aligned_empty",
    "bound_feeds",
    "as_array",
    "checked_feeds",
    "checked_input_names",
    "checked_names",
    "checked_repeats",
    "checked_results",
    "default_pool",
    "Amount",
    "amount_in",
    "as_declared",
    "draw_feeds",
    "guarded_array",
    "is_saved_model",
    "kernel_symbol",
    "DeviceCode",
    "OpenedModel",
    "SavedKernel",
    "load_opened",
    "open_saved_model",
    "laid_out",
    "named_feeds",
    "now_ns",
    "pool_for",
    "return_free_memory",
    "shared_pool",
    "tensor_bytes",
    "write_container",
]
