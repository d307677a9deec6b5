"""What a value is, independent of how it was stored: definitions reduced to 64-bit fingerprints.

Two programs compute the same when their instances read values of equal provenance. The provenance of a value
is the instance that computed it (stage, iterators), an element of an argument, or a constant. Copies, and
stages that only one of the programs has, are looked through. A reduction may run in any order: its
accumulator counts as the value it started from, a finished sum as one value, whichever instance came last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from tilewright.ir import Const, Expr, Load, Select, Store
from tilewright.poly.dataflow import Dataflow
from tilewright.poly.statements import Statement
from tilewright.poly.values import Bools, Ints, scalar
from tilewright.poly.violations import constant_value

Prints = npt.NDArray[np.uint64]
Key = tuple[str, str, int]

_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: the increment of splitmix64


def fingerprint(*parts: object) -> int:
    """64 bits that depend on the printed parts only."""
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def mix(x: Prints) -> Prints:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit changes half of the output."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


UNDEFINED = fingerprint("undefined")
OUTSIDE = fingerprint("outside")


def key_of(s: Statement) -> Key:
    """What identifies a statement across programs."""
    return s.stage, s.part, s.position


def instance_prints(s: Statement, *parts: object, reductions: bool = True) -> Prints:
    """Fingerprints of a statement's instances, with or without the values of reduction iterators."""
    out = np.full(s.count, fingerprint(*key_of(s), *parts), np.uint64)
    for n, (name, kind, column) in enumerate(zip(s.names, s.kinds, s.coords, strict=True)):
        if kind == "red" and not reductions:
            continue
        salt = np.uint64(fingerprint(name if kind != "loop" else n))
        out += mix(column.astype(np.uint64) * _ODD ^ salt)
    return mix(out)


@dataclass(frozen=True, slots=True)
class Needed:
    """What completes a reduction: its ``places``, the ``counts`` of instances of each, all ``instances``."""

    places: Prints
    counts: Ints
    instances: Prints


