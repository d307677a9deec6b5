"""Tiles of permutable bands, in wavefronts where no loop over tiles is parallel.

``band (i, j, k) -> tiles (i', j', k') -> points (i, j, k)``, after Bondhugula et al. (PLDI 2008). Tiles of a
permutable band may run in any order in which no coordinate falls; on the diagonals ``i' + j' + k'`` those of
one step do not wait for each other. Of the loops over points the one along which rows of arrays lie goes
innermost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import islpy as isl

from tilewright.ir import For, LoopFunction, blocks, locate
from tilewright.poly.budget import limited
from tilewright.poly.dependences import Dependence, Dependences
from tilewright.poly.executions import PARALLEL_MARK, children, type_of
from tilewright.poly.extract import Model
from tilewright.poly.independent import LoopFacts, only_sums
from tilewright.poly.spaces import CONTEXT, DIM, maps_of, sets_of


@dataclass(slots=True, eq=False)
class _Facts:
    """By statement the name that isl gives to its innermost loop over points; what these loops carry.

    ``carried`` are pairs of statements of one band, of which one waits for the other in another iteration of
    its innermost loop alone, and whether only by adding to one sum.
    """

    innermost: dict[str, str] = field(default_factory=dict)
    carried: dict[tuple[str, str], bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Tiled:
    """A schedule in tiles; ``bands`` are the numbers of loops of its bands."""

    schedule: isl.Schedule
    bands: tuple[int, ...]
    _facts: _Facts

    def facts(self, func: LoopFunction) -> LoopFacts:
        """What is known of the innermost loops of the function that was imported from the schedule."""
        free: set[str] = set()
        sums: set[str] = set()
        for place in locate(func.body, For):
            loop = place.node
            names = {b.node.stage for b in blocks(loop)}
            known = {self._facts.innermost.get(name) for name in names}
            if known != {loop.var.split("_")[0]} or len(list(locate(loop, For))) > 1:
                continue
            kinds = [only for (a, b), only in self._facts.carried.items() if a in names and b in names]
            if not kinds:
                free.add(loop.var)
            elif all(kinds):
                sums.add(loop.var)
        return LoopFacts(frozenset(free), frozenset(sums))


@limited("the tiles of {} are too many for isl", "use larger ones, or of fewer statements")
def tiled(dependences: Dependences, schedule: isl.Schedule, sizes: Sequence[int], *, parallel: bool) -> Tiled:
    """A schedule whose outermost permutable bands of two loops or more run in tiles.

    ``sizes`` are points of a tile in each loop of a band; the last is that of further loops, too.
    With ``parallel`` a loop over tiles of each such band is marked parallel.
    """
    facts = _Facts()
    bands: list[int] = []

    def visit(node: isl.ScheduleNode) -> isl.ScheduleNode:
        if type_of(node) == "band" and node.band_n_member() > 1 and node.band_get_permutable():
            bands.append(node.band_n_member())
            return _tiled_band(dependences, node, sizes, parallel, facts)
        for n in range(node.n_children()):
            node = visit(node.child(n)).parent()
        return node

    done = visit(schedule.get_root()).get_schedule()
    return Tiled(done, tuple(bands), facts)


def _tiled_band(
    dependences: Dependences, node: isl.ScheduleNode, sizes: Sequence[int], parallel: bool, facts: _Facts
) -> isl.ScheduleNode:
    partial = node.band_get_partial_schedule()
    members = [partial.get_at(n) for n in range(node.band_n_member())]
    coincident = [bool(node.band_member_get_coincident(n)) for n in range(len(members))]
    points, carried = _order_of_points(dependences, node, members)
    facts.carried |= carried
    widths = [isl.Val.int_from_si(CONTEXT, sizes[min(n, len(sizes) - 1)]) for n in range(len(members))]
    tiles = [m.scale_down_val(width).floor() for m, width in zip(members, widths, strict=True)]
    node = _insert(node.delete(), points)
    mark = isl.Id(PARALLEL_MARK, context=CONTEXT)
    if True in coincident:
        first = coincident.index(True)
        node = _insert(node, [tiles[first], *(t for n, t in enumerate(tiles) if n != first)])
        depth = 1
    elif not parallel:
        node = _insert(node, tiles)
        depth = 1
    else:
        diagonal = tiles[0]
        for t in tiles[1:]:
            diagonal = diagonal.add(t)
        node = _insert(_insert(node, tiles[1:]), [diagonal])
        depth = 2
    for _ in range(depth):
        node = node.child(0)
    node = _points(node, carried, facts)
    for _ in range(depth):
        node = node.parent()
    if not parallel:
        return node
    return node.insert_mark(mark) if depth == 1 else node.child(0).insert_mark(mark).parent()


def over_points(dependences: Dependences, node: isl.ScheduleNode) -> isl.ScheduleNode:
    """A band of two loops or more in the order in which the points of a tile run."""
    partial = node.band_get_partial_schedule()
    members = [partial.get_at(n) for n in range(node.band_n_member())]
    points, carried = _order_of_points(dependences, node, members)
    return _points(_insert(node.delete(), points), carried, _Facts())


def _order_of_points(
    dependences: Dependences, node: isl.ScheduleNode, members: Sequence[isl.UnionPwAff]
) -> tuple[list[isl.UnionPwAff], dict[tuple[str, str], bool]]:
    """The members, that along rows of arrays innermost, and what it carries alone."""
    inner, carried, chained = _innermost(dependences, node, members)
    points = [m for n, m in enumerate(members) if n != inner] + [members[inner]]
    last = node.get_schedule_depth() + len(members)
    if chained or (_deeper(node.child(0), last) and not _forward(node.child(0), carried)):
        # iterations wait for each other: on diagonals of points none does, and their operations overlap
        points[-2:] = [points[-2].add(points[-1]), points[-2]]
        carried = {}
    return points, carried


def _points(node: isl.ScheduleNode, carried: Collection[tuple[str, str]], facts: _Facts) -> isl.ScheduleNode:
    """The band over points: its innermost loop below others, where what it carries goes forward anyway."""
    last = node.get_schedule_depth() + node.band_n_member()
    if _forward(node.child(0), carried) and _deeper(node.child(0), last):
        node = node.band_split(node.band_n_member() - 1)
        node = node.child(0).band_sink().parent()
        for leaf in _leaves(node):
            _know(facts, leaf)
    else:
        for leaf in _leaves(node):
            if leaf.get_schedule_depth() == last:
                _know(facts, leaf)
    return node


def _forward(below: isl.ScheduleNode, carried: Collection[tuple[str, str]]) -> bool:
    """Whether what a loop carries goes from one part of the sequence below it to a later one."""
    parts: dict[str, int] = {}
    for n, part in enumerate(children(below) if type_of(below) == "sequence" else ()):
        parts |= dict.fromkeys((str(s.get_tuple_name()) for s in sets_of(part.filter_get_filter())), n)
    return all(parts.get(a, 0) < parts.get(b, 0) for a, b in carried)


def _deeper(node: isl.ScheduleNode, depth: int) -> bool:
    """Whether some statement has more than so many loops."""
    return any(leaf.get_schedule_depth() > depth for leaf in _leaves(node))


def _leaves(node: isl.ScheduleNode) -> Iterator[isl.ScheduleNode]:
    if not node.n_children():
        yield node
    for n in range(node.n_children()):
        yield from _leaves(node.child(n))


def _know(facts: _Facts, leaf: isl.ScheduleNode) -> None:
    for s in sets_of(leaf.get_domain()):
        facts.innermost[str(s.get_tuple_name())] = f"c{leaf.get_schedule_depth() - 1}"


def _insert(node: isl.ScheduleNode, members: Sequence[isl.UnionPwAff]) -> isl.ScheduleNode:
    """A band of some members above a node."""
    schedule = isl.MultiUnionPwAff.from_union_pw_aff(members[0])
    for m in members[1:]:
        schedule = schedule.flat_range_product(isl.MultiUnionPwAff.from_union_pw_aff(m))
    return node.insert_partial_schedule(schedule)


def _innermost(
    dependences: Dependences, node: isl.ScheduleNode, members: Sequence[isl.UnionPwAff]
) -> tuple[int, dict[tuple[str, str], bool], bool]:
    """The member along which most accesses stay or move by one in a row, and what it carries alone.

    The last says whether all statements are chained along it: iterations use what ones before them compute.
    """
    names = [str(s.get_tuple_name()) for s in sets_of(node.get_domain())]
    partial = isl.UnionMap.from_multi_union_pw_aff(node.band_get_partial_schedule())
    around = node.get_prefix_schedule_union_map()
    together = around.apply_range(around.reverse())
    found = [(d, _within(d.relation, together)) for d in dependences.among(names)]
    distances = [
        (d, within, m.deltas())
        for d, within in found
        for m in maps_of(within.to_union_map().apply_domain(partial).apply_range(partial))
    ]
    best: tuple[tuple[int, int, int], int] | None = None
    for n in range(len(members)):
        step = _step(len(members), n)
        moves = partial.apply_range(step.to_union_map()).apply_range(partial.reverse())
        good = bad = 0
        for name in names:
            along, across = _along_rows(dependences.model, name, moves)
            good, bad = good + along, bad + across
        carried = {(d.source, d.sink) for d, _, distance in distances if not _alone(distance, n).is_empty()}
        key = (-bad, -len(carried), good)
        if best is None or key >= best[0]:
            best = key, n
    assert best is not None
    inner = best[1]
    pairs = _pairs_along(partial, len(members), inner)
    waiting: dict[tuple[str, str], bool] = {}
    chained: set[str] = set()
    for d, within, distance in distances:
        if not _alone(distance, inner).is_empty():
            only = only_sums(dependences.model, d, lambda m: _within(m, pairs))
            waiting[d.source, d.sink] = only and waiting.get((d.source, d.sink), True)
            if d.kind == "flow" and not only and _everywhere(dependences.model, d, _within(within, pairs)):
                chained.add(d.sink)
    return inner, waiting, chained == set(names)


def _everywhere(model: Model, d: Dependence, relation: isl.Map) -> bool:
    """Whether a part of a dependence concerns more than single hyperplanes of its statements' instances."""
    ends = ((d.source, relation.domain()), (d.sink, relation.range()))
    return all(model.statement(s).domain.affine_hull().is_subset(end.affine_hull()) for s, end in ends)


