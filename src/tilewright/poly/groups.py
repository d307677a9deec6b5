"""Computation spaces: groups of statements that share outer loops, before any tiling (Zhao & Di, Sec. 2).

The starting fusion is conservative: nests are joined where values pass between equal points of their common
parallel loops, which loses neither parallelism nor tiles; or it is one of isl's (min-, smart-, max- and
hybridfuse).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import islpy as isl

from tilewright.poly.budget import counted, ended_after, limited
from tilewright.poly.child import EndedError, SpentError, asked_apart
from tilewright.poly.dependences import Dependences
from tilewright.poly.executions import children, type_of
from tilewright.poly.extract import Model
from tilewright.poly.spaces import CONTEXT, DIM, maps_of, sets_of, union_map, union_set
from tilewright.poly.tree import Band, Order, Structure, band_schedule, insert, structure_of
from tilewright.support import ResourceError

Fusion = Literal["min", "smart", "max", "hybrid"]
SCHEDULER_OPERATIONS: Final = 200_000
"""Limit on isl's operations of one run of its scheduler (about a second; 2mm takes more than 20,000)."""
SCHEDULER_SECONDS: Final = 5
"""Seconds of a processor of one run: behind the operations, which leave out isl's linear programs."""


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Statements with a schedule tree of their own; ``coincident`` and ``permutable`` are of its outer band.

    ``coincident`` has an entry a loop of that band: whether it carries no dependence; it is empty where there
    is no common loop.
    """

    names: tuple[str, ...]
    schedule: isl.Schedule
    permutable: bool
    coincident: tuple[bool, ...]

    @property
    def parallel(self) -> int:
        """The number of leading loops that carry no dependence."""
        return next((n for n, c in enumerate(self.coincident) if not c), len(self.coincident))


@limited("the dependences of {} are too many", "fuse fewer statements")
def space_of(dependences: Dependences, schedule: isl.Schedule) -> Space:
    """A space with the facts of its outer band, by the exact dependences among its statements."""
    names = tuple(str(s.get_tuple_name()) for s in sets_of(schedule.get_domain()))
    order = [s.name for s in dependences.model.statements if s.name in names]
    band = schedule.get_root().child(0)
    if type_of(band) != "band":
        return Space(tuple(order), schedule, False, ())
    partial = isl.UnionMap.from_multi_union_pw_aff(band.band_get_partial_schedule())
    coincident = [True] * band.band_n_member()
    permutable = True
    for d in dependences.among(names):
        for distance in _distances(d.relation.to_union_map(), partial):
            for n in range(len(coincident)):
                low, high = distance.dim_min_val(n), distance.dim_max_val(n)
                coincident[n] = coincident[n] and bool(low.is_zero() and high.is_zero())
                permutable = permutable and not low.is_neg()
    return Space(tuple(order), schedule, permutable, tuple(coincident))


def _distances(relation: isl.UnionMap, partial: isl.UnionMap) -> Iterator[isl.Set]:
    for m in maps_of(relation.apply_domain(partial).apply_range(partial)):
        distance = m.deltas()
        if not distance.is_empty():
            yield distance


@limited("the dependences of {} are too many", "fuse fewer statements")
def spaces_as_written(dependences: Dependences) -> list[Space]:
    """One space for each outermost nest of the function."""
    return [_built(dependences, *part) for part in _nests(dependences.model)]


@limited("the dependences of {} are too many", "fuse fewer statements")
def conservative_fusion(dependences: Dependences) -> list[Space]:
    """Outermost nests joined with the one before them, where all values pass between equal points.

    All of the joined nest's outer loops must be parallel, and those of the nest before it that it is joined
    with; a nest joins at all of its own outer band.
    """
    out: list[_Nest] = []
    for part in _nests(dependences.model):
        joined = _joined(dependences, out[-1], part) if out else None
        if joined is None:
            out.append(part)
        else:
            out[-1] = joined
    return [_built(dependences, *part) for part in out]


_Nest = tuple[frozenset[str], Structure]
"""The statements of a nest, and how they stand in it."""


def _nests(model: Model) -> list[_Nest]:
    shape = structure_of(model.statements)
    if isinstance(shape, Order):
        return list(shape.parts)
    return [(frozenset(s.name for s in model.statements), shape)]


def _built(dependences: Dependences, names: frozenset[str], part: Structure) -> Space:
    model = dependences.model
    domain = union_set(s.domain for s in model.statements if s.name in names)
    leaf = isl.Schedule.from_domain(domain).get_root().child(0)
    return space_of(dependences, insert(leaf, model, part).get_schedule())


def _split(band: Band, count: int) -> Band:
    """The outer ``count`` loops of a band, the others inside."""
    if len(band.members) == count:
        return band
    return Band(band.members[:count], Band(band.members[count:], band.child))


def _joined(dependences: Dependences, one: _Nest, two: _Nest) -> _Nest | None:
    (upper, first), (lower, second) = one, two
    if not isinstance(first, Band) or not isinstance(second, Band):
        return None
    count = min(len(first.members), len(second.members))
    a, b = _built(dependences, upper, first), _built(dependences, lower, second)
    while count and not (min(a.parallel, b.parallel) >= count and _same(dependences, first, second, count)):
        count -= 1
    if count == 0 or count != min(len(second.members), b.parallel):
        return None
    if not _pass_values(dependences, upper, lower):
        return None
    outer, inner = _split(first, count), _split(second, count)
    members = tuple({**x, **y} for x, y in zip(outer.members, inner.members, strict=True))
    parts = ((upper, outer.child), (lower, inner.child))
    flat = [
        below
        for names, child in parts
        for below in (child.parts if isinstance(child, Order) else ((names, child),))
    ]
    return upper | lower, Band(members, Order(tuple(flat)))


def _pass_values(dependences: Dependences, first: Collection[str], second: Collection[str]) -> bool:
    both = {*first, *second}
    return any(d.source in first and d.sink in second for d in dependences.among(both, ("flow",)))


def _same(dependences: Dependences, first: Band, second: Band, count: int) -> bool:
    """Whether everything between two nests happens at equal points of their outer loops."""
    model = dependences.model
    members = tuple({**x, **y} for x, y in zip(first.members[:count], second.members[:count], strict=True))
    partial = isl.UnionMap.from_multi_union_pw_aff(band_schedule(model, members))
    one, two = frozenset(first.members[0]), frozenset(second.members[0])
    for d in dependences.among(one | two):
        if (d.source in one) == (d.sink in one):
            continue
        for distance in _distances(d.relation.to_union_map(), partial):
            for n in range(count):
                if not (distance.dim_min_val(n).is_zero() and distance.dim_max_val(n).is_zero()):
                    return False
    return True


@limited("the dependences of {} are too many", "fuse fewer statements")
def isl_schedule(
    dependences: Dependences,
    fusion: Fusion,
    names: Collection[str] | None = None,
    *,
    operations: int = SCHEDULER_OPERATIONS,
    seconds: int = SCHEDULER_SECONDS,
) -> isl.Schedule:
    """Isl's own schedule of a model, or of some of its statements: Pluto's algorithm with ways to fuse.

    ``min``: no two components share a loop; ``smart``: they do where parallel loops stay parallel; ``max``:
    wherever that is legal; ``hybrid``: the outermost parts are smartfuse's, and each is fused like ``max``
    inside, or stays smartfuse's where that is too much for isl. Raises ResourceError where isl finds none, or
    needs more than ``operations``, which are the same in every run, or ``seconds`` of a processor, behind
    which a process of its own is ended.
    """
    if fusion == "hybrid":
        return _hybrid(dependences, names, operations, seconds)
    model = dependences.model
    chosen = [s for s in model.statements if names is None or s.name in names]
    # names decide in which order isl solves: by numbers, equal nests have equal schedules
    number = {s.name: f"S{n}" for n, s in enumerate(chosen)}
    domain = union_set(s.domain.set_tuple_name(number[s.name]) for s in chosen)
    domain = domain.intersect_params(model.context)
    order = union_map(
        d.relation.set_tuple_name(DIM.in_, number[d.source]).set_tuple_name(DIM.out, number[d.sink])
        for d in dependences.among(names)
    ).intersect_params(model.context)
    what = f"isl's schedule of {model.function.name} ({fusion}fuse)"
    try:
        found = asked_apart(lambda: counted(lambda: _schedule(domain, order, fusion), operations), seconds)
    except SpentError:
        raise ResourceError(f"{what}: isl gave up after {operations} operations", hint="fuse less") from None
    except EndedError:
        raise ResourceError(f"{what}: {ended_after(seconds)}", hint="fuse less") from None
    if not found:
        # it is unable to carry some dependences that hold at every other point
        raise ResourceError(f"{what}: isl found none", hint="keep the order as it is")
    back = union_map(s.domain.identity().set_tuple_name(DIM.out, number[s.name]) for s in chosen)
    return isl.Schedule.read_from_str(CONTEXT, found).pullback_union_pw_multi_aff(
        back.as_union_pw_multi_aff()
    )


def _schedule(domain: isl.UnionSet, order: isl.UnionMap, fusion: Fusion) -> str:
    """A schedule as text; in a process of its own, whose settings of isl nobody else has."""
    CONTEXT.set_schedule_maximize_band_depth(1)
    CONTEXT.set_schedule_serialize_sccs(int(fusion == "min"))
    CONTEXT.set_schedule_whole_component(int(fusion == "max"))
    # without it isl looks for fusion so long that no budget is enough (2mm, gemver)
    CONTEXT.set_schedule_maximize_coincidence(1)
    constraints = isl.ScheduleConstraints.on_domain(domain)
    constraints = constraints.set_validity(order).set_coincidence(order).set_proximity(order)
    return str(constraints.compute_schedule())


def _hybrid(
    dependences: Dependences, names: Collection[str] | None, operations: int, seconds: int
) -> isl.Schedule:
    out: isl.Schedule | None = None
    for part in _outermost(isl_schedule(dependences, "smart", names, operations=operations, seconds=seconds)):
        try:
            one = isl_schedule(dependences, "max", part, operations=operations, seconds=seconds)
        except ResourceError:
            one = isl_schedule(dependences, "smart", part, operations=operations, seconds=seconds)
        out = one if out is None else out.sequence(one)
    assert out is not None
    return out


def _outermost(schedule: isl.Schedule) -> list[tuple[str, ...]]:
    """The statements of the outermost parts of a tree, in order."""
    top = schedule.get_root().child(0)
    if type_of(top) not in ("sequence", "set"):
        return [tuple(str(s.get_tuple_name()) for s in sets_of(schedule.get_domain()))]
    return [tuple(str(s.get_tuple_name()) for s in sets_of(p.filter_get_filter())) for p in children(top)]


def isl_fusion(dependences: Dependences, fusion: Fusion, names: Collection[str] | None = None) -> list[Space]:
    """The spaces of isl's own schedule, of all statements or some: the outermost parts of its tree."""
    schedule = isl_schedule(dependences, fusion, names)
    parts = _outermost(schedule)
    if len(parts) == 1:
        return [space_of(dependences, schedule)]
    return [space_of(dependences, isl_schedule(dependences, fusion, names)) for names in parts]
