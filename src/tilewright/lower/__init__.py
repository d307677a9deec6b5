"""Lowering: the pipeline from scheduled functions to what code generation takes."""

from tilewright.lower.asynchronous import mark_asynchronous
from tilewright.lower.atomics import mark_atomic
from tilewright.lower.barriers import insert_barriers
from tilewright.lower.flatten import flatten_blocks
from tilewright.lower.guards import trim_guards
from tilewright.lower.in_place import keep_in_place
from tilewright.lower.inits import decompose_inits
from tilewright.lower.instructions import expand_instructions
from tilewright.lower.math import expand_math, expand_math_calls
from tilewright.lower.pipeline import PIPELINE, Hook, Pass, lower
from tilewright.lower.teams import form_teams
from tilewright.lower.thread_shares import shrink_private

__all__ = [
    "PIPELINE",
    "Hook",
    "Pass",
    "decompose_inits",
    "expand_instructions",
    "expand_math",
    "expand_math_calls",
    "flatten_blocks",
    "form_teams",
    "insert_barriers",
    "keep_in_place",
    "lower",
    "mark_asynchronous",
    "mark_atomic",
    "shrink_private",
    "trim_guards",
]
