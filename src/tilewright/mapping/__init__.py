"""Mapping programs onto tensor instructions: three-operand forms, mappings, the mapper; managed machines."""

from tilewright.mapping import system as system
from tilewright.mapping.access import (
    ThreeOperandForm as ThreeOperandForm,
    three_operand_form as three_operand_form,
)
from tilewright.mapping.mapper import find_mappings as find_mappings
from tilewright.mapping.mapping import (
    Bound as Bound,
    ConditionNeed as ConditionNeed,
    CopyNeed as CopyNeed,
    Failure as Failure,
    LayoutNeed as LayoutNeed,
    Mapping as Mapping,
    Need as Need,
    PadNeed as PadNeed,
    Statement as Statement,
)
from tilewright.mapping.match import match_form as match_form
from tilewright.mapping.needle import Needle as Needle
from tilewright.mapping.search import (
    Outcome as Outcome,
    Transformed as Transformed,
    search_mappings as search_mappings,
)
from tilewright.mapping.select import (
    Selection as Selection,
    Use as Use,
    cheapest as cheapest,
    fewest as fewest,
    select_instructions as select_instructions,
)
from tilewright.mapping.steps import tensorized as tensorized
from tilewright.mapping.transform import TRANSFORMATIONS as TRANSFORMATIONS
