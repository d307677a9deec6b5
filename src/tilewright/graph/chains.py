"""Chains of groups that one kernel computes part by part: each group alone reads the one before.

    scores  = q @ k.T · scale + mask        contraction with its epilogue        [heads, rows, keys]
    weights = softmax(scores)               reduction over the last axis         [heads, rows, keys]
    context = weights @ v                   contraction over that axis           [heads, rows, features]

A row of the first contraction's result needs no other row on its way to the end, so a kernel that computes a
few rows at a time keeps them in the nearest cache level. What makes a chain is read off the computations: the
axis that the middle reduces is the one that the last sums over. Such chains are joined, but where values are
cut: whoever knows the machine cuts those that are slower so.

Contractions that follow one another directly, an image's expansion, its depthwise filter and the projection,
may be computed in bands of rows. Whether that pays depends on the machine: see `contraction_runs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.graph.fusion_options import FusionOptions
from tilewright.graph.groups import NAME_LENGTH, Group, Partition
from tilewright.graph.model import Graph, Node
from tilewright.graph.program import nodes_program
from tilewright.graph.registry import Kind, find_operator
from tilewright.graph.rows import reduced_axes
from tilewright.ir import dtype_of, stmt_loads

#: Rows of a register tile, about: so many must fit in the share of the cache.
_TILE_ROWS = 16


@dataclass(frozen=True, slots=True)
class JoinChains:
    """A contraction, a reduction over its rows, a contraction with the rows: attention."""

    name: str = "chains"

    def __call__(self, graph: Graph, groups: Sequence[Group], options: FusionOptions) -> Sequence[Group]:
        """The groups, chains of three joined where rows take no more of the cache than they may."""
        if not options.chains:
            return groups
        readers = {value: found for value, found in _readers(groups).items() if value not in options.cuts}
        joined: dict[int, Group | None] = {}
        for first in groups:
            rows = _only_reader(graph, readers, first)
            last = None if rows is None else _only_reader(graph, readers, rows)
            if rows is None or last is None or not {id(first), id(rows), id(last)}.isdisjoint(joined):
                continue
            if _is_chain(graph, first, rows, last, options.chain_bytes):
                joined[id(first)] = joined[id(rows)] = None
                joined[id(last)] = join_groups(first, rows, last)
        found = [joined.get(id(group), group) for group in groups]
        return [group for group in found if group is not None]


def contraction_runs(partition: Partition) -> list[tuple[Group, ...]]:
    """The longest runs of contractions of which each alone reads the one before."""
    graph = partition.graph
    readers = _readers(partition.groups)
    after: dict[int, Group] = {}
    for group in partition.groups:
        reader = _only_reader(graph, readers, group)
        plain = group.kind is Kind.CONTRACTION and not group.how.order
        if plain and reader is not None and reader.kind is Kind.CONTRACTION:
            after[id(group)] = reader
    inside = {id(group) for group in after.values()}
    runs: list[tuple[Group, ...]] = []
    for group in partition.groups:
        if id(group) in after and id(group) not in inside:
            run = [group]
            while id(run[-1]) in after:
                run.append(after[id(run[-1])])
            runs.append(tuple(run))
    return runs


def join_groups(*groups: Group) -> Group:
    """One group of several of which each alone reads the one before; its output is stored as the last's."""
    first, last = groups[0], groups[-1]
    through = frozenset(value for group in groups for value in group.how.through)
    nodes = {id(node): node for group in groups for node in group.nodes}
    made = {group.outputs[0] for group in groups[:-1]}
    inputs = (value for group in groups for value in group.inputs)
    return replace(
        last,
        stem="_".join(group.stem for group in groups)[:NAME_LENGTH],
        number=first.number,
        nodes=tuple(nodes.values()),
        inputs=tuple(dict.fromkeys(value for value in inputs if value not in made)),
        joints=tuple(value for group in groups for value in (*group.joints, *group.outputs))[:-1],
        how=replace(last.how, through=through),
    )


def _readers(groups: Sequence[Group]) -> dict[str, list[Group]]:
    readers: dict[str, list[Group]] = {}
    for group in groups:
        for value in group.inputs:
            readers.setdefault(value, []).append(group)
    return readers


def _only_reader(graph: Graph, readers: dict[str, list[Group]], group: Group) -> Group | None:
    """The group that alone reads the only output of this one, not through a view."""
    if len(group.outputs) != 1 or graph.is_output(group.outputs[0]):
        return None
    found = readers.get(group.outputs[0], [])
    inside = {id(node) for node in found[0].nodes} if len(found) == 1 else set()
    alone = all(id(reader) in inside for reader in graph.consumers(group.outputs[0]))
    return found[0] if inside and alone else None


def _is_chain(graph: Graph, first: Group, rows: Group, last: Group, most_bytes: int) -> bool:
    if (first.kind, rows.kind, last.kind) != (Kind.CONTRACTION, Kind.REDUCTION, Kind.CONTRACTION):
        return False
    if first.how.order or rows.how.order:
        return False
    scores, weights = graph.types[first.outputs[0]], graph.types[rows.outputs[0]]
    if scores.shape != weights.shape or scores.dtype != weights.dtype or scores.rank < 2:
        return False
    if scores.sizes[-1] * dtype_of(scores.dtype).bytes * _TILE_ROWS > most_bytes:
        return False
    axis = frozenset({scores.rank - 1})
    reductions = [node for node in rows.nodes if _kind(node) is Kind.REDUCTION]
    if any(reduced_axes(node, graph.types, graph.constants) != axis for node in reductions):
        return False
    return _summed_axes(graph, last, rows.outputs[0]) == axis


def _kind(node: Node) -> Kind | None:
    entry = find_operator(node)
    return None if entry is None else entry.kind


def _summed_axes(graph: Graph, group: Group, value: str) -> frozenset[int]:
    """The axes of `value` that the contraction of the group sums over; none where it is not an operand."""
    for node in group.nodes:
        if _kind(node) is Kind.CONTRACTION and value in node.inputs:
            made = nodes_program([node], graph.types, graph.constants, node.used_outputs)
            names = {name for name, source in made.inputs.items() if source == value}
            found = [
                (at, index.vars & {it.name for it in stage.iters if it.kind == "red"})
                for stage in made.program.stages
                for load in stmt_loads(stage.body)
                if load.buffer in names
                for at, index in enumerate(load.indices)
            ]
            return frozenset(at for at, reduced in found if reduced)
    return frozenset()