@dataclass(frozen=True, slots=True)
class Provenance:
    """Fingerprints of all definitions of one function, relative to a set of stages.

    ``prints[root[d]]`` is the fingerprint of definition ``d``. ``chains[s, r]`` exists where read ``r`` of
    statement ``s`` is an accumulator; ``accumulators[s, w]`` is such a read of what write ``w`` replaces.
    ``needed`` says, per reducing write, what completes it. ``computed`` are the statements of foreign stages
    that are no copies.
    """

    flow: Dataflow
    prints: Prints
    root: Ints
    chains: Mapping[tuple[int, int], Ints]
    accumulators: Mapping[tuple[int, int], int]
    needed: Mapping[tuple[Key, int], Needed]
    computed: frozenset[int]
    constants: frozenset[int] = field(repr=False)

    def column(self, s: int, r: int) -> Prints:
        """Per instance the fingerprint of what read ``r`` of statement ``s`` gets; 0 where it is skipped."""
        statement = self.flow.instances.statements[s]
        read = statement.reads[r]
        if (s, r) in self.chains:
            starts = self.prints[self.root[self.chains[s, r]]]
            return _set_prints(read.rows, starts, statement.count) if read.spread else starts
        values = self.prints[self.root[self.flow.sources[s][r]]]
        if read.spread:
            return _set_prints(read.rows, values, statement.count)
        out = np.zeros(statement.count, np.uint64)
        out[read.rows] = values
        return out

    def origins(self, s: int) -> Prints:
        """Per instance a fingerprint of the set of values it depends on, foreign computations looked through.

        Constants and undefined contents do not count: where accumulations start is to be compared apart.
        """
        statement = self.flow.instances.statements[s]
        rows, nodes = self._edges(s)
        done_rows: list[Ints] = []
        done: list[Ints] = []
        while len(rows):
            pairs = np.unique(np.stack([rows, nodes]), axis=1)
            rows, nodes = pairs[0], pairs[1]
            owner = self._owner(nodes)
            foreign = np.isin(owner, list(self.computed))
            done_rows.append(rows[~foreign])
            done.append(nodes[~foreign])
            next_rows: list[Ints] = []
            next_nodes: list[Ints] = []
            for k in np.unique(owner[foreign]):
                at = foreign & (owner == k)
                inner_rows, inner_nodes = self._edges(int(k))
                order = np.argsort(inner_rows, kind="stable")
                inner_rows, inner_nodes = inner_rows[order], inner_nodes[order]
                wanted = self._row(nodes[at], int(k))
                lo = np.searchsorted(inner_rows, wanted, side="left")
                counts = np.searchsorted(inner_rows, wanted, side="right") - lo
                starts = np.repeat(lo - (np.cumsum(counts) - counts), counts)
                next_nodes.append(inner_nodes[starts + np.arange(int(counts.sum()))])
                next_rows.append(np.repeat(rows[at], counts))
            if not next_rows:
                break
            rows, nodes = np.concatenate(next_rows), np.concatenate(next_nodes)
        if not done:
            return np.zeros(statement.count, np.uint64)
        all_rows, values = np.concatenate(done_rows), self.prints[np.concatenate(done)]
        ignored = np.array([UNDEFINED, OUTSIDE, *sorted(self.constants)], np.uint64)
        keep = ~np.isin(values, ignored)
        return _set_prints(all_rows[keep], values[keep], statement.count)

    def _edges(self, s: int) -> tuple[Ints, Ints]:
        """All (instance, definition) pairs of a statement's reads."""
        statement = self.flow.instances.statements[s]
        rows: list[Ints] = [np.zeros(0, np.int64)]
        nodes: list[Ints] = [np.zeros(0, np.int64)]
        for r, read in enumerate(statement.reads):
            if (s, r) in self.chains:
                rows.append(read.rows if read.spread else np.arange(statement.count))
                nodes.append(self.root[self.chains[s, r]])
            else:
                rows.append(read.rows)
                nodes.append(self.root[self.flow.sources[s][r]])
        return np.concatenate(rows), np.concatenate(nodes)

    def _owner(self, nodes: Ints) -> Ints:
        """Per definition the statement that owns it; -1 for contents before the start."""
        bases = [(b, k) for k, bs in enumerate(self.flow.first) for b in bs]
        bounds = np.array([b for b, _ in bases] + [self.flow.written], np.int64)
        owners = np.array([k for _, k in bases] + [-1], np.int64)
        out: Ints = owners[np.searchsorted(bounds, nodes, side="right") - 1]
        return out

    def _row(self, nodes: Ints, s: int) -> Ints:
        """The instances of statement ``s`` that own definitions."""
        out = np.zeros(len(nodes), np.int64)
        for w, base in enumerate(self.flow.first[s]):
            rows = self.flow.rows(s, w)
            own = (nodes >= base) & (nodes < base + len(rows))
            out[own] = rows[nodes[own] - base]
        return out


def _set_prints(rows: Ints, values: Prints, n: int) -> Prints:
    """Per row a fingerprint of the set of its values."""
    out = np.zeros(n, np.uint64)
    if not len(rows):
        return out
    order = np.lexsort((values, rows))
    r, v = rows[order], values[order]
    fresh = np.ones(len(r), np.bool_)
    fresh[1:] = (r[1:] != r[:-1]) | (v[1:] != v[:-1])
    np.add.at(out, r[fresh], mix(v[fresh]))
    return out