def _pairs_along(partial: isl.UnionMap, members: int, n: int) -> isl.UnionMap:
    """Pairs of instances that differ along one member of a band alone."""
    differ = isl.Map.universe(isl.Space.alloc(CONTEXT, 0, members, members))
    for k in range(members):
        if k != n:
            differ = differ.equate(DIM.in_, k, DIM.out, k)
    differ = differ.subtract(differ.equate(DIM.in_, n, DIM.out, n))
    return partial.apply_range(differ.to_union_map()).apply_range(partial.reverse())


def _within(m: isl.Map, pairs: isl.UnionMap) -> isl.Map:
    found = pairs.extract_map(m.get_space())
    return m.intersect(found)


def _step(members: int, n: int) -> isl.Map:
    """From each point of a band to the next along one member."""
    step = isl.Map.identity(isl.Space.alloc(CONTEXT, 0, members, members))
    step = step.drop_constraints_involving_dims(DIM.out, n, 1)
    at = isl.Constraint.equality_alloc(isl.LocalSpace.from_space(step.get_space()))
    at = at.set_coefficient_val(DIM.out, n, isl.Val.int_from_si(CONTEXT, 1))
    at = at.set_coefficient_val(DIM.in_, n, isl.Val.int_from_si(CONTEXT, -1))
    return step.add_constraint(at.set_constant_val(isl.Val.int_from_si(CONTEXT, -1)))


def _alone(distance: isl.Set, n: int) -> isl.Set:
    """Distances that are not zero along one member only."""
    for k in range(distance.dim(DIM.set)):
        if k != n:
            distance = distance.fix_val(DIM.set, k, isl.Val.zero(CONTEXT))
    return distance.subtract(distance.fix_val(DIM.set, n, isl.Val.zero(CONTEXT)))


def _along_rows(model: Model, name: str, moves: isl.UnionMap) -> tuple[int, int]:
    """Accesses of a statement that stay or move by one in a row, and others, from one point to the next."""
    s = model.statement(name)
    good = bad = 0
    for m in maps_of(moves):
        if m.get_tuple_name(DIM.in_) != name or m.get_tuple_name(DIM.out) != name:
            continue
        for a in (*s.reads, *s.writes):
            distance = m.apply_domain(a.relation).apply_range(a.relation).deltas()
            rank = distance.dim(DIM.set)
            for k in range(rank):
                low, high = distance.dim_min_val(k), distance.dim_max_val(k)
                fine = low.is_zero() and high.is_zero()
                if k == rank - 1:
                    fine = fine or (low.is_one() and high.is_one())
                if not fine:
                    bad += 1
                    break
            else:
                good += 1
    return good, bad
