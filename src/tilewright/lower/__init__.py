"""Lowering: the pipeline from scheduled functions to what code generation takes."""

from tilewright.lower.asynchronous import mark_asynchronous as mark_asynchronous
from tilewright.lower.atomics import mark_atomic as mark_atomic
from tilewright.lower.barriers import insert_barriers as insert_barriers
from tilewright.lower.flatten import flatten_blocks as flatten_blocks
from tilewright.lower.guards import trim_guards as trim_guards
from tilewright.lower.inits import decompose_inits as decompose_inits
from tilewright.lower.instructions import expand_instructions as expand_instructions
from tilewright.lower.math import expand_math as expand_math, expand_math_calls as expand_math_calls
from tilewright.lower.pipeline import PIPELINE as PIPELINE, Pass as Pass, lower as lower
from tilewright.lower.teams import form_teams as form_teams
from tilewright.lower.thread_shares import shrink_private as shrink_private
