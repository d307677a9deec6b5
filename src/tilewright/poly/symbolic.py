"""The symbolic mode of :func:`~tilewright.poly.legality.check_legal`: the same questions put to isl.

It holds for all sizes that the parameters allow, and needs no small ones; it costs more, and is stricter in
one point: a reduction that is recomputed into one and the same storage is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import islpy as isl

from tilewright.ir import LoopFunction, var
from tilewright.poly.extract import Model, PolyStatement, extract_model
from tilewright.poly.spaces import CONTEXT, DIM, Domain, maps_of, sets_of, union_map, union_set
from tilewright.poly.symbolic_flow import Key, SymbolicFlow, key_of
from tilewright.poly.symbolic_races import symbolic_races
from tilewright.poly.violations import Violation, same_computation
from tilewright.support import ResourceError

OPERATIONS = 200_000_000
"""Limit on isl's internal operations of one check (about ten seconds), so that none can run away."""


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
    CONTEXT.reset_operations()
    CONTEXT.set_max_operations(operations)
    try:
        return _checked(before, after, params)
    except isl.Error as error:
        # isl gives up with an error that is only told apart by its text
        raise ResourceError(
            f"the relations of {after.name} are too large: isl gave up ({str(error)[:80]})",
            hint="give more parameters a value, or use the list mode",
        ) from error
    finally:
        CONTEXT.set_max_operations(0)
        CONTEXT.reset_operations()


def _checked(before: LoopFunction, after: LoopFunction, params: Mapping[str, int] | None) -> list[Violation]:
    a, b = extract_model(before, params), extract_model(after, params)
    shared = frozenset(s.stage for s in a.statements) & frozenset(s.stage for s in b.statements)
    old, new = SymbolicFlow(a, shared), SymbolicFlow(b, shared)
    return [
        *_bounds(b),
        *_coverage(old, new),
        *_flows(old, new),
        *_reductions(old, new),
        *_outputs(old, new),
        *_races(b),
    ]


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


def _grouped(model: Model) -> dict[Key, list[PolyStatement]]:
    out: dict[Key, list[PolyStatement]] = {}
    for s in model.statements:
        out.setdefault(key_of(s), []).append(s)
    return out


def _executed(flow: SymbolicFlow, statements: list[PolyStatement]) -> isl.UnionSet:
    """The logical instances that run."""
    return union_set(flow.model.instances(s).range() for s in statements)


def _bounds(model: Model) -> Iterator[Violation]:
    for s in model.statements:
        for w in s.writes:
            buffer = model.buffers[w.buffer]
            rank = len(buffer.physical_shape)
            halo = buffer.halo or ((0, 0),) * rank
            indices = w.relation.range().project_out(DIM.set, 0, w.relation.dim(DIM.out) - rank)
            dims = tuple(f"d{n}" for n in range(rank))
            space = Domain("", dims, model.params)
            box = space.universe()
            for n, (extent, (lo, hi)) in enumerate(zip(buffer.physical_shape, halo, strict=True)):
                at = var(dims[n])
                box = box.intersect(space.at_least(at + lo)).intersect(space.at_least(extent + hi - 1 - at))
            if not indices.reset_tuple_id().is_subset(box.reset_tuple_id()):
                yield Violation(
                    "bounds", s.block.name, f"a write of block {s.block.name} leaves the buffer {w.buffer}"
                )


def _coverage(old: SymbolicFlow, new: SymbolicFlow) -> Iterator[Violation]:
    arguments = {b.name for b in new.model.function.buffers}
    after = _grouped(new.model)
    for key, was in _grouped(old.model).items():
        if key[0] not in new.stages or key[1] != "body":
            continue
        if not any(w.buffer in arguments for s in was for w in s.writes):
            continue
        expected, actual = _executed(old, was), _executed(new, after.get(key, []))
        for m in sets_of(expected.subtract(actual)):
            yield Violation("missing", key[0], f"{example(m)} never runs")
        direct = [s for s in after.get(key, []) if any(w.buffer in arguments for w in s.writes)]
        for m in sets_of(_executed(new, direct).subtract(expected)):
            yield Violation("extra", key[0], f"{example(m)} is outside of its domain")


def _flows(old: SymbolicFlow, new: SymbolicFlow) -> Iterator[Violation]:
    before = _grouped(old.model)
    for key, now in _grouped(new.model).items():
        if key[0] not in new.stages or key not in before:
            continue
        for read, expected, actual in _compared(old, before[key], new, now):
            wrong = actual.subtract(expected).domain().union(expected.subtract(actual).domain())
            for s in sets_of(wrong):
                yield Violation("flow", key[0], f"{example(s)} reads {read} from another place than before")


