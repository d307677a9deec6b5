"""Which kernels that follow one another are faster as one: chains of contractions, by their links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.cost import Machine
from tilewright.ir import Program
from tilewright.plan.algorithms.bf16x3 import choose_bf16x3
from tilewright.plan.fused.bands import choose_band, find_band
from tilewright.plan.fused.chain import Chain, Link, chain_of, find_links
from tilewright.plan.fused.nests import prepare_bands
from tilewright.plan.graph.layouts import Flow
from tilewright.plan.inlining import inline_stages
from tilewright.schedule import Schedule
from tilewright.support import ScheduleError, get_logger
from tilewright.target import Target

_log = get_logger(__name__)

#: Contractions that one kernel computes, at most.
MOST_JOINED: Final = 3


def choose_joins(runs: Sequence[Sequence[Flow]], machine: Machine, *, exact: bool = False) -> list[list[int]]:
    """For each run of kernels, of which each alone reads the one before, how many each new kernel takes.

    The sum of what is saved is the largest; 1 is a kernel as it was. Unless products must be ``exact``, what
    faster ones save in kernels of their own counts against joining those: chains do not take them.
    """
    known: dict[Program, Link | None] = {}
    apart: dict[Program, float] = {}
    out: list[list[int]] = []
    for run in runs:
        for flow in run:
            if flow.program not in known and machine.threads > 1:
                known[flow.program] = _only_link(flow.program, machine.target)
                apart[flow.program] = 0.0 if exact else _saved_apart(flow.program, machine)
        links = [known.get(flow.program) for flow in run]
        # the most that is saved before each place, and how many kernels the last one there takes
        best: list[tuple[float, int]] = [(0.0, 1)]
        for end in range(1, len(run) + 1):
            options = [(best[-1][0], 1)]
            for count in range(2, min(end, MOST_JOINED) + 1):
                chain = _chain(run[end - count : end], links[end - count : end], machine.target)
                band = None if chain is None else choose_band(chain, machine)
                if band is not None:
                    lost = sum(apart[flow.program] for flow in run[end - count : end])
                    options.append((best[end - count][0] + band.saved - lost, count))
            best.append(max(options))
        end, counts = len(run), list[int]()
        while end:
            counts.insert(0, best[end][1])
            end -= counts[0]
        out.append(counts)
    return out


def fits_together(program: Program, machine: Machine) -> bool:
    """Whether the kernel of joined ones is scheduled as the chain for which they were joined.

    As one program they may be another one: what they share is read twice, a sum has more terms.
    """
    s = inline_stages(Schedule(program, operations=machine.target.operations))
    banded = find_band(s.require_program(), machine)
    if banded is None:
        return False
    try:
        prepare_bands(s, *banded, machine.target)
    except ScheduleError as error:
        _log.info("%s stays apart: %s", program.name, error.what)
        return False
    return True


def _only_link(program: Program, target: Target) -> Link | None:
    """The link that a kernel's program is, ``None`` for other programs."""
    made = inline_stages(Schedule(program, operations=target.operations)).program
    assert made is not None
    links = find_links(made, target)
    return links[0] if len(links) == 1 and not links[0].rows else None


def _saved_apart(program: Program, machine: Machine) -> float:
    """Cycles that products of pieces save in a kernel of its own."""
    s = inline_stages(Schedule(program, operations=machine.target.operations))
    choices = (choose_bf16x3(s, stage, machine) for stage in s.require_program().stages)
    return sum(choice.saved for choice in choices if choice is not None)


def _chain(flows: Sequence[Flow], links: Sequence[Link | None], target: Target) -> Chain | None:
    """The chain of some kernels."""
    found = [link for link in links if link is not None]
    if len(found) < len(links):
        return None
    names: list[frozenset[str]] = []
    for before, flow, link in zip(flows, flows[1:], found[1:], strict=False):
        made = set(before.outputs.values())
        names.append(frozenset(name for name, value in flow.inputs.items() if value in made))
        if any(names[-1] & set(stage.reads) for stage in link.stages[1:]):
            return None
    return chain_of(found, names, target)
