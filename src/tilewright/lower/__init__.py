"""Lowering: the pipeline from scheduled functions to what code generation takes."""

from tilewright.lower.flatten import flatten_blocks
from tilewright.lower.guards import trim_guards

__all__ = ["flatten_blocks", "trim_guards"]
