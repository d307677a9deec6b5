"""Fusion groups: which nodes are computed by one kernel.

Every node that is not a view belongs to one group; views cost nothing, their output is another value's
buffer. A group grows from an *anchor*:

    contraction, window   takes the element-wise operations after it that keep its shape (bias, activation,
                          residual), and a transposition at the end; reads its operands through transpositions
                          and slices where that is index arithmetic without division
    reduction             takes what works on the same rows: element-wise operations and further reductions,
                          in both directions (softmax, layer norm written out, mean of squares ...)
    element-wise          takes element-wise operations of the same shape
    movement, gather      takes element-wise operations of the same shape after it

A contraction, a reduction of its rows and a contraction with these are joined (`chains.py`): attention.

A group has one output wherever it has more than one node, so the groups can be ordered: see `_Fuser.grow`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.graph.chains import JoinChains
from tilewright.graph.dependence import Ancestors
from tilewright.graph.depth import expression_depth
from tilewright.graph.fusion_options import Fusion, FusionOptions
from tilewright.graph.groups import NAME_LENGTH, Group, Partition
from tilewright.graph.model import Graph, Node
from tilewright.graph.movement import affine_chain
from tilewright.graph.program import Build
from tilewright.graph.registry import Kind, find_operator
from tilewright.graph.rows import reduced_axes
from tilewright.support import Catalog, InternalError

#: The ways of joining groups, in order: those of other packages (``tilewright.fusions``) first.
FUSIONS: Final[Catalog[str, Fusion]] = Catalog("fusions", (JoinChains(),))

_ANCHORS: Final = (
    (Kind.CONTRACTION, Kind.WINDOW),
    (Kind.REDUCTION,),
    (Kind.ELEMENTWISE,),
    (Kind.GATHER, Kind.MOVEMENT),
    (Kind.OPAQUE,),
)


def fuse(graph: Graph, options: FusionOptions | None = None) -> Partition:
    """Partition a graph into groups. Every output of the model is available after the last group."""
    return _Fuser(graph, options or FusionOptions()).run()


@dataclass(frozen=True, slots=True, eq=False)
class _Region:
    """A group in the making: positions of nodes, and the transposition that orders the stored output."""

    kind: Kind
    members: tuple[int, ...]
    transposition: Node | None = None


class _Fuser:
    def __init__(self, graph: Graph, options: FusionOptions) -> None:
        self.graph = graph
        self.options = options
        self.kinds = [_kind(node) for node in graph.nodes]
        self.ancestors = Ancestors.of(graph)
        self.position = {id(node): at for at, node in enumerate(graph.nodes)}
        self.places = {
            value
            for node, kind in zip(graph.nodes, self.kinds, strict=True)
            if kind is Kind.GATHER
            for value in node.inputs[1:]
            if value and graph.types[value].dtype.startswith(("i", "u"))
        }
        self.taken: set[int] = set()
        self.axes: dict[int, frozenset[int]] = {}
        self.depths: dict[tuple[str, ...], int] = {}
        # Outputs of transpositions that contractions store in their order.
        self.stored: set[str] = set()

    def run(self) -> Partition:
        regions: list[_Region] = []
        for kinds in _ANCHORS:
            for at, kind in enumerate(self.kinds):
                if kind in kinds and at not in self.taken:
                    members = self.grow(at, kind)
                    self.taken.update(members)
                    regions.append(_Region(kind, tuple(members), self.transposition(kind, members)))
        views: dict[str, str] = {}
        for node, kind in zip(self.graph.nodes, self.kinds, strict=True):
            if kind is Kind.VIEW:
                views[node.outputs[0]] = views.get(node.inputs[0], node.inputs[0])
        groups: Sequence[Group] = _needed(self.graph, [self.group(region) for region in regions], views)
        for joined in FUSIONS.values():
            groups = joined(self.graph, groups, self.options)
        return Partition(self.graph, _ordered(groups, views), views)

    def grow(self, anchor: int, kind: Kind) -> list[int]:
        """The largest region around the anchor, found greedily, of which one value is used outside.

        Nodes are added in topological order; additions that leave several values in use outside are kept only
        if later ones make that good (both branches of a GELU, say, before they meet). As a value leaves a
        region only at its end, and no path leaves a region and returns (`leaves_and_returns`), a cycle among
        groups would be a cycle among nodes.
        """
        if kind is Kind.OPAQUE or len(self.graph.nodes[anchor].used_outputs) != 1:
            return [anchor]
        accepts = self.acceptance(anchor, kind)
        region = [anchor]
        if kind is Kind.REDUCTION and self.options.reductions:
            region = self.with_producers(region, accepts)
        best = list(region)
        while len(region) < self.options.max_nodes:
            candidate = self.next_node(region, accepts)
            if candidate is None:
                break
            region = sorted([*region, candidate])
            if kind in (Kind.CONTRACTION, Kind.WINDOW):
                region = self.with_dequantised(region, candidate, accepts)
                region = self.with_scaled(region, candidate)
            if kind is Kind.REDUCTION and self.options.reductions:
                region = self.with_producers(region, accepts)
            if len(self.leaving(region)) == 1:
                best = list(region)
        return self.without_dequantising(best)

    def with_dequantised(self, region: list[int], reader: int, accepts: _Acceptance) -> list[int]:
        """The region with what alone makes operands of its node `reader` wider: they are read as stored."""
        for value in self.graph.nodes[reader].used_inputs:
            maker = self.ancestors.makers.get(value)
            if maker is None or maker in region or not self.dequantises(maker):
                continue
            readers = {self.position[id(node)] for node in self.graph.consumers(value)}
            if readers <= set(region) and not self.stays(value) and self.fits(maker, region, accepts):
                region = sorted([*region, maker])
        return region

    def with_scaled(self, region: list[int], reader: int) -> list[int]:
        """The region with what alone makes operands of its node `reader` of a constant and a run's number.

        Zero points times sums of weights are such: the constant is read in place of the product.
        """
        shape = self.graph.types[self.graph.nodes[reader].outputs[0]].shape
        for value in self.graph.nodes[reader].used_inputs:
            maker = self.ancestors.makers.get(value)
            if maker is None or maker in region or maker in self.taken or self.stays(value):
                continue
            node, its = self.graph.nodes[maker], self.graph.types[value].shape
            alone = len(self.graph.consumers(value)) == 1 and len(node.used_outputs) == 1
            same_axes = len(its) == len(shape) and all(n in (1, m) for n, m in zip(its, shape, strict=True))
            known = all(
                v in self.graph.constants or self.graph.types[v].shape in ((), (1,)) for v in node.used_inputs
            )
            if alone and same_axes and known and self.kinds[maker] is Kind.ELEMENTWISE:
                region = sorted([*region, maker])
        return region

    def without_dequantising(self, region: list[int]) -> list[int]:
        """The region without a last step that only makes its result wider: readers do that."""
        if len(region) > 1 and self.dequantises(region[-1]):
            made = set(self.graph.nodes[region[-1]].used_inputs)
            rest = [at for at in region if at != region[-1]]
            if made.intersection(v for at in rest for v in self.graph.nodes[at].used_outputs):
                return rest
        return region

    def dequantises(self, at: int) -> bool:
        """Whether a node gives quantised elements their values."""
        return self.graph.nodes[at].op == "DequantizeLinear" and not self.graph.nodes[at].domain

    def acceptance(self, anchor: int, kind: Kind) -> _Acceptance:
        node = self.graph.nodes[anchor]
        types = self.graph.types
        shape = types[node.outputs[0]].shape
        match kind:
            case Kind.CONTRACTION | Kind.WINDOW:
                allowed = frozenset({shape}) if self.options.epilogues else frozenset()
                return _Acceptance(allowed)
            case Kind.REDUCTION if self.options.reductions:
                full = types[node.inputs[0]].shape
                axes = self.reduced(anchor)
                rows = tuple(1 if axis in axes else size for axis, size in enumerate(full))
                return _Acceptance(frozenset({shape, full, rows}), full, axes)
            case Kind.REDUCTION:
                return _Acceptance(frozenset())
            case _:
                return _Acceptance(frozenset({shape}) if self.options.elementwise else frozenset())

    def fits(self, at: int, region: Sequence[int], accepts: _Acceptance) -> bool:
        """Whether a node works on what the region works on."""
        node, kind = self.graph.nodes[at], self.kinds[at]
        types = self.graph.types
        if (
            at in self.taken
            or len(node.used_outputs) != 1
            or types[node.outputs[0]].shape not in accepts.shapes
        ):
            return False
        if len(region) > 1 and sum(map(self.depth, (*region, at))) > self.options.max_depth:
            return False
        if kind is Kind.REDUCTION and accepts.full is not None:
            same = types[node.inputs[0]].shape == accepts.full
            return same and self.reduced(at) == accepts.axes
        if kind is not Kind.ELEMENTWISE:
            return False
        # Rows without their reduced axes would be aligned with other axes by broadcasting.
        rank = types[node.outputs[0]].rank
        return all(
            types[value].rank == rank
            for value in node.used_inputs
            if self.ancestors.makers.get(value) in region
        )

    def reduced(self, at: int) -> frozenset[int]:
        """The axes that a node reduces, looked up once."""
        if at not in self.axes:
            self.axes[at] = reduced_axes(self.graph.nodes[at], self.graph.types, self.graph.constants)
        return self.axes[at]

    def depth(self, at: int) -> int:
        """How deep a node's expressions nest, looked up once for each operator and element types."""
        node, types = self.graph.nodes[at], self.graph.types
        key = (node.domain, node.op, *(types[value].dtype for value in node.used_inputs))
        if key not in self.depths:
            self.depths[key] = expression_depth(node, types, self.graph.constants)
        return self.depths[key]

    def next_node(self, region: Sequence[int], accepts: _Acceptance) -> int | None:
        """The first node after the region that reads from it and fits."""
        readers = {
            self.position[id(reader)]
            for value in self.leaving(region)
            for reader in self.graph.consumers(value)
        }
        for at in sorted(readers.difference(region)):
            node = self.graph.nodes[at]
            if self.fits(at, region, accepts) and not self.ancestors.leaves_and_returns(
                region, node.used_inputs
            ):
                return at
        return None

    def with_producers(self, region: list[int], accepts: _Acceptance) -> list[int]:
        """The region and the fitting nodes before it whose results it alone reads."""
        pending = list(region)
        while pending:
            for value in self.graph.nodes[pending.pop()].used_inputs:
                maker = self.ancestors.makers.get(value)
                if maker is None or maker in region or self.stays(value):
                    continue
                readers = {self.position[id(reader)] for reader in self.graph.consumers(value)}
                if self.ancestors.leaves_and_returns(region, self.graph.nodes[maker].used_inputs):
                    continue
                moved = self.kinds[maker] in (Kind.GATHER, Kind.MOVEMENT) and maker not in self.taken
                single = len(self.graph.nodes[maker].used_outputs) == 1
                same = moved and single and self.graph.types[value].shape == accepts.full
                if readers <= set(region) and (same or self.fits(maker, region, accepts)):
                    region = sorted([*region, maker])
                    pending.append(maker)
        return region

    def stays(self, value: str) -> bool:
        """Whether a value is stored, whoever reads it: the model returns it, groups are cut there, or runs
        look whether the places that it holds are in range.
        """
        return value in self.options.cuts or value in self.places or self.graph.is_output(value)

    def leaving(self, region: Sequence[int]) -> list[str]:
        """The values made in the region that are read outside of it, or that the model returns."""
        inside = set(region)
        return [
            value
            for at in region
            for value in self.graph.nodes[at].used_outputs
            if self.stays(value)
            or any(self.position[id(reader)] not in inside for reader in self.graph.consumers(value))
        ]

    def transposition(self, kind: Kind, members: Sequence[int]) -> Node | None:
        """The transposition that alone reads a contraction's output; it is taken."""
        leaving = self.leaving(members)
        if kind is not Kind.CONTRACTION or not self.options.transposed_outputs or len(leaving) != 1:
            return None
        readers = self.graph.consumers(leaving[0])
        if len(readers) != 1 or self.stays(leaving[0]):
            return None
        at = self.position[id(readers[0])]
        if readers[0].op != "Transpose" or readers[0].domain or at in self.taken:
            return None
        self.taken.add(at)
        self.stored.update(readers[0].used_outputs)
        return readers[0]

    def group(self, region: _Region) -> Group:
        """The group of a region, with the movement that its contraction reads and writes through."""
        nodes = [self.graph.nodes[at] for at in region.members]
        outputs = self.leaving(region.members)
        if nodes[0].repeat is not None:
            # what the next run reads is made whether or not anyone else reads it
            outputs = list(nodes[0].used_outputs)
        through: dict[int, Node] = {}
        if region.kind is Kind.CONTRACTION and self.options.through_movement:
            anchor = next(at for at in region.members if self.kinds[at] is Kind.CONTRACTION)
            for value in self.graph.nodes[anchor].used_inputs:
                through |= {
                    self.position[id(node)]: node for node in affine_chain(self.graph, value, self.stored)
                }
        how = Build(frozenset(value for node in through.values() for value in node.used_outputs))
        name = "_".join(dict.fromkeys(node.op.lower() for node in nodes))[:NAME_LENGTH]
        if region.transposition is not None:
            order = _permutation(self.graph, region.transposition)
            how = Build(how.through, order, frozenset(v for node in nodes for v in node.used_outputs))
            # The transposition itself is not built: its output is the last value as it is stored.
            how = replace(how, renamed=((region.transposition.outputs[0], outputs[0]),))
            outputs = list(region.transposition.outputs)
        nodes = [*(through[at] for at in sorted(through)), *nodes]
        made = {value for node in nodes for value in node.used_outputs}
        inputs = dict.fromkeys(
            value
            for node in nodes
            for value in _read_inputs(node)
            if value not in made and not _is_literal(self.graph, value)
        )
        return Group(name, region.members[0], region.kind, tuple(nodes), tuple(inputs), tuple(outputs), how)


