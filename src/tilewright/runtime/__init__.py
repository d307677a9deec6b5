"""Running compiled code: the native thread pool, memory, timers and the plan executor."""

from tilewright.runtime.bound import BoundModel as BoundModel, bound_feeds as bound_feeds
from tilewright.runtime.container import Piece as Piece, write_container as write_container
from tilewright.runtime.course import (
    Branch as Branch,
    Control as Control,
    Count as Count,
    Course as Course,
    ListStep as ListStep,
    Loop as Loop,
    RunStage as RunStage,
    one_plan as one_plan,
)
from tilewright.runtime.device_code import DeviceCode as DeviceCode, SavedKernel as SavedKernel
from tilewright.runtime.executor import (
    Amount as Amount,
    BufferRef as BufferRef,
    ExecutionPlan as ExecutionPlan,
    KernelCall as KernelCall,
    ParamRef as ParamRef,
    PlanBuilder as PlanBuilder,
    PlanContents as PlanContents,
    RangeCheck as RangeCheck,
    amount_in as amount_in,
)
from tilewright.runtime.in_place import (
    named_arguments as named_arguments,
    pointed_at as pointed_at,
    run_in_place as run_in_place,
)
from tilewright.runtime.lists import OpenList as OpenList
from tilewright.runtime.load import (
    OpenedModel as OpenedModel,
    is_saved_model as is_saved_model,
    load_opened as load_opened,
    open_saved_model as open_saved_model,
)
from tilewright.runtime.manifest import (
    CODE as CODE,
    WEIGHTS as WEIGHTS,
    Manifest as Manifest,
    NestSignature as NestSignature,
    Requirements as Requirements,
    kernel_symbol as kernel_symbol,
)
from tilewright.runtime.memory import (
    address_of as address_of,
    aligned_copy as aligned_copy,
    aligned_empty as aligned_empty,
    guarded_array as guarded_array,
    return_free_memory as return_free_memory,
)
from tilewright.runtime.model import FixedModel as FixedModel, Model as Model, Prepared as Prepared
from tilewright.runtime.native import (
    ALIGNMENT as ALIGNMENT,
    ARENA as ARENA,
    CONSTANT as CONSTANT,
    ENTRY_PATH as ENTRY_PATH,
    FIRST as FIRST,
    HEADER_PATH as HEADER_PATH,
    INPUT as INPUT,
    OUTPUT as OUTPUT,
    now_ns as now_ns,
)
from tilewright.runtime.open_manifest import (
    OpenManifest as OpenManifest,
    PartManifest as PartManifest,
    RangeManifest as RangeManifest,
)
from tilewright.runtime.open_model import OpenModel as OpenModel
from tilewright.runtime.open_plan import (
    OpenPlan as OpenPlan,
    Relation as Relation,
    SizedTensor as SizedTensor,
)
from tilewright.runtime.open_sizes import (
    AffineDim as AffineDim,
    OpenTensor as OpenTensor,
    Ranges as Ranges,
    SizeRange as SizeRange,
    Sizes as Sizes,
)
from tilewright.runtime.pool import (
    PoolOptions as PoolOptions,
    ThreadPool as ThreadPool,
    default_pool as default_pool,
    pool_for as pool_for,
    shared_pool as shared_pool,
)
from tilewright.runtime.results import Results as Results
from tilewright.runtime.saved import SavedModel as SavedModel
from tilewright.runtime.saved_nest import SavedNest as SavedNest
from tilewright.runtime.saved_open import SavedDynamicModel as SavedDynamicModel
from tilewright.runtime.size_program import SizeProgram as SizeProgram
from tilewright.runtime.staged import StagedPlan as StagedPlan
from tilewright.runtime.stop import Stop as Stop
from tilewright.runtime.tensors import (
    HoldsCode as HoldsCode,
    TensorInfo as TensorInfo,
    as_array as as_array,
    as_declared as as_declared,
    checked_feeds as checked_feeds,
    checked_input_names as checked_input_names,
    checked_names as checked_names,
    checked_repeats as checked_repeats,
    checked_results as checked_results,
    draw_feeds as draw_feeds,
    laid_out as laid_out,
    tensor_bytes as tensor_bytes,
)
