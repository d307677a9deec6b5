"""Plans: decisions as values, the rules that make, enumerate and carry them out."""

from tilewright.plan.algorithms.accuracy import AUTO, EXACT, MOST_ERROR, Accuracy, AccuracyMode
from tilewright.plan.algorithms.choice import WINOGRAD_SIZES
from tilewright.plan.algorithms.words import ACCURACIES, WINOGRAD_MODES, read_accuracy
from tilewright.plan.assembly import plan_groups, plan_unit
from tilewright.plan.catalog import RULES
from tilewright.plan.clusters import Planned
from tilewright.plan.contraction.instructions import (
    InstructionUse,
    Priced,
    instruction_uses,
    matrix_runs,
    select_instruction,
)
from tilewright.plan.contraction.nest import TilePlan
from tilewright.plan.contraction.register_tiling import vector_width
from tilewright.plan.contraction.rule import ContractionProblem
from tilewright.plan.edits import edit_nest, edited
from tilewright.plan.fused.row_chains import row_chain_cost, row_chain_pays
from tilewright.plan.general.nest import GeneralPlan, steps_unrolled
from tilewright.plan.general.rule import GeneralProblem
from tilewright.plan.gpu.groups import (
    MOST_KEPT,
    GpuGroupPlan,
    kernel_boxes,
    no_kernel,
    shared_bytes,
    too_large,
)
from tilewright.plan.gpu.matrix import MatrixProblem
from tilewright.plan.gpu.product import ProductProblem
from tilewright.plan.gpu.rounding import round_factors
from tilewright.plan.graph.assignment import Cost, assign, total_cost
from tilewright.plan.graph.batch_tiling import choose_parts, resized, slice_program, sliced_buffers
from tilewright.plan.graph.joins import choose_joins, fits_together
from tilewright.plan.graph.layouts import Flow, Layouts, assign_layouts, choose_layouts, with_layouts
from tilewright.plan.graph.plan import GraphPlan, PassPlan, graph_plan_from_data
from tilewright.plan.graph.propagation import (
    VARIANTS,
    Texts,
    Variant,
    neighbours,
    owned_values,
    propagated,
    tied_values,
    value_layouts,
)
from tilewright.plan.open_sizes import Version, plan_open, plan_versions
from tilewright.plan.pipeline.boxes import boxes, iteration, middle, points, whole
from tilewright.plan.pipeline.fusion import MARGIN, Fused, FusionSearch, inlined, variants
from tilewright.plan.pipeline.graph import CHEAP, Node, Read, StageGraph, graph_of, keep
from tilewright.plan.pipeline.group import (
    AtLoop,
    Group,
    Placement,
    Window,
    find_group,
    is_plain,
    loops_of,
    misplaced,
    windows,
)
from tilewright.plan.pipeline.group_plan import GroupPlan, held_bytes, invalid, kept_rows, unfit
from tilewright.plan.pipeline.grouping import Choice, Fuser, Grouping, nest_of
from tilewright.plan.pipeline.nest import second_level, whole_nest
from tilewright.plan.pipeline.price import FusionModel
from tilewright.plan.pipeline.rule import GroupProblem
from tilewright.plan.pipeline.values import OPERATIONS, Amortised
from tilewright.plan.renaming import renamed_plan
from tilewright.plan.rule import Asked, Cluster, Context, Nest, Rule
from tilewright.plan.space import Combinations, Space
from tilewright.plan.unit import UnitPlan, build_unit, rewritten, written
from tilewright.plan.unit_text import MAX_BYTES as PLAN_BYTES, plan_from_json
from tilewright.plan.varied import Variants
from tilewright.plan.why import Candidate, Reasons, of_loops, why

__all__ = [
    "ACCURACIES",
    "AUTO",
    "CHEAP",
    "EXACT",
    "MARGIN",
    "MOST_ERROR",
    "MOST_KEPT",
    "OPERATIONS",
    "PLAN_BYTES",
    "RULES",
    "VARIANTS",
    "WINOGRAD_MODES",
    "WINOGRAD_SIZES",
    "Accuracy",
    "AccuracyMode",
    "Amortised",
    "Asked",
    "AtLoop",
    "Candidate",
    "Choice",
    "Cluster",
    "Combinations",
    "Context",
    "ContractionProblem",
    "Cost",
    "Flow",
    "Fused",
    "Fuser",
    "FusionModel",
    "FusionSearch",
    "GeneralPlan",
    "GeneralProblem",
    "GpuGroupPlan",
    "GraphPlan",
    "Group",
    "GroupPlan",
    "GroupProblem",
    "Grouping",
    "InstructionUse",
    "Layouts",
    "MatrixProblem",
    "Nest",
    "Node",
    "PassPlan",
    "Placement",
    "Planned",
    "Priced",
    "ProductProblem",
    "Read",
    "Reasons",
    "Rule",
    "Space",
    "StageGraph",
    "Texts",
    "TilePlan",
    "UnitPlan",
    "Variant",
    "Variants",
    "Version",
    "Window",
    "assign",
    "assign_layouts",
    "boxes",
    "build_unit",
    "choose_joins",
    "choose_layouts",
    "choose_parts",
    "edit_nest",
    "edited",
    "find_group",
    "fits_together",
    "graph_of",
    "graph_plan_from_data",
    "held_bytes",
    "inlined",
    "instruction_uses",
    "invalid",
    "is_plain",
    "iteration",
    "keep",
    "kept_rows",
    "kernel_boxes",
    "loops_of",
    "matrix_runs",
    "middle",
    "misplaced",
    "neighbours",
    "nest_of",
    "no_kernel",
    "of_loops",
    "owned_values",
    "plan_from_json",
    "plan_groups",
    "plan_open",
    "plan_unit",
    "plan_versions",
    "points",
    "propagated",
    "read_accuracy",
    "renamed_plan",
    "resized",
    "rewritten",
    "round_factors",
    "row_chain_cost",
    "row_chain_pays",
    "second_level",
    "select_instruction",
    "shared_bytes",
    "slice_program",
    "sliced_buffers",
    "steps_unrolled",
    "tied_values",
    "too_large",
    "total_cost",
    "unfit",
    "value_layouts",
    "variants",
    "vector_width",
    "whole",
    "whole_nest",
    "why",
    "windows",
    "with_layouts",
    "written",
]
