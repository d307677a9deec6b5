"""Inferred regions: which elements of stages without a shape are computed, and where they lie."""

import numpy as np
import pytest

from tilewright import ir, lang
from tilewright.ir import run_function, to_function


def shapes(prog):
    return {b.name: tuple(int(n.as_int()) for n in b.shape) for b in prog.temps}


def test_boxes_grow_backwards_and_begin_at_zero():
    X = lang.placeholder((20, 20), "i32", name="X")
    a = lang.stage(lambda y, x: X[y, x] * 2, name="a")
    b = lang.stage(lambda y, x: a[y - 1, x] + a[y + 1, x], name="b")
    c = lang.stage(lambda y, x: b[y, x - 2] + b[y, x + 3] + a[y, x], name="c")
    prog = lang.program([X], [c], region=[(4, 10), (5, 15)])
    assert shapes(prog) == {"a": (8, 15), "b": (6, 15)}
    for stage in prog.stages:
        assert all(it.lo == ir.ZERO for it in stage.iters)
        for indices in [i for _, i in ir.stmt_writes(stage.body)]:
            assert all(i.const == 0 for i in indices)
    x = np.random.default_rng(1).integers(0, 99, (20, 20)).astype(np.int32)
    v = x * 2
    w = np.zeros_like(v)
    w[1:-1] = v[:-2] + v[2:]
    want = w[4:10, 3:13] + w[4:10, 8:18] + v[4:10, 5:15]
    np.testing.assert_array_equal(lang.evaluate(prog, [x])["c"], want)