def _forward(flow: Dataflow, s: int, w: int, follow: Ints, prints: Prints, constants: set[int]) -> bool:
    """Let the definitions of a copy follow its sources; ``False`` where the statement is no copy."""
    statement = flow.instances.statements[s]
    node = statement.node
    if not isinstance(node, Store) or any(r.load is None or r.spread for r in statement.reads):
        return False
    base = flow.first[s][w]
    pending: list[tuple[Expr, Bools]] = [(node.writes[w].value, np.ones(statement.count, np.bool_))]
    steps: list[tuple[Ints, Ints]] = []
    fixed: list[tuple[Bools, int]] = []
    while pending:
        e, mask = pending.pop()
        match e:
            case Const():
                fixed.append((mask, fingerprint("constant", e)))
            case Load():
                for read, source in zip(statement.reads, flow.sources[s], strict=True):
                    if read.load == e:
                        chosen = mask[read.rows]
                        steps.append((read.rows[chosen], source[chosen]))
            case Select():
                value = scalar(e.cond, statement.env)
                if value is None:
                    return False
                side = np.broadcast_to(np.asarray(value, np.bool_), mask.shape)
                pending += [(e.a, mask & side), (e.b, mask & ~side)]
            case _:
                return False
    for rows, source in steps:
        follow[base + rows] = source
    for mask, value in fixed:
        prints[base : base + statement.count][mask] = value
        constants.add(value)
    return True


def provenance(flow: Dataflow, stages: Collection[str], reference: Provenance | None = None) -> Provenance:
    """Fingerprints of ``flow`` in terms of the given stages; all others are looked through.

    A reduction counts as finished when it has as many instances as in ``reference`` (default: as here).
    """
    inst = flow.instances
    total = flow.written + inst.cells
    prints = np.full(total, UNDEFINED, np.uint64)
    for buffer in inst.function.buffers:
        start, n = flow.written + inst.base[buffer.name], inst.size[buffer.name]
        salt = np.full(n, fingerprint("argument", buffer.name), np.uint64)
        prints[start : start + n] = mix(salt + mix(np.arange(n, dtype=np.uint64) * _ODD))
    for name, base in inst.base.items():
        n, count = inst.size[name], inst.executions.get(name, 1)
        prints[flow.written + base + n - 1 : flow.written + base + n * count : n] = OUTSIDE
    follow = np.arange(total)
    computed: set[int] = set()
    constants: set[int] = set()
    for k, s in enumerate(inst.statements):
        for w, base in enumerate(flow.first[k]):
            constant = constant_value(s, w)
            if constant is not None:
                value = fingerprint("constant", constant)
                prints[base : base + s.count] = value
                constants.add(value)
                continue
            rows = flow.rows(k, w)
            if s.stage in stages:
                prints[base : base + len(rows)] = instance_prints(s, w)[rows]
            elif not _forward(flow, k, w, follow, prints, constants):
                prints[base : base + len(rows)] = instance_prints(s, w, "foreign")[rows]
                computed.add(k)
    while True:
        further = follow[follow]
        if np.array_equal(further, follow):
            break
        follow = further
    chains: dict[tuple[int, int], Ints] = {}
    accumulators: dict[tuple[int, int], int] = {}
    needed: dict[tuple[Key, int], Needed] = {}
    groups: dict[Key, list[int]] = {}
    for k, s in enumerate(inst.statements):
        if s.stage in stages and "red" in s.kinds and isinstance(s.node, Store):
            groups.setdefault(key_of(s), []).append(k)
    for key, members in groups.items():
        writes = len(flow.first[members[0]])
        for w in range(writes):
            given = None if reference is None else reference.needed.get((key, w))
            found = _follow_reduction(flow, members, w, follow, prints, chains, accumulators, given)
            if found is not None:
                needed[key, w] = found
    _tell_cells(flow, follow, prints)
    return Provenance(
        flow, prints, follow, chains, accumulators, needed, frozenset(computed), frozenset(constants)
    )


def _tell_cells(flow: Dataflow, root: Ints, prints: Prints) -> None:
    """Tell cells that one instance may have written by what they held before all such writes."""
    before = root.copy()
    maybe: list[Ints] = []
    for k, s in enumerate(flow.instances.statements):
        for w, (write, base) in enumerate(zip(s.writes, flow.first[k], strict=True)):
            if write.spread and write.kept is not None:
                own = base + np.arange(len(flow.rows(k, w)))
                before[own] = root[flow.sources[k][write.kept]]
                maybe.append(own)
    if not maybe:
        return
    while True:
        further = before[before]
        if np.array_equal(further, before):
            break
        before = further
    cells = np.concatenate(maybe)
    prints[cells] = mix(prints[cells] + mix(prints[before[cells]]))


