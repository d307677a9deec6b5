"""Facts of a program, no target: roles of axes, readers; what plans ask before they decide."""

from tilewright.analysis.contraction import (
    Contraction,
    contiguous_reduction,
    flat_index,
    match_contraction,
    physical,
    row_axis,
    run_length,
)
from tilewright.analysis.footprint import footprint, span
from tilewright.analysis.readers import pointwise_reader, reads_in_place

__all__ = [
    "Contraction",
    "contiguous_reduction",
    "flat_index",
    "footprint",
    "match_contraction",
    "physical",
    "pointwise_reader",
    "reads_in_place",
    "row_axis",
    "run_length",
    "span",
]