@dataclass(frozen=True, slots=True)
class _Acceptance:
    """What a region may take in: nodes whose outputs have these shapes; reductions of `full` over `axes`."""

    shapes: frozenset[tuple[int | str, ...]]
    full: tuple[int | str, ...] | None = None
    axes: frozenset[int] = frozenset()


def _kind(node: Node) -> Kind:
    entry = find_operator(node)
    if entry is None:
        raise InternalError(f"no definition of {node.op}")
    return entry.kind


def _read_inputs(node: Node) -> tuple[str, ...]:
    """The inputs whose elements a kernel may read: static ones are known when compiling."""
    entry = find_operator(node)
    static = entry.static if entry is not None else ()
    return tuple(value for at, value in enumerate(node.inputs) if value and at not in static)


def _is_literal(graph: Graph, value: str) -> bool:
    array = graph.constant(value)
    return array is not None and array.size == 1


def _permutation(graph: Graph, node: Node) -> tuple[int, ...]:
    rank = graph.types[node.inputs[0]].rank
    perm = node.attributes.get("perm", tuple(range(rank - 1, -1, -1)))
    assert isinstance(perm, tuple)
    return tuple(int(axis) for axis in perm)


def _needed(graph: Graph, groups: Sequence[Group], views: Mapping[str, str]) -> list[Group]:
    """The groups that the model's outputs need: not movement that all its readers read through."""
    makers = {value: group for group in groups for value in group.outputs}
    pending = [views.get(value, value) for value in graph.outputs]
    kept: set[int] = set()
    while pending:
        group = makers.get(pending.pop())
        if group is not None and id(group) not in kept:
            kept.add(id(group))
            pending += [views.get(value, value) for value in group.inputs]
    return [group for group in groups if id(group) in kept]


def _ordered(groups: Sequence[Group], views: Mapping[str, str]) -> tuple[Group, ...]:
    """The groups so that each comes after those it reads from; otherwise as the model has them."""
    makers = {value: at for at, group in enumerate(groups) for value in group.outputs}
    needs = [
        {makers[source] for value in group.inputs if (source := views.get(value, value)) in makers}
        for group in groups
    ]
    readers: dict[int, list[int]] = {}
    for at, need in enumerate(needs):
        for maker in need:
            readers.setdefault(maker, []).append(at)
    place = [group.number for group in groups]
    ready = [(place[at], at) for at, need in enumerate(needs) if not need]
    heapq.heapify(ready)
    waiting = [len(need) for need in needs]
    order: list[Group] = []
    while ready:
        _, at = heapq.heappop(ready)
        order.append(groups[at])
        for reader in readers.get(at, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, (place[reader], reader))
    if len(order) != len(groups):
        raise InternalError("the fusion groups depend on one another in a cycle")
    return tuple(order)
