"""The symbolic mode of :func:`~tilewright.poly.legality.check_legal`: the same questions put to isl.

It holds for all sizes that the parameters allow, and needs no small ones; it costs more, and is stricter in
one point: where a reduction is recomputed into one and the same storage, its results are not known as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import islpy as isl

from tilewright.ir import LoopFunction, var
from tilewright.poly.budget import OPERATIONS, bounded
from tilewright.poly.extract import Model, PolyStatement, extract_model
from tilewright.poly.spaces import DIM, Domain, maps_of, sets_of, union_map, union_set
from tilewright.poly.symbolic_flow import SymbolicFlow
from tilewright.poly.symbolic_races import symbolic_races
from tilewright.poly.symbolic_values import SymbolicValues
from tilewright.poly.unordered import elements_apart
from tilewright.poly.violations import Violation, same_computation


def check_symbolic(
    before: LoopFunction,
    after: LoopFunction,
    params: Mapping[str, int] | None = None,
    *,
    operations: int = OPERATIONS,
) -> list[Violation]:
    """All ways in which ``after`` fails to do what ``before`` does, for all parameters that are not given.

    Raises :class:`~tilewright.support.ResourceError` where isl needs more than ``operations``.
    """
    what = f"the relations of {after.name} are too large"
    hint = "give more parameters a value, or use the list mode"
    return bounded(lambda: _checked(before, after, params), what, hint, operations=operations)


def check_bounds(func: LoopFunction, params: Mapping[str, int] | None = None) -> list[Violation]:
    """The statements that leave a buffer, for the given parameters and all values of others.

    Raises :class:`~tilewright.support.ResourceError` where isl needs too much.
    """
    what = f"the accesses of {func.name} are too many"
    return bounded(lambda: list(_bounds(_executing(extract_model(func, params)))), what, "split the nest")


def _checked(before: LoopFunction, after: LoopFunction, params: Mapping[str, int] | None) -> list[Violation]:
    a, b = (_executing(elements_apart(extract_model(f, params))) for f in (before, after))
    shared = frozenset(s.stage for s in a.statements) & frozenset(s.stage for s in b.statements)
    old = SymbolicValues(SymbolicFlow(a, shared))
    new = SymbolicValues(SymbolicFlow(b, shared), old)
    return [*_bounds(b), *_coverage(old, new), *_flows(old, new), *_outputs(old, new), *_races(b)]


def _executing(model: Model) -> Model:
    """The model without statements that never run."""
    return replace(model, statements=tuple(s for s in model.statements if not s.domain.is_empty()))


def example(s: isl.Set) -> str:
    """One point of a set in words."""
    p = s.sample_point()
    name = s.get_tuple_name() if s.has_tuple_name() else ""
    names = [p.get_space().get_dim_name(DIM.set, n) for n in range(s.dim(DIM.set))]
    values = [p.get_coordinate_val(DIM.set, n) for n in range(s.dim(DIM.set))]
    inside = ", ".join(f"{n}={v}" if n else str(v) for n, v in zip(names, values, strict=True))
    sizes = ", ".join(
        f"{s.get_dim_name(DIM.param, n)}={p.get_coordinate_val(DIM.param, n)}"
        for n in range(s.dim(DIM.param))
    )
    return f"{name}[{inside}]" + (f" for {sizes}" if sizes else "")


def _executed(values: SymbolicValues, statements: list[PolyStatement]) -> isl.UnionSet:
    """The logical instances that run."""
    return union_set(values.model.instances(s).range() for s in statements)


def _bounds(model: Model) -> Iterator[Violation]:
    for s in model.statements:
        for access in (*s.writes, *(r for r in s.reads if r.exact)):
            buffer = model.buffers[access.buffer]
            rank = len(buffer.physical_shape)
            halo = buffer.halo or ((0, 0),) * rank
            touched = access.relation.range()
            indices = touched.project_out(DIM.set, 0, touched.dim(DIM.set) - rank)
            dims = tuple(f"d{n}" for n in range(rank))
            space = Domain("", dims, model.params)
            box = space.universe()
            for n, (extent, (lo, hi)) in enumerate(zip(buffer.physical_shape, halo, strict=True)):
                at = var(dims[n])
                box = box.intersect(space.at_least(at + lo)).intersect(space.at_least(extent + hi - 1 - at))
            if not indices.reset_tuple_id().is_subset(box):
                what = f"an access of block {s.block.name} leaves the buffer {access.buffer}"
                yield Violation("bounds", s.block.name, what)


def _coverage(old: SymbolicValues, new: SymbolicValues) -> Iterator[Violation]:
    arguments = {b.name for b in new.model.function.buffers}
    for key, was in old.groups.items():
        if key[0] not in new.flow.stages or key[1] != "body":
            continue
        if not any(w.buffer in arguments for s in was for w in s.writes):
            continue
        expected, actual = _executed(old, was), _executed(new, new.groups.get(key, []))
        for m in sets_of(expected.subtract(actual)):
            yield Violation("missing", key[0], f"{example(m)} never runs")
        direct = [s for s in new.groups.get(key, []) if any(w.buffer in arguments for w in s.writes)]
        for m in sets_of(_executed(new, direct).subtract(expected)):
            yield Violation("extra", key[0], f"{example(m)} is outside of its domain")


def _flows(old: SymbolicValues, new: SymbolicValues) -> Iterator[Violation]:
    for key, now in new.groups.items():
        if key[0] not in new.flow.stages or key not in old.groups:
            continue
        for read, expected, actual in _compared(old, old.groups[key], new, now):
            wrong = actual.subtract(expected).domain().union(expected.subtract(actual).domain())
            for s in sets_of(wrong):
                yield Violation("flow", key[0], f"{example(s)} reads {read} from another place than before")


def _compared(
    old: SymbolicValues, was: list[PolyStatement], new: SymbolicValues, now: list[PolyStatement]
) -> Iterator[tuple[str, isl.UnionMap, isl.UnionMap]]:
    """What is compared of one statement: in words, and the values before and after.

    Its reads one by one where it is the same text; of other expressions all values they depend on, and apart
    from these where accumulations start. What only one side runs is left out.
    """
    executed = _executed(old, was).intersect(_executed(new, now))
    places = _places(old, was).intersect(_places(new, now))
    sides = (old, was), (new, now)
    if all(same_computation(was[0], s) for s in (*was[1:], *now)):
        for slot, read in enumerate(now[0].reads):
            replaced = {v.accumulated(m).get(slot) for v, members in sides for m in members}
            write = next(iter(replaced))
            if len(replaced) == 1 and write is not None:
                expected, actual = (_starts(v, members, write) for v, members in sides)
                yield read.buffer, expected.intersect_domain(places), actual.intersect_domain(places)
            else:
                expected, actual = (_column(v, members, slot) for v, members in sides)
                yield read.buffer, expected.intersect_domain(executed), actual.intersect_domain(executed)
        return
    apart = [w for w in range(len(was[0].writes)) if all(v.accumulators(m[0], w) for v, m in sides)]
    for w in apart:
        expected, actual = (_starts(v, members, w) for v, members in sides)
        yield was[0].writes[w].buffer, expected.intersect_domain(places), actual.intersect_domain(places)
    expected, actual = (_origins(v, members, apart) for v, members in sides)
    yield "other values", expected.intersect_domain(executed), actual.intersect_domain(executed)


def _places(values: SymbolicValues, statements: list[PolyStatement]) -> isl.UnionSet:
    """The places that instances which run accumulate into."""
    return union_set(values.places(s).range() for s in statements)


def _starts(values: SymbolicValues, statements: list[PolyStatement], w: int) -> isl.UnionMap:
    """Places to where the accumulation of what one write replaces starts."""
    return union_map(m for s in statements for m in _by(values.places(s), values.starts(s, w))).coalesce()


def _column(values: SymbolicValues, statements: list[PolyStatement], slot: int) -> isl.UnionMap:
    """Logical instances to the values of one read, or to where the accumulation that it belongs to starts.

    Blocks of one statement need not load the same accumulator there: where several run, the loads of one may
    be exchanged.
    """
    found: list[isl.Map] = []
    for s in statements:
        write = values.accumulated(s).get(slot)
        if write is None:
            found.extend(_by(values.model.instances(s), values.read(s, slot)))
        else:
            starts = _starts(values, statements, write)
            found.extend(maps_of(_instances_to_places(values, [s]).apply_range(starts)))
    return union_map(found).coalesce()


def _origins(values: SymbolicValues, statements: list[PolyStatement], apart: list[int]) -> isl.UnionMap:
    """Logical instances to all values they depend on; constants and the undefined do not count.

    Accumulations onto the writes ``apart`` are left out, where others start counts.
    """
    found: list[isl.Map] = []
    for s in statements:
        accumulated = values.accumulated(s)
        for slot in sorted(set(range(len(s.reads))) - set(accumulated)):
            found.extend(_by(values.model.instances(s), values.read(s, slot, computed=True)))
    for w in sorted(set(values.accumulated(statements[0]).values()) - set(apart)):
        starts = _starts(values, statements, w)
        found.extend(maps_of(_instances_to_places(values, statements).apply_range(starts)))
    return union_map(m for m in found if not _ignored(str(m.get_tuple_name(DIM.out)))).coalesce()


def _ignored(name: str) -> bool:
    return name.startswith("constant__") or name == "undefined"


def _instances_to_places(values: SymbolicValues, statements: list[PolyStatement]) -> isl.UnionMap:
    """Logical instances to the places that they accumulate into."""
    return union_map(values.places(s).apply_domain(values.model.instances(s)) for s in statements)


def _by(names: isl.Map, found: isl.UnionMap) -> list[isl.Map]:
    """Maps of one statement's loops with these replaced by what the loops stand for."""
    return [m.apply_domain(names) for m in maps_of(found)]


def _outputs(old: SymbolicValues, new: SymbolicValues) -> Iterator[Violation]:
    for name in old.model.function.outputs:
        if name not in new.model.function.outputs:
            yield Violation("arguments", name, f"the output {name} is gone or has another shape")
            continue
        was, now = old.final(name), new.final(name)
        for s in sets_of(now.subtract(was).domain().union(was.domain().subtract(now.domain()))):
            yield Violation("final", name, f"element {example(s)} of {name} ends with another value")


def _races(model: Model) -> Iterator[Violation]:
    seen: set[str] = set()
    for r in symbolic_races(model):
        if r.loop not in seen:
            seen.add(r.loop)
            who = r.loop if r.loop.startswith("threads of") else f"iterations of the loop {r.loop}"
            yield Violation(
                "race",
                r.first.stage,
                f"{who} conflict on {r.buffer}, in {r.first.block.name} and {r.second.block.name}",
            )
