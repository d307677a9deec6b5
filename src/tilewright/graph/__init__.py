"""The model graph: typed values and nodes, operators, passes, fusion groups, memory planning.

Read `model.py` first, then `registry.py` and one file of `ops/`.
"""

from tilewright.graph import decompositions as decompositions, ops as ops
from tilewright.graph.chains import contraction_runs as contraction_runs, join_groups as join_groups
from tilewright.graph.control import Control as Control, Counted as Counted, Listing as Listing
from tilewright.graph.counting import MOST_COUNTED as MOST_COUNTED
from tilewright.graph.evaluate import evaluate_graph as evaluate_graph
from tilewright.graph.fusion import fuse as fuse
from tilewright.graph.fusion_options import Fusion as Fusion, FusionOptions as FusionOptions
from tilewright.graph.groups import Group as Group, Partition as Partition
from tilewright.graph.infer import Inference as Inference, typed_graph as typed_graph
from tilewright.graph.memory import (
    MemoryPlan as MemoryPlan,
    Step as Step,
    live_bytes as live_bytes,
    plan_memory as plan_memory,
    plan_slots as plan_slots,
)
from tilewright.graph.model import (
    Array as Array,
    Attribute as Attribute,
    Dim as Dim,
    Graph as Graph,
    ListType as ListType,
    Node as Node,
    Subgraph as Subgraph,
    TensorType as TensorType,
    type_of as type_of,
)
from tilewright.graph.operand import compute as compute
from tilewright.graph.parts import decomposed_operators as decomposed_operators
from tilewright.graph.passes import (
    FILLED as FILLED,
    INTEGER_PASSES as INTEGER_PASSES,
    PASSES as PASSES,
    BytesInBlocks as BytesInBlocks,
    CopyValues as CopyValues,
    FillBlocks as FillBlocks,
    KeepStates as KeepStates,
    MergeGroups as MergeGroups,
    NarrowInputs as NarrowInputs,
    Pass as Pass,
    SliceLookups as SliceLookups,
    ValueCopy as ValueCopy,
    WidenHalf as WidenHalf,
    WriteOutLoops as WriteOutLoops,
    simplify as simplify,
    writes_state as writes_state,
)
from tilewright.graph.program import (
    Repetition as Repetition,
    ValueRange as ValueRange,
    nodes_program as nodes_program,
)
from tilewright.graph.registry import (
    MICROSOFT as MICROSOFT,
    ML as ML,
    OWN as OWN,
    REGISTRY as REGISTRY,
    Kind as Kind,
    Operator as Operator,
    UndeterminedError as UndeterminedError,
    find_operator as find_operator,
    is_supported as is_supported,
    operator as operator,
)
from tilewright.graph.size_values import array_of_sizes as array_of_sizes
from tilewright.graph.walk import Limits as Limits
