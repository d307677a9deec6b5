"""Loop nests as users write them, read into loop functions: from Python, and what all languages share."""

from tilewright.frontend.nests.build import NestBuilder, Place
from tilewright.frontend.nests.python import Scop, scop
from tilewright.frontend.nests.values import Value

__all__ = ["NestBuilder", "Place", "Scop", "Value", "scop"]
