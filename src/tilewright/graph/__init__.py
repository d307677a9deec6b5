"""The model graph: typed values and nodes, operators, passes, fusion groups, memory planning.

Read `model.py` first, then `registry.py` and one file of `ops/`.
"""

from tilewright.graph import decompositions, ops
from tilewright.graph.chains import contraction_runs, join_groups
from tilewright.graph.control import Control, Counted, Listing
from tilewright.graph.counting import MOST_COUNTED
from tilewright.graph.evaluate import evaluate_graph
from tilewright.graph.fusion import fuse
from tilewright.graph.fusion_options import Fusion, FusionOptions
from tilewright.graph.groups import Group, Partition
from tilewright.graph.infer import Inference, typed_graph
from tilewright.graph.memory import MemoryPlan, Step, live_bytes, plan_memory, plan_slots
from tilewright.graph.model import (
    Array,
    Attribute,
    Dim,
    Graph,
    ListType,
    Node,
    Subgraph,
    TensorType,
    type_of,
)
from tilewright.graph.operand import compute
from tilewright.graph.parts import decomposed_operators
from tilewright.graph.passes import (
    FILLED,
    INTEGER_PASSES,
    PASSES,
    CopyValues,
    FillBlocks,
    KeepStates,
    MergeGroups,
    NarrowInputs,
    Pass,
    SliceLookups,
    ValueCopy,
    WidenHalf,
    WriteOutLoops,
    simplify,
    writes_state,
)
from tilewright.graph.program import NodesProgram, Repetition, ValueRange, nodes_program
from tilewright.graph.registry import (
    MICROSOFT,
    ML,
    OWN,
    REGISTRY,
    Kind,
    Operator,
    UndeterminedError,
    find_operator,
    is_supported,
    operator,
)
from tilewright.graph.size_values import array_of_sizes
from tilewright.graph.walk import Limits

__all__ = [
    "Array",
    "Attribute",
    "Control",
    "CopyValues",
    "Counted",
    "Dim",
    "FILLED",
    "FillBlocks",
    "Fusion",
    "FusionOptions",
    "Graph",
    "Group",
    "INTEGER_PASSES",
    "Inference",
    "Kind",
    "Limits",
    "ListType",
    "Listing",
    "MICROSOFT",
    "ML",
    "MOST_COUNTED",
    "MemoryPlan",
    "MergeGroups",
    "KeepStates",
    "NarrowInputs",
    "Node",
    "NodesProgram",
    "OWN",
    "Operator",
    "PASSES",
    "Partition",
    "Pass",
    "REGISTRY",
    "Repetition",
    "SliceLookups",
    "Step",
    "Subgraph",
    "TensorType",
    "UndeterminedError",
    "ValueCopy",
    "ValueRange",
    "WidenHalf",
    "WriteOutLoops",
    "array_of_sizes",
    "compute",
    "contraction_runs",
    "decomposed_operators",
    "decompositions",
    "evaluate_graph",
    "find_operator",
    "fuse",
    "is_supported",
    "join_groups",
    "live_bytes",
    "nodes_program",
    "operator",
    "ops",
    "plan_memory",
    "plan_slots",
    "simplify",
    "type_of",
    "typed_graph",
    "writes_state",
]
