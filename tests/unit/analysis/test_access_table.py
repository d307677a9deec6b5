"""Boxes of the access table: they hold all that is read, in integers and in arrays alike."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from property.lang_programs import PURE, lang_cases
from tilewright import lang
from tilewright.analysis import ARRAYS, iterator_spans, table_of
from tilewright.ir import Index, substitute_index


def drawn_box(rng, extents):
    """A box within some extents."""
    ends = [sorted((rng.randrange(n), rng.randrange(n))) for n in extents]
    return tuple((a, b) for a, b in ends)


def instances(stage, box, rng, count=40):
    """Values of a stage's iterators inside a box of its result."""
    spans = iterator_spans(stage, box)
    return [{n: rng.randint(a, b) for n, (a, b) in spans.items()} for _ in range(count)]


def sizes(stage):
    return [it.extent.as_int() for it in stage.iters if it.kind != "red"]


@settings(max_examples=60, deadline=None)
@given(case=lang_cases(kinds=PURE), seed=st.integers(0, 1 << 20))
def test_boxes_hold_what_is_read(case, seed):
    rng = Random(seed)
    program = case.program
    table = table_of(program)
    for stage in program.stages:
        if any((it.lo != Index(0) and it.kind != "red") or not it.extent.is_const for it in stage.iters):
            continue
        box = drawn_box(rng, sizes(stage))
        env = iterator_spans(stage, box)
        boxes = {a.buffer: a.box(env) for a in table.accesses[stage.name]}
        as_arrays = {n: (np.array([a]), np.array([b])) for n, (a, b) in env.items()}
        for a in table.accesses[stage.name]:
            for (lo, hi), (first, last) in zip(boxes[a.buffer], a.box(as_arrays, ARRAYS), strict=True):
                assert (lo, hi) == (int(np.max(first)), int(np.max(last)))
        for values in instances(stage, box, rng):
            at = {n: Index(v) for n, v in values.items()}
            for a in table.accesses[stage.name]:
                for ld in a.loads:
                    for i, (lo, hi), n in zip(ld.indices, boxes[a.buffer], a.shape, strict=True):
                        place = substitute_index(i, at)
                        if place.is_const and 0 <= place.const < n:
                            assert lo <= place.const <= hi, f"{stage.name} reads {ld} at {values}"


def test_chains_of_clamps_divisions_and_places_that_are_looked_up():
    X = lang.placeholder((32, 8), "i32", name="X")
    a = lang.compute((32, 8), lambda y, i: X[y, i] + 1, name="a")
    b = lang.compute((64, 8), lambda y, i: a[lang.clamp(y // 2 - 2, 0, 31), i], name="b")
    c = lang.compute((64, 8), lambda y, i: b[y, (i + 1) % 4] + b[lang.clamp(X[y // 2, i], 3, 9), i], name="c")
    table = table_of(lang.program([X], [c]))
    found = table.boxes("c", ((40, 43), (0, 7)), {"a", "b"})
    assert found == {"c": ((40, 43), (0, 7)), "b": ((3, 43), (0, 7)), "a": ((0, 19), (0, 7))}
    found = table.boxes("c", ((np.array([0, 62]), np.array([1, 63])), (0, 7)), {"a", "b"}, ARRAYS)
    assert [v.tolist() for v in found["a"][0]] == [[0, 0], [2, 29]]
    tags = {reach.tag for access in table.accesses["c"] for dim in access.dims for reach in dim}
    assert tags == {"affine", "quotient", "data"}
    assert [r.tag for dim in table.accesses["b"][0].dims for r in dim] == ["clamp", "affine"]


@pytest.mark.parametrize("count", [8, 64])
def test_a_chain_of_stencils_is_one_pass(count):
    made = X = lang.placeholder((512, 8), name="X")
    for n in range(count):
        made = lang.compute(
            (512, 8),
            lambda y, i, P=made: P[lang.clamp(y - 1, 0, 511), i] + P[lang.clamp(y + 1, 0, 511), i],
            name=f"S{n}",
        )
    table = table_of(lang.program([X], [made]))
    members = {f"S{n}" for n in range(count - 1)}
    first = np.arange(0, 512, 8)
    found = table.boxes(f"S{count - 1}", ((first, first + 7), (0, 7)), members, ARRAYS)
    lo, hi = found["S0"][0]
    grown = count - 1
    assert lo.tolist() == np.maximum(first - grown, 0).tolist()
    assert hi.tolist() == np.minimum(first + 7 + grown, 511).tolist()


def test_sums_take_the_values_that_they_have():
    x = lang.placeholder((9, 9), name="X")
    k = lang.reduce_axis((-2, 3), "k")
    out = lang.compute((5, 9), lambda y, c: lang.sum(x[y + k + 2, c], axis=k), name="S")
    program = lang.program([x], [out])
    table, stage = table_of(program), program.stage("S")
    assert iterator_spans(stage, ((1, 2), (0, 8)))["k"] == (-2, 2)
    (access,) = table.accesses["S"]
    assert access.box(iterator_spans(stage, ((1, 2), (0, 8)))) == ((1, 6), (0, 8))


def test_clamps_are_none_away_from_borders():
    x = lang.placeholder((9, 30), name="X")
    near = lang.boundary(x, mode="clamp")
    out = lang.compute((9, 30), lambda y, c: near[y - 1, c + 2], name="S")
    far = lang.compute((9, 30), lambda y, c: near[y, 2 * c], name="F")
    table = table_of(lang.program([x], [out, far]))
    (access,), (apart,) = table.accesses["S"], table.accesses["F"]
    y, c = (it.name for it in table.stages["S"].iters)
    assert access.steps(c) is None and access.steps(c, away=True) == 1
    assert access.steps(y, away=True) is None
    assert apart.steps(table.stages["F"].iters[1].name, away=True) is None


def test_a_table_of_some_stages_says_of_them_what_that_of_all_does():
    x = lang.placeholder((64,), name="X")
    a = lang.compute((64,), lambda i: x[i] + 1, name="a")
    b = lang.compute((62,), lambda i: a[i] + a[i + 2], name="b")
    program = lang.program([x], [lang.compute((62,), lambda i: b[i] * 2, name="c")])
    whole, part = table_of(program), table_of(program, {"a", "b"})
    assert part.accesses == {name: whole.accesses[name] for name in ("a", "b")}
    assert (
        part.boxes("b", ((0, 7),), {"a"})
        == whole.boxes("b", ((0, 7),), {"a"})
        == {
            "b": ((0, 7),),
            "a": ((0, 9),),
        }
    )
