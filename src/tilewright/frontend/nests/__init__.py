"""Loop nests as users write them, read into loop functions: from Python, and what all languages share."""

from tilewright.frontend.nests.build import NestBuilder as NestBuilder
from tilewright.frontend.nests.guards import (
    FALSE as FALSE,
    TRUE as TRUE,
    Place as Place,
    both as both,
    compared as compared,
    conjuncts as conjuncts,
    decided_by_loops as decided_by_loops,
    either as either,
    opposite as opposite,
    under as under,
)
from tilewright.frontend.nests.python import scop as scop
from tilewright.frontend.nests.values import (
    FUNCTIONS as FUNCTIONS,
    Arithmetic as Arithmetic,
    Fail as Fail,
    Value as Value,
)
