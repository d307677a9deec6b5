"""Loop nests as users write them, read into loop functions: from Python, and what all languages share."""

from tilewright.frontend.nests.build import NestBuilder
from tilewright.frontend.nests.guards import (
    FALSE,
    TRUE,
    Place,
    both,
    compared,
    conjuncts,
    decided_by_loops,
    either,
    opposite,
    under,
)
from tilewright.frontend.nests.python import Scop, scop
from tilewright.frontend.nests.values import FUNCTIONS, Arithmetic, Fail, Value

__all__ = [
    "FALSE",
    "FUNCTIONS",
    "TRUE",
    "Arithmetic",
    "Fail",
    "NestBuilder",
    "Place",
    "Scop",
    "Value",
    "both",
    "compared",
    "conjuncts",
    "decided_by_loops",
    "either",
    "opposite",
    "scop",
    "under",
]
