"""Chains: instructions of several stages, each reading what the one before wrote, on chains of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import Program
from tilewright.mapping.access import three_operand_form
from tilewright.mapping.mapping import Failure, Mapping
from tilewright.mapping.match import Match, match_form
from tilewright.mapping.needle import Needle


def chained(program: Program, needle: Needle, first: Match) -> Match:
    """Mappings of the whole chain, from those of its first stage.

    What is between two stages must be read by the next stage alone, be no output, and move with the same axes
    in both.
    """
    mappings: Sequence[Mapping] = first.mappings
    failures = list(first.failures)
    nodes = first.nodes
    for part in range(1, len(needle.forms)):
        between = needle.forms[part - 1].operations[-1].dst.buffer
        longer: list[Mapping] = []
        for before in mappings:
            buffer = before.bound(between).buffer
            readers = program.consumers(buffer)
            if len(readers) != 1 or any(b.name == buffer for b in program.outputs):
                found = "an output" if any(b.name == buffer for b in program.outputs) else f"{len(readers)}"
                place = f"readers of {buffer}"
                failures.append(Failure(needle.name, before.stage, 0, between, place, "one stage", found))
                continue
            after = match_form(needle, three_operand_form(readers[0]), part=part)
            nodes += after.nodes
            failures.extend(after.failures)
            joined = [_joined(before, each, between) for each in after.mappings]
            longer.extend(each for each in joined if each is not None)
        mappings = longer
    return Match(tuple(dict.fromkeys(mappings)), tuple(dict.fromkeys(failures)), nodes)


def _joined(before: Mapping, after: Mapping, between: str) -> Mapping | None:
    """Two mappings as one, where they agree on what is between them."""
    mine, theirs = dict(before.dims), dict(after.dims)
    if before.bound(between).buffer != after.bound(between).buffer or mine[between] != theirs[between]:
        return None
    known = {b.axis for b in before.axes}
    kept = [b for b in (*before.operands, *after.operands) if b.operand != between]
    order = list(before.instruction.operands)
    return replace(
        before,
        statements=(*before.statements, *after.statements),
        operands=tuple(sorted(kept, key=lambda b: order.index(b.operand) if b.operand in order else 99)),
        axes=(*before.axes, *(b for b in after.axes if b.axis not in known)),
        dims=tuple((n, d) for n, d in (*before.dims, *after.dims) if n != between),
        needs=tuple(n for n in (*before.needs, *after.needs) if getattr(n, "operand", "") != between),
        exchanged=before.exchanged or after.exchanged,
    )
