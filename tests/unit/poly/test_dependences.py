"""The symbolic model and its dependences agree with the listed instances."""

import islpy as isl
import pytest

from tilewright.ir import F32, Param, Program, Stage, buffer, index, store, to_function, var
from tilewright.poly.dependences import all_dependences, definitions, sources, violated
from tilewright.poly.extract import extract_model
from tilewright.poly.legality import list_function
from tilewright.poly.spaces import DIM, maps_of, pairs, points
from tilewright.support import ResourceError
from unit.poly.builders import chain, it, ld, matmul, mul, x
from unit.poly.cases import CASES


def listed_pairs(listing, s, r):
    """(reader coordinates, the writer's name, write, coordinates or None) of every read, as listed."""
    flow = listing.flow
    statement = flow.instances.statements[s]
    out = set()
    for row, source in zip(statement.reads[r].rows, flow.sources[s][r], strict=True):
        reader = tuple(int(c[row]) for c in statement.coords)
        found = flow.owner(int(source))
        if found is None:
            out.add((reader, None))
        else:
            w = flow.instances.statements[found[0]]
            out.add((reader, (w.block, w.part, w.position, found[1], *(int(c[found[2]]) for c in w.coords))))
    return out


def isl_pairs(model, s, slot):
    found = sources(model, s, slot)
    coords = model.instances(s)
    named = {d.name: d for d in definitions(model)}
    out = set()
    for m in maps_of(found.writers):
        d = named[m.get_tuple_name(DIM.in_)]
        w = d.statement
        logical = m.apply_domain(d.instances(model.instances(w))).apply_range(coords)
        out |= {(b, (w.block.name, w.part, w.position, d.write, *a)) for a, b in pairs(logical)}
    for m in maps_of(found.initial):
        out |= {(p, None) for p in points(m.domain().apply(coords))}
    return out


def test_accesses_that_isl_loses_are_said_to_be_too_much(monkeypatch):
    monkeypatch.setattr(isl.UnionFlow, "get_may_no_source", lambda flow: isl.UnionMap("{ }"))
    with pytest.raises(ResourceError, match="isl finds no order of accesses in steps"):
        all_dependences(extract_model(CASES["ring"]()))


def test_errors_of_isl_are_no_errors_of_ours(monkeypatch):
    """Met with quotients in several accesses: isl ends with a complaint about its own expressions."""

    def fails(info):
        raise isl.Error("affine expression involves some of the domain dimensions")

    monkeypatch.setattr(isl.UnionAccessInfo, "compute_flow", fails)
    with pytest.raises(ResourceError, match="isl finds no order of accesses: affine expression"):
        all_dependences(extract_model(CASES["ring"]()))


@pytest.mark.parametrize("name", CASES)
def test_sources_agree_with_the_listing(name):
    func = CASES[name]()
    listing, model = list_function(func), extract_model(func)
    listed = {(s.block, s.part, s.position): n for n, s in enumerate(listing.flow.instances.statements)}
    assert len(listed) == len(model.statements)
    for s in model.statements:
        n = listed[s.block.name, s.part, s.position]
        statement = listing.flow.instances.statements[n]
        instances = {tuple(int(c[row]) for c in statement.coords) for row in range(statement.count)}
        assert set(points(s.domain.apply(model.instances(s)))) == instances
        assert len(statement.reads) == len(s.reads)
        for slot in range(len(s.reads)):
            assert isl_pairs(model, s, slot) == listed_pairs(listing, n, slot), (s.name, slot)


@pytest.mark.parametrize("name", CASES)
def test_the_textual_order_respects_all_dependences(name):
    model = extract_model(CASES[name]())
    found = all_dependences(model)
    assert name == "strided" or found
    for d in found:
        times = model.time(model.statement(d.source)), model.time(model.statement(d.sink))
        assert violated(d.relation, *times).is_empty(), (d.kind, d.source, d.sink)


def test_symbolic_dependences_of_a_stencil():
    n = Param("n", 3, 1 << 20)
    b = Stage("B", (it("x", n),), store("B", (x,), mul(ld("A", x), ld("A", x))))
    c = Stage("C", (it("x", index(n) - 2),), store("C", (x,), mul(ld("B", x), ld("B", x + 2))))
    p = Program("st", (n,), (buffer("A", (n,), F32),), (buffer("C", (index(n) - 2,), F32),),
                (buffer("B", (n,), F32),), (b, c))  # fmt: skip
    model = extract_model(to_function(p))
    flow = [d for d in all_dependences(model, ["flow"]) if d.source == "B"]
    assert [(d.sink, d.slot, d.exact) for d in flow] == [("C", 0, True), ("C", 1, True)]
    # for every n: instance x + 2 of B feeds instance x of C
    distance = flow[1].relation.set_tuple_name(DIM.in_, "").set_tuple_name(DIM.out, "").deltas()
    assert distance.dim_max_val(0).to_python() == distance.dim_min_val(0).to_python() == -2
    fixed = extract_model(to_function(p), {"n": 5})
    assert list(points(fixed.statement("C").domain)) == [(0,), (1,), (2,)]


def test_reversing_a_producer_is_seen():
    model = extract_model(to_function(chain()))
    b, c = model.statement("B"), model.statement("C")
    (d, *_) = [d for d in all_dependences(model, ["flow"]) if d.source == "B"]
    late = model.space(b).map_to("", (1, x, 0))
    early = model.space(c).map_to("", (0, var(c.dims[0]), 0))
    assert not violated(d.relation, late, early).is_empty()


def test_accumulators_depend_on_the_instance_before():
    model = extract_model(to_function(matmul(2, 2, 3)))
    (d,) = [d for d in all_dependences(model, ["flow"]) if d.source == d.sink]
    assert pairs(d.relation) == {
        ((a, b, c), (a, b, c + 1)) for a in range(2) for b in range(2) for c in range(2)
    }
    assert (d.buffer, d.slot, d.exact) == ("C", 0, True)
