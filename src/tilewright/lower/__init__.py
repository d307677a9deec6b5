"""Lowering: the pipeline from scheduled functions to what code generation takes."""

from tilewright.lower.flatten import flatten_blocks
from tilewright.lower.guards import trim_guards
from tilewright.lower.inits import decompose_inits
from tilewright.lower.pipeline import PIPELINE, Hook, Pass, lower

__all__ = ["PIPELINE", "Hook", "Pass", "decompose_inits", "flatten_blocks", "lower", "trim_guards"]
