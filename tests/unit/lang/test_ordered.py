"""Updates, scans and scatters against plain loops."""

import numpy as np
import pytest

from tilewright import lang
from tilewright.ir import run_program
from tilewright.support import InternalError

RNG = np.random.default_rng(3)


def test_an_iir_filter():
    n = lang.param("n")
    x, a = lang.placeholder((n,), name="x"), lang.scalar("a")
    y = lang.scan((n,), lambda t, i: lang.select(i >= 1, a * t[i - 1], 0.0) + x[i], name="y")
    data = RNG.standard_normal(9).astype(np.float32)
    expected, last = [], np.float32(0)
    for v in data:
        last = np.float32(0.5) * last + v
        expected.append(last)
    found = lang.evaluate(lang.program([x, a], y), [data, np.float32(0.5)])["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_cumulative_sum_along_either_axis(axis):
    x = lang.placeholder((4, 5), name="x")

    def step(t, i, j):
        at = i if axis == 0 else j
        before = (i - 1, j) if axis == 0 else (i, j - 1)
        return x[i, j] + lang.select(at >= 1, t[before], 0.0)

    y = lang.scan((4, 5), step, axis=axis, name="y")
    data = RNG.standard_normal((4, 5)).astype(np.float32)
    program = lang.program([x], y)
    np.testing.assert_allclose(lang.evaluate(program, [data])["y"], data.cumsum(axis=axis), rtol=1e-5)
    assert [it.kind for it in program.stages[0].iters].count("ord") == 1


def test_a_scan_that_reads_neighbours_puts_the_ordered_axis_first():
    x = lang.placeholder((5, 3), name="x")
    y = lang.scan(
        (5, 3),
        lambda t, i, s: lang.select((s >= 1) & (i >= 1), t[i - 1, s - 1], 0.0) + x[i, s],
        axis=1,
        name="y",
    )
    program = lang.program([x], y)
    assert [it.name for it in program.stages[0].iters] == ["s", "i"]
    data = RNG.standard_normal((5, 3)).astype(np.float32)
    expected = data.copy()
    for s in range(1, 3):
        expected[1:, s] += expected[:-1, s - 1]
    np.testing.assert_allclose(lang.evaluate(program, [data])["y"], expected, rtol=1e-6)


@pytest.mark.parametrize("reduction", [None, "add", "mul", "max", "min"])
def test_scatter(reduction):
    base, at = lang.placeholder((4, 3), name="base"), lang.placeholder((2, 3), "i64", name="at")
    new = lang.placeholder((2, 3), name="new")
    out = lang.scatter(base, at, new, axis=0, reduction=reduction, name="out")
    b, v = (RNG.standard_normal(s).astype(np.float32) for s in ((4, 3), (2, 3)))
    p = np.array([[0, -1, 2], [0, 1, -2]])
    combine = {None: lambda a, c: c, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    expected = b.copy()
    for i in range(2):
        for j in range(3):
            expected[p[i, j], j] = combine[reduction](expected[p[i, j], j], v[i, j])
    program = lang.program([base, at, new], out)
    found = lang.evaluate(program, [b, p, v])["out"]
    np.testing.assert_array_equal(found, expected)
    assert [s.name for s in program.stages] == ["out_init", "out_update"]


def test_an_update_of_a_temporary_is_in_place_and_of_a_needed_one_is_not():
    x = lang.placeholder((4,), name="x")
    for needed in (False, True):
        y = lang.compute((4,), lambda i: x[i] * 2, name="y" if needed else None)
        z = lang.update(y, [3], lambda t, i: lang.write(i + 1, t[i] + 1), name="z")
        program = lang.program([x], [z, y] if needed else z)
        assert len(program.stages) == (3 if needed else 2)
        data = np.arange(4, dtype=np.float32)
        np.testing.assert_array_equal(lang.evaluate(program, [data])["z"], [0, 1, 2, 3])
        if needed:
            np.testing.assert_array_equal(lang.evaluate(program, [data])["y"], data * 2)


def test_updates_of_updates_with_conditions_and_parallel_axes():
    x = lang.placeholder((3, 4), name="x")
    y = lang.compute((3, 4), lambda i, j: x[i, j], name="y")
    i, t = lang.axis(3, "i"), lang.ordered_axis((1, 4), "t")
    z = lang.update(y, [i, t], lambda T, i, t: T[i, t - 1] + T[i, t])
    w = lang.update(z, [3], lambda T, k: [
        lang.write((k, 0), 0.0, where=T[k, 0] < 0), lang.write((k, 1), T[k, 0])
    ], name="w")  # fmt: skip
    data = RNG.standard_normal((3, 4)).astype(np.float32)
    expected = data.copy()
    for s in range(1, 4):
        expected[:, s] += expected[:, s - 1]
    expected[:, 0] = np.maximum(expected[:, 0], 0)
    expected[:, 1] = expected[:, 0]
    found = lang.evaluate(lang.program([x], w), [data])["w"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("op", ["add", "mul", "max", "min"])
def test_updates_in_no_order_accumulate(op):
    combine = {
        "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": lang.maximum, "min": lang.minimum,
    }[op]  # fmt: skip
    at, new = lang.placeholder((3, 5), "u8", name="at"), lang.placeholder((3, 5), "i32", name="new")
    base = lang.compute((4,), lambda i: lang.const(2, "i32"), name="base")
    k, m = lang.reduce_axis(3, "k"), lang.reduce_axis(5, "m")
    out = lang.update(
        base,
        [k, m],
        lambda t, k, m: lang.write(at[k, m] % 4, combine(t[at[k, m] % 4], new[k, m]), where=new[k, m] != 3),
        name="out",
    )
    program = lang.program([at, new], out)
    p, v = RNG.integers(0, 255, (3, 5), dtype=np.uint8), RNG.integers(-4, 5, (3, 5), dtype=np.int32)
    wanted = np.full(4, 2, np.int32)
    numpy = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[op]
    numpy.at(wanted, p[v != 3] % 4, v[v != 3])
    np.testing.assert_array_equal(lang.evaluate(program, [p, v])["out"], wanted)
    np.testing.assert_array_equal(run_program(program, {"at": p, "new": v})["out"], wanted)
    assert [it.kind for it in program.stages[-1].iters] == ["red", "red"]


def test_undefined_contents_are_not_written():
    x = lang.placeholder((5,), name="x")
    out = lang.update(lang.undef((5,)), [5], lambda t, i: x[i] + 1, name="out")
    program = lang.program([x], out)
    assert [s.name for s in program.stages] == ["out"]
    data = RNG.standard_normal(5).astype(np.float32)
    np.testing.assert_array_equal(lang.evaluate(program, [data])["out"], data + 1)
    # an element that nothing writes is none that may be read
    some = lang.update(lang.undef((5,)), [4], lambda t, i: x[i])
    program = lang.program([x], lang.compute((5,), lambda i: some[i], name="copy"))
    with pytest.raises(InternalError, match=r"never written|uninitialised"):
        run_program(program, {"x": data})


def test_reductions_inside_of_updates_and_scans_are_computed_before():
    x = lang.placeholder((4, 3), name="x")
    k, m = lang.reduce_axis(3, "k"), lang.reduce_axis(3, "m")
    total = lang.update(lang.undef((4,)), [4], lambda t, i: lang.sum(x[i, k], axis=k), name="total")
    running = lang.scan(
        (4,),
        lambda t, i: lang.select(i >= 1, t[i - 1], 0.0) + lang.max(x[i, m], axis=m) + total[i],
        name="running",
    )
    program = lang.program([x], running)
    assert len(program.stages) == 4
    data = RNG.integers(-9, 9, (4, 3)).astype(np.float32)
    wanted = np.cumsum(data.max(1) + data.sum(1))
    np.testing.assert_array_equal(lang.evaluate(program, [data])["running"], wanted)
