"""Facts of a program, no target: roles of axes, readers; what plans ask before they decide."""

from tilewright.analysis.access_table import (
    ARRAYS as ARRAYS,
    Access as Access,
    AccessTable as AccessTable,
    Box as Box,
    Span as Span,
    accesses_of as accesses_of,
    around as around,
    extent_of as extent_of,
    iterator_spans as iterator_spans,
    table_of as table_of,
)
from tilewright.analysis.borders import (
    UNKNOWN as UNKNOWN,
    Middle as Middle,
    decided as decided,
    inside as inside,
    period as period,
    piece as piece,
)
from tilewright.analysis.contraction import (
    Contraction as Contraction,
    contiguous_reduction as contiguous_reduction,
    flat_index as flat_index,
    match_contraction as match_contraction,
    physical as physical,
    row_axis as row_axis,
    run_length as run_length,
)
from tilewright.analysis.extrema import Order as Order, best_pair_of as best_pair_of, better as better
from tilewright.analysis.footprint import footprint as footprint, span as span
from tilewright.analysis.matrices import (
    Roles as Roles,
    guards_of as guards_of,
    narrowed as narrowed,
    roles_of as roles_of,
    unchanged as unchanged,
)
from tilewright.analysis.operator import (
    Operand as Operand,
    Operator as Operator,
    Window as Window,
    find_operator as find_operator,
)
from tilewright.analysis.padded import only_inside as only_inside, padded_read as padded_read
from tilewright.analysis.readers import (
    lies_in_order as lies_in_order,
    pointwise_reader as pointwise_reader,
    reads_in_place as reads_in_place,
)
from tilewright.analysis.scans import Scan as Scan, scan_of as scan_of
from tilewright.analysis.updates import (
    Update as Update,
    operands_of as operands_of,
    reduction_of as reduction_of,
    starts_at_zero as starts_at_zero,
    two_factors as two_factors,
    update_of as update_of,
)
