"""The lowering pipeline, as one list."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from tilewright.ir import LoopFunction
from tilewright.lower.asynchronous import mark_asynchronous
from tilewright.lower.atomics import mark_atomic
from tilewright.lower.barriers import insert_barriers
from tilewright.lower.flatten import flatten_blocks
from tilewright.lower.guards import trim_guards
from tilewright.lower.in_place import keep_in_place
from tilewright.lower.inits import decompose_inits
from tilewright.lower.instructions import expand_instructions
from tilewright.lower.math import expand_math_calls
from tilewright.lower.partition import partition_loops
from tilewright.lower.small_types import hold_small
from tilewright.lower.teams import form_teams
from tilewright.lower.thread_shares import shrink_private
from tilewright.target import Instruction


@dataclass(frozen=True, slots=True)
class Pass:
    """A step of lowering: a name for dumps and timings, and what does it.

    ``run`` takes the function and the elementary functions that the target has.
    """

    name: str
    run: Callable[[LoopFunction, frozenset[str]], LoopFunction]


_BARRIERS = Pass("insert_barriers", lambda func, _: insert_barriers(func))
_FLATTEN = Pass("flatten_blocks", lambda func, _: flatten_blocks(func))
_SHRINK = Pass("shrink_private", lambda func, _: shrink_private(func))

PIPELINE: tuple[Pass, ...] = (
    # before all that reads types: machines have bytes
    Pass("hold_small", lambda func, _: hold_small(func)),
    # before blocks are gone: it sees them, as the judges do
    _BARRIERS,
    Pass("mark_asynchronous", lambda func, _: mark_asynchronous(func)),
    Pass("mark_atomic", lambda func, _: mark_atomic(func)),
    _SHRINK,
    Pass("decompose_inits", lambda func, _: decompose_inits(func)),
    _FLATTEN,
    Pass("keep_in_place", lambda func, _: keep_in_place(func)),
    Pass("trim_guards", lambda func, _: trim_guards(func)),
    Pass("partition_loops", lambda func, _: partition_loops(func)),
    # last: its expressions share sub-expressions as objects, which rebuilding would lose
    Pass("expand_math", expand_math_calls),
)


class Hook(Protocol):
    """Called after every pass with its name, the function it gave, and its seconds."""

    def __call__(self, name: str, func: LoopFunction, seconds: float) -> None:
        """Dump, time or verify."""


def _passes(expanded: Mapping[str, Instruction], teams: bool) -> tuple[Pass, ...]:
    out = PIPELINE
    if expanded:
        at = out.index(_FLATTEN) + 1
        expand = Pass("expand_instructions", lambda func, _: expand_instructions(func, expanded))
        out = (*out[:at], expand, *out[at:])
    if teams:
        # before barriers are placed: they are each team's
        at = out.index(_BARRIERS)
        out = (*out[:at], Pass("form_teams", lambda func, _: form_teams(func)), *out[at:])
    return out


def lower(
    func: LoopFunction,
    hooks: Sequence[Hook] = (),
    *,
    native: frozenset[str] = frozenset(),
    one_by_one: bool = False,
    expanded: Mapping[str, Instruction] = MappingProxyType({}),
    teams: bool = False,
) -> LoopFunction:
    """Lower a scheduled function to plain loops and stores, the form that code generation takes.

    ``native`` are the elementary functions that the target has as instructions (``Target.functions``).
    ``one_by_one``: the threads of a block will run one after another, as plain loops; what each has to itself
    stays part of one buffer. ``expanded`` are instructions that become the loops that they stand for, and
    ``teams`` says that what loops copy ahead becomes a team's of the block.
    """
    for p in _passes(expanded, teams):
        if one_by_one and p is _SHRINK:
            continue
        start = time.perf_counter()
        func = p.run(func, native)
        seconds = time.perf_counter() - start
        for hook in hooks:
            hook(p.name, func, seconds)
    return func