def test_resampled_and_divided_indices():
    X = lang.placeholder((40,), "i32", name="X")
    down = lang.stage(lambda i: X[2 * i] + X[2 * i + 1], name="down")
    up = lang.stage(lambda i: down[i // 2] + down[(i + 1) // 2], name="up")
    prog = lang.program([X], [up], region=[(3, 38)])
    assert shapes(prog) == {"down": (19,)}
    x = np.arange(40, dtype=np.int32) ** 2
    d = x[0::2] + x[1::2]
    i = np.arange(3, 38)
    np.testing.assert_array_equal(lang.evaluate(prog, [x])["up"], d[i // 2] + d[(i + 1) // 2])


@pytest.mark.parametrize("mode", ["clamp", "wrap", "reflect", "constant"])
def test_boundaries_stand_at_inputs_only(mode):
    X = lang.placeholder((6, 7), "i32", name="X")
    near = lang.boundary(X, mode=mode)
    a = lang.stage(lambda y, x: near[y, x - 1] + near[y, x + 1], name="a")
    b = lang.stage(lambda y, x: a[y - 1, x] + a[y + 1, x], name="b")
    prog = lang.program([X], [b], region=X.shape)
    assert not any(
        isinstance(atom, ir.MinMax | ir.Mod)
        for ld in prog.stage("b").operands
        for i in ld.indices
        for atom, _ in i.terms
    )
    x = np.random.default_rng(1).integers(0, 99, (6, 7)).astype(np.int32)
    modes = {"clamp": "edge", "wrap": "wrap", "reflect": "reflect", "constant": "constant"}
    p = np.pad(x, 1, mode=modes[mode])
    q = p[:, :-2] + p[:, 2:]
    np.testing.assert_array_equal(lang.evaluate(prog, [x])["b"], q[:-2] + q[2:])
    func = to_function(prog)
    np.testing.assert_array_equal(run_function(func, {"X": x})["b"], q[:-2] + q[2:])


def test_what_is_not_at_a_border_needs_no_boundary():
    X = lang.placeholder((8,), "i32", name="X")
    near = lang.boundary(X, mode="clamp")
    a = lang.stage(lambda i: near[i - 1] + near[i + 1], name="a")
    (stage,) = lang.program([X], [a], region=[(1, 7)]).stages
    assert all(isinstance(atom, ir.Var) for ld in stage.operands for atom, _ in ld.indices[0].terms)


def test_conditions_narrow_what_is_read():
    X = lang.placeholder((8,), "i32", name="X")
    a = lang.stage(lambda i: X[i] + 1, name="a")
    b = lang.stage(lambda i: lang.select(i >= 1, a[i - 1], lang.select(i == 0, a[i], a[i + 9])), name="b")
    c = lang.stage(lambda i: lang.select((i >= 2) & (i <= 5), b[i - 2], b[i]), name="c")
    prog = lang.program([X], [c], region=[8])
    assert shapes(prog) == {"a": (7,), "b": (8,)}
    x = np.arange(8, dtype=np.int32)
    assert lang.evaluate(prog, [x])["c"].tolist() == [1, 1, 1, 1, 2, 3, 6, 7]


def test_data_dependent_reads_take_their_bounds_from_the_clamp():
    X = lang.placeholder((5,), "i32", name="X")
    table = lang.stage(lambda i: lang.cast(lang.to_scalar(i) * lang.to_scalar(i), "i32"), name="table")
    out = lang.stage(lambda i: table[lang.clamp(X[i], -3, 4)], name="out")
    prog = lang.program([X], [out], region=[5])
    assert shapes(prog) == {"table": (8,)}
    assert lang.evaluate(prog, [np.array([-9, -3, 0, 2, 9], np.int32)])["out"].tolist() == [9, 9, 0, 4, 16]


def test_symbolic_regions():
    h, w = lang.param("h", lo=4), lang.param("w", lo=4)
    X = lang.placeholder((h, w), "i32", name="X")
    near = lang.boundary(X, mode="clamp")
    a = lang.stage(lambda y, x: near[y, x - 1] + near[y, x + 1], name="a")
    b = lang.stage(lambda y, x: a[y - 1, x] + a[y + 1, x] * a[y, x], name="b")
    prog = lang.program([X], [b], region=[h, w])
    assert [str(n) for n in prog.buffer("a").shape] == ["h + 2", "w"]
    x = np.random.default_rng(1).integers(0, 99, (5, 9)).astype(np.int32)
    p = np.pad(x, 1, mode="edge")
    q = p[:, :-2] + p[:, 2:]
    np.testing.assert_array_equal(lang.evaluate(prog, [x])["b"], q[:-2] + q[2:] * q[1:-1])


def test_stages_mix_with_tensors_that_have_shapes():
    X = lang.placeholder((10,), "i32", name="X")
    a = lang.stage(lambda i: X[i] * X[i + 1], name="a")
    s = lang.scan((8,), lambda t, i: lang.select(i >= 1, t[i - 1], 0) + a[i + 1], name="s", dtype="i32")
    b = lang.stage(lambda i: s[i] - a[i], name="b")
    prog = lang.program([X], [b, s], region=[8])
    assert shapes(prog) == {"a": (9,)}
    x = np.arange(10, dtype=np.int32)
    p = x[:-1] * x[1:]
    found = lang.evaluate(prog, [x])
    np.testing.assert_array_equal(found["s"], np.cumsum(p[1:9]))
    np.testing.assert_array_equal(found["b"], np.cumsum(p[1:9]) - p[:8])


def test_updates_of_stages_have_what_they_touch():
    X = lang.placeholder((10,), "i32", name="X")
    a = lang.stage(lambda i: X[lang.clamp(i, 0, 9)], name="a")
    t = lang.ordered_axis((-2, 3), "t")
    u = lang.update(a, [t], lambda u, t: lang.write(t, u[t - 1] + 1), name="u")
    b = lang.stage(lambda i: u[i] + a[i], name="b")
    prog = lang.program([X], [b], region=[4])
    x = np.arange(10, dtype=np.int32) ** 2
    want = {i: int(x[max(0, i)]) for i in range(-3, 5)}
    for i in range(-2, 3):
        want[i] = want[i - 1] + 1
    assert lang.evaluate(prog, [x])["b"].tolist() == [want[i] + int(x[i]) for i in range(4)]
    assert shapes(prog) == {"a": (7,), "u": (7,)}


def test_regions_by_output():
    X = lang.placeholder((10,), "i32", name="X")
    a = lang.stage(lambda i: X[i] + 1, name="a")
    b = lang.stage(lambda i: X[i] - 1, name="b")
    prog = lang.program([X], [a, b], region={a: [3], b: [(2, 9)]})
    found = lang.evaluate(prog, [np.arange(10, dtype=np.int32)])
    assert found["a"].tolist() == [1, 2, 3]
    assert found["b"].tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_a_program_without_stages_is_untouched():
    X = lang.placeholder((10,), name="X")
    C = lang.compute((10,), lambda i: X[i] * 2, name="C")
    assert lang.program([X], [C]) == lang.program([X], [C], region=None)


def test_data_dependent_reads_take_their_bounds_from_the_stage():
    x = lang.placeholder((6,), "i32", name="x")
    table = lang.stage(lambda v: lang.to_scalar(v, "i32") * 3, name="table", bounds={"v": (-2, 8)})
    y = lang.stage(lambda i: table[x[i]], name="y")
    program = lang.program([x], y, region=[6])
    assert [n.as_int() for n in program.buffer("table").shape] == [10]
    data = np.array([-5, -2, 0, 7, 8, 3], np.int32)
    np.testing.assert_array_equal(lang.evaluate(program, [data])["y"], np.clip(data, -2, 7) * 3)


@pytest.mark.parametrize("form", ["mod", "and", "shift"])
def test_remainders_masks_and_shifts_are_bounds(form):
    x = lang.placeholder((6,), "u32", name="x")
    table = lang.stage(lambda v: lang.to_scalar(v, "i32") + 1, name="table")
    at = {"mod": lambda v: v % 12, "and": lambda v: v & 15, "shift": lambda v: v >> 28}[form]
    program = lang.program([x], lang.stage(lambda i: table[at(x[i])], name="y"), region=[6])
    assert [n.as_int() for n in program.buffer("table").shape] == [12 if form == "mod" else 16]
    data = np.array([0, 5, 12, 1 << 31, (1 << 32) - 1, 77], np.uint32)
    np.testing.assert_array_equal(lang.evaluate(program, [data])["y"], at(data).astype(np.int32) + 1)
