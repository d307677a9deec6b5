"""Values of stages by number: those of the expressions with others inlined, however they are counted."""

from random import Random

import pytest
from tests.random_pipelines import random_program

from tilewright import lang
from tilewright.ir import Index, Numbering, Var, map_loads, stmt_exprs, stmt_loads, substitute_body
from tilewright.plan import graph_of


def written_out(g, node, inlined):
    """The body of a stage with others put into it as expressions, and how many elements that are."""
    makers = {g.nodes[n].stage.writes[0]: g.nodes[n] for n in inlined}
    known = {}

    def element(ld):
        maker = makers.get(ld.buffer)
        if maker is None:
            return ld
        if ld not in known:
            at = dict(zip(maker.names, ld.indices, strict=True))
            known[ld] = map_loads(substitute_body(maker.stage.body, at), element).writes[0].value
        return known[ld]

    return map_loads(node.stage.body, element), len(known)


def inlinable(g, rng):
    return frozenset(
        n.index for n in g.nodes if n.plain and not n.output and n.sums == 1 and rng.random() < 0.6
    )


@pytest.mark.parametrize("seed", range(12))
def test_values_are_those_of_expressions_with_others_inlined(seed):
    rng = Random(seed)
    g = graph_of(random_program(rng))
    inlined = inlinable(g, rng)
    for node in g.nodes:
        if not node.plain or node.index in inlined:
            continue
        merged = g.merged(node.index, inlined)
        body, count = written_out(g, node, inlined)
        wanted = Numbering(stmt_exprs(body))
        assert merged.inlined == count
        assert len(merged.values.nodes) == len(wanted.nodes)
        assert merged.values.loads == list(dict.fromkeys(stmt_loads(body)))
        copies = tuple(rng.choice([1, 2, 3]) if n > 8 else 1 for n in node.extents)
        offsets = [(0,) * len(copies)]
        for axis, n in enumerate(copies):
            offsets = [(*at[:axis], k, *at[axis + 1 :]) for at in offsets for k in range(n)]
        bodies = [
            substitute_body(
                body,
                {
                    name: Index(k, ((Var(name), n),))
                    for name, k, n in zip(node.names, at, copies, strict=True)
                    if n > 1
                },
            )
            for at in offsets
        ]
        loads = {ld for each in bodies for ld in stmt_loads(each)}
        found = g.amortised(merged, copies)
        assert sum(found.loads.values()) == pytest.approx(len(loads) / len(bodies))


def test_what_finds_elements_is_inlined_too():
    x, table = lang.placeholder((64,), "i32", name="X"), lang.placeholder((256,), name="T")
    at = lang.compute((64,), lambda i: x[i] * 3, name="at")
    out = lang.compute((64,), lambda i: table[at[i] % 256] + table[at[i] % 128], name="out")
    g = graph_of(lang.program([x, table], [out]))
    merged = g.merged(1, frozenset({0}))
    assert merged.inlined == 1
    assert {ld.buffer for ld in merged.values.loads} == {"X", "T"}
    # a sum alone; with what finds its two elements a product, made once, and two remainders
    assert merged.work == 1
    assert g.amortised(merged, (1,)).work == 1 + 1 + 8 + 8


def test_what_is_known_of_stages_is_bounded(monkeypatch):
    monkeypatch.setattr("tilewright.plan.pipeline.graph.MOST_MERGED", 2)
    x = lang.placeholder((64,), name="X")
    f, stages = x, 6
    for n in range(stages):
        f = lang.compute((64,), lambda i, f=f: f[i] * 2, name=f"f{n}")
    g = graph_of(lang.program([x], [f]))
    for last in range(stages - 1):
        node = g.merged(stages - 1, frozenset(range(last, stages - 1)))
        assert node.inlined == stages - 1 - last
        g.amortised(node, (2,))
        assert len(g._merged) <= 2 and len(g._amortised) <= 2