def _accumulator(flow: Dataflow, k: int, w: int) -> tuple[list[int], Ints, Ints] | None:
    """Reads of a statement that load what its write ``w`` replaces; per replaced cell instance and source.

    Where the exact cell is not known, an instance replaces each that it may write, and what stays in the
    others it accumulates onto as well.
    """
    s = flow.instances.statements[k]
    assert isinstance(s.node, Store)
    if w >= len(s.node.writes):
        return None
    target, write = s.node.writes[w], s.writes[w]
    same = [
        r
        for r, read in enumerate(s.reads)
        if read.load is not None and (read.load.buffer, read.load.indices) == (target.buffer, target.indices)
    ]
    if write.spread:
        if not same or write.kept is None:
            return None
        found = [*same, write.kept]
        reads = [s.reads[r] for r in found]
        together = all(
            np.array_equal(r.rows, write.rows) and np.array_equal(r.cells, write.cells) for r in reads
        )
        return (found, write.rows, flow.sources[k][found[0]]) if together else None
    if any(s.reads[r].spread for r in same):
        return None
    source = np.full(s.count, -1, np.int64)
    for r in same:
        source[s.reads[r].rows] = flow.sources[k][r]
    return None if (source < 0).any() else (same, np.arange(s.count), source)


def _follow_reduction(
    flow: Dataflow,
    members: list[int],
    w: int,
    root: Ints,
    prints: Prints,
    chains: dict[tuple[int, int], Ints],
    accumulators: dict[tuple[int, int], int],
    needed: Needed | None,
) -> Needed | None:
    """Record where each chain of accumulations starts, and give complete ones a common fingerprint."""
    statements = [flow.instances.statements[k] for k in members]
    found = [f for k in members if (f := _accumulator(flow, k, w)) is not None]
    if len(found) < len(members):
        return None
    rows_of = np.full(flow.written + flow.instances.cells, -1, np.int64)
    offset = 0
    for k, (_, rows, _) in zip(members, found, strict=True):
        base = flow.first[k][w]
        rows_of[base : base + len(rows)] = np.arange(offset, offset + len(rows))
        offset += len(rows)
    source = root[np.concatenate([f[2] for f in found])]
    each = list(zip(statements, found, strict=True))
    place = np.concatenate([instance_prints(s, w, "all", reductions=False)[f[1]] for s, f in each])
    full = np.concatenate([instance_prints(s)[f[1]] for s, f in each])
    previous = rows_of[source]
    linked = (previous >= 0) & (place[previous] == place)
    own = np.arange(offset)
    parent = np.where(linked, previous, own)
    length = linked.astype(np.int64)
    while True:
        further = parent[parent]
        if np.array_equal(further, parent):
            break
        length += length[parent]
        parent = further
    if needed is None:
        instances, index = np.unique(full, return_index=True)
        needed = Needed(*np.unique(place[index], return_counts=True), instances)
    at_place = np.minimum(np.searchsorted(needed.places, place), len(needed.places) - 1)
    complete = (needed.places[at_place] == place) & (length + 1 == needed.counts[at_place])
    # no instance twice, and none that the reference does not have
    order = np.lexsort((full, parent))
    p, q = parent[order], full[order]
    wrong = np.zeros(offset, np.bool_)
    wrong[p[np.flatnonzero((p[1:] == p[:-1]) & (q[1:] == q[:-1]))]] = True
    wrong[parent[~np.isin(full, needed.instances)]] = True
    complete &= ~wrong[parent]
    start = source[parent]
    at = 0
    for k, (reads, rows, _) in zip(members, found, strict=True):
        here = slice(at, at + len(rows))
        accumulators[k, w] = reads[0]
        for r in reads:
            chains[k, r] = start[here]
        base = flow.first[k][w]
        part = prints[base : base + len(rows)]
        part[complete[here]] = place[here][complete[here]]
        at += len(rows)
    return needed