def _compared(
    old: SymbolicFlow, was: list[PolyStatement], new: SymbolicFlow, now: list[PolyStatement]
) -> Iterator[tuple[str, isl.UnionMap, isl.UnionMap]]:
    """What is compared of one statement: in words, and the values before and after.

    Its reads one by one where it is the same text; of other expressions all values they depend on, and apart
    from these where accumulations start. What only one side runs is left out.
    """
    executed = _executed(old, was).intersect(_executed(new, now))
    places = _places(old, was).intersect(_places(new, now))
    if all(same_computation(was[0], s) for s in (*was[1:], *now)):
        for slot, read in enumerate(now[0].reads):
            common = places if slot in new.accumulators(now[0]) else executed
            expected, actual = _column(old, was, slot), _column(new, now, slot)
            yield read.buffer, expected.intersect_domain(common), actual.intersect_domain(common)
        return
    for w, write in enumerate(was[0].writes):
        if all(f.accumulators(s, w) for f, members in ((old, was), (new, now)) for s in members):
            expected, actual = _accumulations(old, was, w), _accumulations(new, now, w)
            yield write.buffer, expected.intersect_domain(places), actual.intersect_domain(places)
    expected, actual = _origins(old, was), _origins(new, now)
    yield "other values", expected.intersect_domain(executed), actual.intersect_domain(executed)


def _places(flow: SymbolicFlow, statements: list[PolyStatement]) -> isl.UnionSet:
    """The places that instances which run accumulate into."""
    return union_set(flow.places(s).range() for s in statements)


def _column(flow: SymbolicFlow, statements: list[PolyStatement], slot: int) -> isl.UnionMap:
    """Logical instances to the values of one read, places to where their accumulation starts."""
    out: list[isl.Map] = []
    for s in statements:
        if slot in flow.accumulators(s):
            out.extend(_by(flow.places(s), _starts(flow, s, slot)))
        else:
            out.extend(_by(flow.model.instances(s), flow.logical(flow.values(s, slot))))
    return union_map(out).coalesce()


def _accumulations(flow: SymbolicFlow, statements: list[PolyStatement], w: int) -> isl.UnionMap:
    """Places to where the accumulation of what one write replaces starts."""
    out: list[isl.Map] = []
    for s in statements:
        for slot in sorted(flow.accumulators(s, w)):
            out.extend(_by(flow.places(s), _starts(flow, s, slot)))
    return union_map(out).coalesce()


def _origins(flow: SymbolicFlow, statements: list[PolyStatement]) -> isl.UnionMap:
    """Logical instances to all values they depend on; constants, the undefined, accumulators do not count."""
    out: list[isl.Map] = []
    for s in statements:
        for slot in sorted(set(range(len(s.reads))) - flow.accumulators(s)):
            for m in _by(flow.model.instances(s), flow.logical(flow.values(s, slot))):
                name = str(m.get_tuple_name(DIM.out))
                if not name.startswith("constant__") and name != "undefined":
                    out.append(m)
    return union_map(out).coalesce()


def _by(names: isl.Map, found: isl.UnionMap) -> list[isl.Map]:
    """Maps of one statement's loops with these replaced by what the loops stand for."""
    return [m.apply_domain(names) for m in maps_of(found)]


def _starts(flow: SymbolicFlow, s: PolyStatement, slot: int) -> isl.UnionMap:
    """Where accumulations start: values of an accumulator that are not of the same reduction."""
    return flow.logical(flow.values(s, slot).subtract(flow.steps(s, slot)))


def _reductions(old: SymbolicFlow, new: SymbolicFlow) -> Iterator[Violation]:
    """Every place accumulates all of its instances once, one after the other, from one start."""
    before = _grouped(old.model)
    for key, members in _grouped(new.model).items():
        first = members[0]
        slots = sorted(new.accumulators(first))
        if not slots or key not in before:
            continue
        logical = union_map(new.model.instances(s) for s in members)
        chain = union_map(new.places(s) for s in members)
        if not logical.is_injective():
            # recomputed: a chain for each storage that the reduction runs in
            chain = union_map(new.places(s).range_product(s.writes[0].relation) for s in members)
        if not chain.range_product(logical).is_injective():
            yield Violation("flow", key[0], f"an instance of {key[0]} runs twice for one element")
        for slot in slots:
            steps = union_map(m for s in members for m in maps_of(new.steps(s, slot)))
            if not steps.is_injective():
                yield Violation("flow", key[0], f"two instances of {key[0]} go on from the same one")
            starts = union_set(s.domain for s in members).subtract(steps.domain())
            if not chain.intersect_domain(starts).is_injective():
                yield Violation("flow", key[0], f"the reduction {key[0]} starts anew on its way")
        full = union_map(old.places(s).reverse().apply_range(old.model.instances(s)) for s in before[key])
        done = chain.reverse().apply_range(logical)
        places = chain.reverse().apply_range(union_map(new.places(s) for s in members))
        wanted = places.apply_range(full)
        if not wanted.subtract(done).is_empty():
            yield Violation("flow", key[0], f"the reduction {key[0]} leaves instances out")
        if not done.intersect_domain(wanted.domain()).subtract(wanted).is_empty():
            yield Violation("flow", key[0], f"the reduction {key[0]} runs instances outside of its domain")


def _outputs(old: SymbolicFlow, new: SymbolicFlow) -> Iterator[Violation]:
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
