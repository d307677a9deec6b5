"""Mapping programs onto tensor instructions: three-operand forms, mappings, the mapper; managed machines."""

from tilewright.mapping import system
from tilewright.mapping.access import (
    AccessMatrix,
    Guard,
    Operation,
    ThreeOperandForm,
    three_operand_form,
)
from tilewright.mapping.mapper import find_mappings
from tilewright.mapping.mapping import (
    Bound,
    Bundle,
    ConditionNeed,
    CopyNeed,
    Failure,
    LayoutNeed,
    Mapping,
    Need,
    PadNeed,
    Statement,
)
from tilewright.mapping.match import Match, match_form
from tilewright.mapping.needle import Needle, NeedleAxis
from tilewright.mapping.search import Outcome, Transformed, search_mappings
from tilewright.mapping.select import (
    Option,
    Selection,
    Uncovered,
    Use,
    cheapest,
    fewest,
    select_instructions,
)
from tilewright.mapping.steps import tensorized
from tilewright.mapping.transform import TRANSFORMATIONS, Transformation

__all__ = [
    "AccessMatrix",
    "Bound",
    "Bundle",
    "ConditionNeed",
    "CopyNeed",
    "Failure",
    "Guard",
    "LayoutNeed",
    "Mapping",
    "Match",
    "Need",
    "Needle",
    "NeedleAxis",
    "Operation",
    "PadNeed",
    "Statement",
    "ThreeOperandForm",
    "Option",
    "Outcome",
    "Selection",
    "TRANSFORMATIONS",
    "Transformation",
    "Transformed",
    "Uncovered",
    "Use",
    "cheapest",
    "fewest",
    "find_mappings",
    "match_form",
    "search_mappings",
    "select_instructions",
    "system",
    "tensorized",
    "three_operand_form",
]
