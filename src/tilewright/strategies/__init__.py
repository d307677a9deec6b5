"""Strategies: from programs to schedules."""

from tilewright.strategies.algorithms import MOST_ERROR, WINOGRAD_MODES, WINOGRAD_SIZES, WinogradMode
from tilewright.strategies.default import default_schedule
from tilewright.strategies.dots import is_fast, matrix_depths
from tilewright.strategies.joins import choose_joins, fits_together
from tilewright.strategies.layouts import Flow, assign_layouts
from tilewright.strategies.roles import Contraction
from tilewright.strategies.roles import contraction as roles_of
from tilewright.strategies.slices import choose_parts, resized, slice_program, sliced_buffers

__all__ = [
    "Contraction",
    "Flow",
    "MOST_ERROR",
    "WINOGRAD_MODES",
    "WINOGRAD_SIZES",
    "WinogradMode",
    "assign_layouts",
    "choose_joins",
    "choose_parts",
    "default_schedule",
    "fits_together",
    "is_fast",
    "matrix_depths",
    "resized",
    "roles_of",
    "slice_program",
    "sliced_buffers",
]
