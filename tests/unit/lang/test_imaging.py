"""Functions of image pipelines against exact arithmetic."""

import numpy as np
import pytest

from tilewright import ir, lang
from tilewright.ir import run_program

RNG = np.random.default_rng(5)


def apply(fn, *arrays):
    inputs = [lang.placeholder(a.shape, ir.dtype_of(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
    out = lang.compute(arrays[0].shape, lambda i: fn(*(x[i] for x in inputs)), name="y")
    return lang.evaluate(lang.program(inputs, out), arrays)["y"]


def pairs(dtype):
    """Random pairs, and all pairs of values near the ends of the type's range and 0."""
    info = np.iinfo(dtype)
    edges = [info.min, info.min + 1, info.min + 2, 0, 1, 2, info.max // 2, info.max - 1, info.max]
    grid = np.array([(a, b) for a in edges for b in edges], dtype)
    more = RNG.integers(info.min, info.max, (200, 2), dtype, endpoint=True)
    return np.concatenate([grid, more]).T


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"])
def test_fixed_point(dtype):
    a, b = pairs(np.dtype(dtype))
    x, y = a.astype(object), b.astype(object)
    info = np.iinfo(dtype)
    wants = {
        "absd": abs(x - y),
        "avg_floor": (x + y) // 2,
        "avg_round": (x + y + 1) // 2,
        "saturating_add": np.clip(x + y, info.min, info.max),
        "saturating_sub": np.clip(x - y, info.min, info.max),
    }
    if dtype == "int64":
        del wants["absd"]
    for name, want in wants.items():
        found = apply(getattr(lang, name), a, b)
        assert found.dtype.kind == ("u" if name == "absd" else np.dtype(dtype).kind)
        assert found.astype(object).tolist() == want.tolist(), name


def test_absd_of_floats_and_saturating_cast():
    a, b = RNG.normal(size=(2, 30)).astype(np.float32)
    np.testing.assert_array_equal(apply(lang.absd, a, b), abs(a - b))
    x = np.array([-300, -1, 0, 99, 300], np.int32)
    assert apply(lambda v: lang.saturating_cast(v, "u8"), x).tolist() == [0, 0, 0, 99, 255]


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_lerp_of_integers_rounds_to_nearest(dtype):
    a, b = pairs(np.dtype(dtype))
    w = RNG.permutation(a)
    x, y, v = (t.astype(object) for t in (a, b, w))
    one = int(np.iinfo(dtype).max)
    want = (2 * (x * (one - v) + y * v) + one) // (2 * one)
    assert apply(lang.lerp, a, b, w).astype(object).tolist() == want.tolist()


def test_lerp_of_floats():
    a, b, w = RNG.uniform(0, 1, (3, 40)).astype(np.float32)
    np.testing.assert_array_equal(apply(lang.lerp, a, b, w), a * (1 - w) + b * w)


def test_mux():
    x = np.array([-1, 0, 1, 2, 3, 9], np.int32)
    assert apply(lambda v: lang.mux(v, [10, v * 2, 30]), x).tolist() == [30, 10, 2, 30, 30, 30]
    out = lang.compute((4,), lambda i: lang.mux(i, [1.5, 2.5, 3.5]), name="y")
    assert lang.evaluate(lang.program([], out), [])["y"].tolist() == [1.5, 2.5, 3.5, 3.5]


def test_random_numbers_depend_on_seed_and_indices_alone():
    def image(seed, size=64):
        return lang.compute((size, size), lambda y, x: lang.random(seed, y, x), name="r")

    first = lang.evaluate(lang.program([], image(1)), [])["r"]
    again = lang.evaluate(lang.program([], image(1, 32)), [])["r"]
    other = lang.evaluate(lang.program([], image(2)), [])["r"]
    np.testing.assert_array_equal(first[:32, :32], again)
    assert first.min() >= 0
    assert first.max() < 1
    assert abs(first.mean() - 0.5) < 0.02
    assert abs(first.std() - 12**-0.5) < 0.01
    assert abs(np.corrcoef(first[:, 1:].ravel(), first[:, :-1].ravel())[0, 1]) < 0.05
    assert (first == other).mean() < 0.01
    np.testing.assert_array_equal(run_program(lang.program([], image(1, 8)), {})["r"], first[:8, :8])


def test_random_integers_and_places_of_stages():
    r = lang.stage(lambda i: lang.random(7, i, dtype="u32"), name="r")
    near = lang.evaluate(lang.program([], lang.stage(lambda i: r[i - 3], name="s"), region=[5]), [])["s"]
    far = lang.evaluate(lang.program([], r, region=[(-3, 2)]), [])["r"]
    assert near.dtype == np.uint32
    np.testing.assert_array_equal(near, far)
    assert len(set(near.tolist())) == 5


def test_indices_are_numbers_beside_floats():
    out = lang.compute((5,), lambda i: lang.exp((i - 2) * (i + 0.5) / 4.0) + lang.sqrt(i), name="y")
    i = np.arange(5)
    found = lang.evaluate(lang.program([], out), [])["y"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.exp((i - 2) * (i + 0.5) / 4) + np.sqrt(i), rtol=1e-6)


def test_symmetric_boundaries_repeat_the_border():
    x = RNG.integers(0, 99, 5).astype(np.int32)
    for n in (lang.param("n"), None):
        X = lang.placeholder((n if n is not None else 5,), "i32", name="X")
        b = lang.boundary(X, mode="symmetric")
        out = lang.compute((13,), lambda i, b=b: b[i - 4], name="y")
        found = lang.evaluate(lang.program([X], out), [x])["y"]
        np.testing.assert_array_equal(found, np.pad(x, 4, mode="symmetric"))
    far = lang.stage(lambda i: lang.boundary(X, mode="symmetric")[i], name="far")
    want = np.pad(x, 23, mode="symmetric")
    np.testing.assert_array_equal(lang.evaluate(lang.program([X], far, region=[(-23, 28)]), [x])["far"], want)


@pytest.mark.parametrize("least", [1, 5])
def test_wrapped_boundaries_over_open_sizes_continue_once(least):
    """Below a least size that covers the window what lies farther outside is the nearest element."""
    n = lang.param("n", lo=least)
    X = lang.placeholder((n,), "i32", name="X")
    out = lang.compute((n + 8,), lambda i: lang.boundary(X, mode="wrap")[i - 4], name="y")
    program = lang.program([X], out)
    for size in range(least, 30):
        x = RNG.integers(0, 99, size).astype(np.int32)
        found = run_program(program, {"X": x})["y"]
        at = np.arange(-4, size + 4)
        once = np.where(at < 0, at + size, np.where(at >= size, at - size, at))
        np.testing.assert_array_equal(found, x[np.clip(once, 0, size - 1)])
        if size >= 4:
            np.testing.assert_array_equal(found, np.pad(x, 4, mode="wrap"))


def test_narrow_integers_index_without_a_clamp():
    X = lang.placeholder((40,), "u8", name="X")
    table = lang.stage(lambda i: lang.to_scalar(i, "i32") * 3, name="table")
    out = lang.stage(lambda i: table[X[i]] + table[lang.cast(X[i], "i8")], name="out")
    prog = lang.program([X], out, region=[40])
    assert prog.buffer("table").shape[0].as_int() == 256 + 128
    x = RNG.integers(0, 256, 40).astype(np.uint8)
    want = 3 * (x.astype(np.int32) + x.astype(np.int8))
    np.testing.assert_array_equal(lang.evaluate(prog, [x])["out"], want)
    np.testing.assert_array_equal(run_program(prog, {"X": x})["out"], want)


def test_backward_scans():
    X = lang.placeholder((6, 4), "i32", name="X")
    t = lang.scan(
        (6, 4),
        lambda t, y, x: lang.select(y < 5, t[y + 1, x], 0) + X[y, x],
        reverse=True,
        dtype="i32",
        name="t",
    )
    prog = lang.program([X], t)
    a = RNG.integers(0, 9, (6, 4)).astype(np.int32)
    want = np.cumsum(a[::-1], axis=0)[::-1]
    np.testing.assert_array_equal(lang.evaluate(prog, [a])["t"], want)
    np.testing.assert_array_equal(run_program(prog, {"X": a})["t"], want)
