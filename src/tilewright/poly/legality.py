"""Does a scheduled function still compute what it did? The exact judge of schedule steps.

:func:`check_legal` compares two loop functions of the same arguments:

* every instance of a stage that both have reads values of the same provenance, argument by argument
  (reductions may be reordered, copies and inlined stages are looked through);
* the outputs end with the same values, no instance of a stage that writes an output is lost or invented;
* iterations of parallel, vector and thread loops touch no common memory that one of them writes, and no
  access that surely happens leaves its buffer.

Stages are matched by name, instances by the values of their iterators, loads by their place in the stage's
expression. The list mode enumerates concrete sizes and is exact; use it with small ones. The isl mode
holds for all sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.ir import LoopFunction
from tilewright.poly.dataflow import Dataflow, dataflow
from tilewright.poly.instances import list_instances
from tilewright.poly.provenance import Key, Prints, Provenance, instance_prints, key_of, provenance
from tilewright.poly.races import races
from tilewright.poly.symbolic import check_symbolic
from tilewright.poly.values import Ints
from tilewright.poly.violations import Violation, same_computation


@dataclass(frozen=True, slots=True)
class Listing:
    """A function with its listed dataflow; keep it to compare one function with several others."""

    flow: Dataflow

    @property
    def stages(self) -> frozenset[str]:
        """Names of the stages that execute at all."""
        return frozenset(s.stage for s in self.flow.instances.statements)


def list_function(func: LoopFunction, params: Mapping[str, int] | None = None) -> Listing:
    """The dataflow of ``func`` for concrete parameters; raises as :func:`list_instances` does."""
    return Listing(dataflow(list_instances(func, params)))


def check_legal(
    before: LoopFunction | Listing,
    after: LoopFunction | Listing,
    params: Mapping[str, int] | None = None,
    *,
    mode: Literal["list", "isl"] = "list",
) -> list[Violation]:
    """All ways in which ``after`` fails to do what ``before`` does, for the given parameters; empty: legal.

    ``before`` may be any earlier state of the same program; the unscheduled one judges most strictly, since
    stages that only one side has count as copies. Pass a :class:`Listing` for a side that is compared often.
    ``mode`` ``isl`` judges relations instead of listed instances, for all values of parameters not given.
    Raises :class:`~tilewright.support.ResourceError` where there are too many instances to list.
    """
    if mode == "isl":
        return check_symbolic(_function(before), _function(after), params)
    a = before if isinstance(before, Listing) else list_function(before, params)
    b = after if isinstance(after, Listing) else list_function(after, params)
    shared = a.stages & b.stages
    old = provenance(a.flow, shared)
    new = provenance(b.flow, shared, old)
    out: list[Violation] = []
    out.extend(_bounds(b.flow))
    out.extend(_stages(old, new, shared))
    out.extend(_outputs(old, new))
    for r in races(b.flow.instances):
        out.append(
            Violation(
                "race",
                r.stages[0],
                f"{r.who} conflict on {r.buffer}: {r.first} writes what {r.second} accesses",
            )
        )
    return out


def _function(f: LoopFunction | Listing) -> LoopFunction:
    return f.flow.instances.function if isinstance(f, Listing) else f


def _bounds(flow: Dataflow) -> list[Violation]:
    return [
        Violation("bounds", block, f"an access of block {block} leaves the buffer {buffer}")
        for buffer, block in flow.instances.outside
        if block
    ]


def _grouped(p: Provenance, shared: frozenset[str]) -> dict[Key, list[int]]:
    out: dict[Key, list[int]] = {}
    for k, s in enumerate(p.flow.instances.statements):
        if s.stage in shared:
            out.setdefault(key_of(s), []).append(k)
    return out


def _stages(old: Provenance, new: Provenance, shared: frozenset[str]) -> list[Violation]:
    out: list[Violation] = []
    before, after = _grouped(old, shared), _grouped(new, shared)
    for key, members in after.items():
        if key in before:
            out.extend(_statement(old, before[key], new, members))
    arguments = {b.name for b in new.flow.instances.function.buffers}
    for key, members in before.items():
        first = old.flow.instances.statements[members[0]]
        if key[1] == "body" and any(w.buffer in arguments for w in first.writes):
            out.extend(_coverage(old, members, new, after.get(key, []), arguments))
    return out


def _prints(p: Provenance, members: list[int]) -> Prints:
    return np.concatenate([instance_prints(p.flow.instances.statements[k]) for k in members])


def _instance(p: Provenance, members: list[int], position: int) -> tuple[int, int]:
    """Statement and row of a position in the concatenation of several statements."""
    for k in members:
        n = p.flow.instances.statements[k].count
        if position < n:
            return k, position
        position -= n
    raise AssertionError


def _coverage(
    old: Provenance, was: list[int], new: Provenance, now: list[int], arguments: Set[str]
) -> list[Violation]:
    """Instances of a stage that wrote arguments: none may be missing, and none that still does may be new.

    One that writes a staged copy instead may run outside of its domain: nothing reads what it makes there.
    """
    expected = _prints(old, was)
    actual = _prints(new, now) if now else np.zeros(0, np.uint64)
    out: list[Violation] = []
    missing = ~np.isin(expected, actual)
    if missing.any():
        k, row = _instance(old, was, int(np.flatnonzero(missing)[0]))
        s = old.flow.instances.statements[k]
        count = int(missing.sum())
        out.append(Violation("missing", s.stage, f"{s.describe(row)} never runs ({count} instances in all)"))
    direct = [k for k in now if any(w.buffer in arguments for w in new.flow.instances.statements[k].writes)]
    extra = ~np.isin(_prints(new, direct), expected) if direct else np.zeros(0, bool)
    if extra.any():
        k, row = _instance(new, direct, int(np.flatnonzero(extra)[0]))
        s = new.flow.instances.statements[k]
        count = int(extra.sum())
        out.append(
            Violation("extra", s.stage, f"{s.describe(row)} is outside of its domain ({count} in all)")
        )
    return out


Slots = dict[int, int | None]
"""Per statement which of its reads is compared; ``None``: all of them, as one set of values."""


def _compared(old: Provenance, was: list[int], new: Provenance, now: list[int]) -> list[tuple[Slots, Slots]]:
    """What is compared of one statement, before and after: its reads one by one where it is the same text.

    Of other expressions it is all values they depend on, and apart from these where accumulations start:
    neither a constant nor an undefined start would count among them.
    """
    before, after = ([p.flow.instances.statements[k] for k in ks] for p, ks in ((old, was), (new, now)))
    if all(same_computation(before[0], s) for s in (*before[1:], *after)):
        slots = range(len(before[0].reads))
        return [(dict.fromkeys(was, r), dict.fromkeys(now, r)) for r in slots]
    out: list[tuple[Slots, Slots]] = []
    for w in range(len(before[0].writes)):
        mine, theirs = ({k: p.accumulators.get((k, w)) for k in ks} for p, ks in ((old, was), (new, now)))
        if None not in mine.values() and None not in theirs.values():
            out.append((mine, theirs))
    return [*out, (dict.fromkeys(was), dict.fromkeys(now))]


def _statement(old: Provenance, was: list[int], new: Provenance, now: list[int]) -> list[Violation]:
    """Compare what the instances of one statement read."""
    statements = new.flow.instances.statements
    expected = _prints(old, was)
    order = np.argsort(expected, kind="stable")
    ordered = expected[order]
    compared = _compared(old, was, new, now)
    wanted = [_column(old, mine) for mine, _ in compared]
    out: list[Violation] = []
    for k in now:
        prints = instance_prints(statements[k])
        at = np.minimum(np.searchsorted(ordered, prints), len(ordered) - 1)
        known = ordered[at] == prints
        for (mine, theirs), column in zip(compared, wanted, strict=True):
            differs = known & (column[order][at] != _column(new, {k: theirs[k]}))
            if differs.any():
                row = int(np.flatnonzero(differs)[0])
                there = _instance(old, was, int(order[at[row]]))
                out.append(_flow_violation(old, there, mine, new, (k, row), theirs, int(differs.sum())))
                break
    return out


def _column(p: Provenance, slots: Slots) -> Prints:
    return np.concatenate([p.origins(k) if r is None else p.column(k, r) for k, r in slots.items()])


def _flow_violation(
    old: Provenance,
    there: tuple[int, int],
    mine: Slots,
    new: Provenance,
    here: tuple[int, int],
    theirs: Slots,
    count: int,
) -> Violation:
    s = new.flow.instances.statements[here[0]]
    where = f"{s.describe(here[1])} ({count} instances in all)"
    was, now = mine[there[0]], theirs[here[0]]
    if was is None or now is None:
        return Violation("flow", s.stage, f"{where} depends on other values than before")
    return Violation(
        "flow",
        s.stage,
        f"{where} reads {s.reads[now].load or s.reads[now].buffer} from {_source(new, *here, now)},"
        f" before from {_source(old, *there, was)}",
    )


def _source(p: Provenance, k: int, row: int, slot: int) -> str:
    """In words what a read gets."""
    read = p.flow.instances.statements[k].reads[slot]
    at = np.flatnonzero(read.rows == row)
    if (k, slot) in p.chains:
        starts = p.chains[k, slot]
        node = int(p.root[starts[at[0] if read.spread else row]])
        return f"an accumulation started from {p.flow.describe(node)}"
    if not len(at):
        return "nothing"
    names = dict.fromkeys(p.flow.describe(int(p.root[p.flow.sources[k][slot][n]])) for n in at[:4])
    return " or ".join(names)


def _outputs(old: Provenance, new: Provenance) -> list[Violation]:
    out: list[Violation] = []
    for name, was in old.flow.final.items():
        now = new.flow.final.get(name)
        if now is None or len(now) != len(was):
            out.append(Violation("arguments", name, f"the output {name} is gone or has another shape"))
            continue
        differs = _values(old, was) != _values(new, now)
        if differs.any():
            n = int(np.flatnonzero(differs)[0])
            out.append(
                Violation(
                    "final",
                    name,
                    f"element {n} of {name} ends as {_two_values(new, int(now[n]), old, int(was[n]))}"
                    f" ({int(differs.sum())} elements in all)",
                )
            )
    return out


def _two_values(new: Provenance, now: int, old: Provenance, was: int) -> str:
    """Two definitions in words, told apart where only the course of a reduction differs."""
    mine, theirs = new.flow.describe(int(new.root[now])), old.flow.describe(int(old.root[was]))
    if mine == theirs:
        mine += ", the end of another reduction,"
    return f"{mine}, before as {theirs}"


def _values(p: Provenance, definitions: Ints) -> Prints:
    out: Prints = p.prints[p.root[definitions]]
    return out
