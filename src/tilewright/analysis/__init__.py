"""Facts of a program, no target: roles of axes, readers; what plans ask before they decide."""

from tilewright.analysis.access_table import (
    ARRAYS,
    Access,
    AccessTable,
    Box,
    Span,
    accesses_of,
    around,
    extent_of,
    iterator_spans,
    table_of,
)
from tilewright.analysis.borders import UNKNOWN, Middle, away_from_borders, decided, piece
from tilewright.analysis.contraction import (
    Contraction,
    contiguous_reduction,
    flat_index,
    match_contraction,
    physical,
    row_axis,
    run_length,
)
from tilewright.analysis.extrema import BestPair, Order, best_pair_of, better
from tilewright.analysis.footprint import footprint, span
from tilewright.analysis.matrices import Roles, guards_of, narrowed, roles_of, unchanged
from tilewright.analysis.operator import Operand, Operator, Window, find_operator
from tilewright.analysis.padded import only_inside, padded_read
from tilewright.analysis.readers import pointwise_reader, reads_in_place
from tilewright.analysis.scans import Scan, scan_of
from tilewright.analysis.updates import (
    Update,
    operands_of,
    reduction_of,
    starts_at_zero,
    two_factors,
    update_of,
)

__all__ = [
    "Middle",
    "decided",
    "piece",
    "only_inside",
    "padded_read",
    "around",
    "ARRAYS",
    "Access",
    "AccessTable",
    "accesses_of",
    "Box",
    "Span",
    "UNKNOWN",
    "Update",
    "operands_of",
    "reduction_of",
    "starts_at_zero",
    "two_factors",
    "update_of",
    "extent_of",
    "iterator_spans",
    "table_of",
    "Contraction",
    "BestPair",
    "Order",
    "better",
    "best_pair_of",
    "Operand",
    "Operator",
    "Roles",
    "Scan",
    "scan_of",
    "Window",
    "away_from_borders",
    "contiguous_reduction",
    "find_operator",
    "flat_index",
    "footprint",
    "guards_of",
    "match_contraction",
    "narrowed",
    "physical",
    "pointwise_reader",
    "reads_in_place",
    "roles_of",
    "row_axis",
    "run_length",
    "span",
    "unchanged",
]
