"""Plans: decisions as values, the rules that make, enumerate and carry them out."""

from tilewright.plan.algorithms.choice import MOST_ERROR, WINOGRAD_MODES, WINOGRAD_SIZES, WinogradMode
from tilewright.plan.assembly import schedule_unit
from tilewright.plan.contraction.dot_products import is_fast, matrix_depths
from tilewright.plan.graph.batch_tiling import choose_parts, resized, slice_program, sliced_buffers
from tilewright.plan.graph.joins import choose_joins, fits_together
from tilewright.plan.graph.layouts import Flow, assign_layouts

__all__ = [
    "Flow",
    "MOST_ERROR",
    "WINOGRAD_MODES",
    "WINOGRAD_SIZES",
    "WinogradMode",
    "assign_layouts",
    "choose_joins",
    "choose_parts",
    "fits_together",
    "is_fast",
    "matrix_depths",
    "resized",
    "schedule_unit",
    "slice_program",
    "sliced_buffers",
]
