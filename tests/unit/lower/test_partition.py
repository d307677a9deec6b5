"""partition_loops: clamps leave the inside of vector loops, and nothing else changes."""

import random

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.ir import (
    Compare,
    For,
    If,
    MinMax,
    Mod,
    index,
    locate,
    run_function,
    stmt_children,
    stmt_exprs,
    stmt_loads,
    verify,
    walk,
)
from tilewright.lower import lower
from tilewright.schedule import Schedule

MODES = ("clamp", "constant", "reflect", "symmetric", "wrap")


def vector_loops(s, around=()):
    if isinstance(s, For):
        around = (*around, s)
        if s.kind.name == "vector":
            yield around
    for child in stmt_children(s):
        yield from vector_loops(child, around)


def is_clamped(s):
    """Whether indices that move with the lanes are not affine, or conditions on lanes decide what is read."""
    lanes = {each.node.var for each in locate(s, For) if each.node.kind.name == "vector"} | {"x"}
    indices = [i for ld in stmt_loads(s) for i in ld.indices]
    bordered = [a for i in indices for a, _ in i.terms if isinstance(a, MinMax | Mod)]
    chosen = [c for e in stmt_exprs(s) for c in walk(e) if isinstance(c, Compare)]
    return any(lanes & set(each.vars) for each in (*(index(a) for a in bordered), *chosen))


def blurred(width, radius, height=3, mode="clamp"):
    """Sums of neighbours along rows, bordered at both ends."""
    X = lang.placeholder((height, width), name="X")
    near = lang.boundary(X, mode=mode)
    window = range(-radius, radius + 1)
    C = lang.compute((height, width), lambda y, x: sum(near[y - 1, x + d] for d in window), name="C")
    return lang.program([X], [C])


def expected(x, radius, mode):
    height, width = x.shape
    padded = np.pad(x, ((1, 0), (radius, radius)), mode={"clamp": "edge"}.get(mode, mode))
    return sum(padded[:height, d : d + width] for d in range(2 * radius + 1))


def run(s, radius, width, height=3, native=False, mode="clamp"):
    func = lower(s.func)
    verify(func)
    x = np.random.default_rng(0).integers(0, 9, (height, width)).astype(np.float32)
    got = (Native(s.func) if native else lambda a: run_function(func, a))({"X": x})["C"]
    np.testing.assert_array_equal(got, expected(x, radius, mode))
    return func


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("split", [False, True])
def test_all_borders_leave_the_inside(mode, split):
    s = Schedule(blurred(512, 2, mode=mode))
    s = s.split("x", 128).reorder("x_o", "y", "x_i").vectorize("x_i") if split else s.vectorize("x")
    func = run(s, 2, 512, mode=mode)
    (inside,) = (loops[-1] for loops in vector_loops(func.body) if not is_clamped(loops[-1]))
    first, end = ("max(0, -128*x_o + 2)", "min(128, -128*x_o + 510)") if split else ("2", "510")
    assert (str(inside.lo), str(inside.hi)) == (first, end)


def test_lanes_inside_have_no_clamps():
    func = run(Schedule(blurred(80, 2)).vectorize("x"), 2, 80, native=True)
    (loops,) = vector_loops(func.body)
    assert (str(loops[-1].lo), str(loops[-1].hi)) == ("2", "78")
    assert not is_clamped(loops[-1])
    assert is_clamped(func.body)  # the few elements at each border, one by one


def test_wide_borders_stay_vectors():
    func = run(Schedule(blurred(200, 20)).vectorize("x"), 20, 200)
    kinds = [is_clamped(loops[-1]) for loops in vector_loops(func.body)]
    assert kinds == [True, False, True]


def test_lanes_that_are_short_part_the_loop_around_them():
    s = Schedule(blurred(160, 3)).split("x", 16).vectorize("x_i")
    func = run(s, 3, 160)
    nests = list(vector_loops(func.body))
    assert [(str(loops[-2].lo), str(loops[-2].hi)) for loops in nests if not is_clamped(loops[-1])] == [
        ("1", "9")
    ]


def test_tiles_at_borders_only():
    """Whether a tile has clamps is known when it runs: the ends of the inside are indices of its loop."""
    s = Schedule(blurred(512, 3)).split("x", 128).reorder("x_o", "y", "x_i").vectorize("x_i")
    func = run(s, 3, 512, native=True)
    inside = [loops[-1] for loops in vector_loops(func.body) if not is_clamped(loops[-1])]
    assert [str(loop.hi) for loop in inside] == ["min(128, -128*x_o + 509)"]


@pytest.mark.parametrize("inner", [(), (16,)])
def test_tiles_that_may_be_all_border(inner):
    """Most tiles have no border, so what is nearest to the lanes is taken apart, not the loop over tiles."""
    s = Schedule(blurred(1000, 70)).split("x", 128).reorder("x_o", "y", "x_i")
    for size in inner:
        s = s.split("x_i", size)
    s = s.vectorize(s.loops("C")[-1])
    func = run(s, 70, 1000, native=True)
    nests = list(vector_loops(func.body))
    assert [loops[0].var for loops in nests] == [nests[0][0].var] * len(nests)
    (within,) = (loops for loops in nests if not is_clamped(loops[-1]))
    at = within[-2] if inner else within[-1]
    assert (str(at.lo), str(at.hi)) == {
        (): ("max(0, -128*x_o + 70)", "min(128, -128*x_o + 930)"),
        (16,): ("max(0, -8*x_o + 5)", "min(8, -8*x_o + 58)"),
    }[inner]
    # lanes past the end are cut off, or stand in iterations of their own: 1000 is no multiple of 16
    masked = [loops for loops in nests if any(True for _ in locate(loops[-1], If))]
    assert [is_clamped(loops[-1]) for loops in masked] == [True] * len(inner)


def test_tiles_of_two_axes_shared_as_one():
    s = Schedule(blurred(512, 3, 8)).split("x", 128).split("y", 2).reorder("y_o", "x_o", "y_i", "x_i")
    s = s.fuse("y_o", "x_o")
    s = s.parallel(s.loops("C")[0]).vectorize("x_i")
    inside = [v[-1] for v in vector_loops(run(s, 3, 512, 8, native=True).body) if not is_clamped(v[-1])]
    assert len(inside) == 1


def test_tables_looked_up_by_clamped_elements():
    X, table = lang.placeholder((200,), "u8", name="X"), lang.placeholder((256,), name="T")
    near = lang.boundary(X, mode="clamp")
    C = lang.compute((200,), lambda x: table[near[x - 1]] + table[near[x + 1]], name="C")
    func = lower(Schedule(lang.program([X, table], [C])).vectorize("x").func)
    clamps = [
        any(
            isinstance(a, MinMax)
            for ld in stmt_loads(v[-1])
            if ld.buffer == "X"
            for a, _ in ld.indices[0].terms
        )
        for v in vector_loops(func.body)
    ]
    assert clamps == [False]
    arrays = {"X": np.random.default_rng(0).integers(0, 256, 200).astype(np.uint8)}
    arrays["T"] = np.random.default_rng(1).random(256).astype(np.float32)
    x, at = arrays["X"], np.arange(200)
    wanted = arrays["T"][x[np.maximum(at - 1, 0)]] + arrays["T"][x[np.minimum(at + 1, 199)]]
    np.testing.assert_array_equal(run_function(func, arrays)["C"], wanted)


@pytest.mark.parametrize("lanes", [128, 16])
def test_lanes_that_read_apart_are_masked_in_the_last_vector_only(lanes):
    X = lang.placeholder((3, 2002), name="X")
    C = lang.compute((3, 1000), lambda y, x: X[y, 2 * x] + X[y, 2 * x + 1], name="C")
    s = Schedule(lang.program([X], [C])).split("x", lanes).vectorize("x_i")
    func = lower(s.func)
    verify(func)
    masked = [loops for loops in vector_loops(func.body) if any(True for _ in locate(loops[-1], If))]
    # 1000 elements are 7 tiles of 128 and a part that is cut off, and 62 vectors of 16 and one that is masked
    assert [(str(loops[-2].lo), str(loops[-2].hi)) for loops in masked] == {128: [], 16: [("62", "63")]}[
        lanes
    ]
    x = np.random.default_rng(0).integers(0, 9, (3, 2002)).astype(np.float32)
    for got in (run_function(func, {"X": x}), Native(s.func)({"X": x})):
        np.testing.assert_array_equal(got["C"], x[:, 0:2000:2] + x[:, 1:2000:2])


@pytest.mark.parametrize(("width", "radius"), [(40, 2), (64, 40)])
def test_short_loops_and_borders_that_are_most_of_a_loop_stay(width, radius):
    s = Schedule(blurred(width, radius)).vectorize("x")
    assert [is_clamped(loops[-1]) for loops in vector_loops(run(s, radius, width).body)] == [True]


@pytest.mark.parametrize("seed", range(12))
def test_random_tiles(seed):
    r = random.Random(seed)
    print("seed", seed)
    width, radius = r.choice([64, 65, 97, 130, 200, 257]), r.choice([1, 2, 7, 11, 33])
    mode = r.choice(MODES)
    s = Schedule(blurred(width, radius, mode=mode))
    inner = "x"
    if r.random() < 0.7:
        s = s.split("x", r.choice([8, 16, 31, 64, 96]), tail=r.choice(["guard", "peel"]))
        inner = "x_i"
    if r.random() < 0.4 and inner == "x_i":
        s = s.split("x_i", r.choice([4, 8]), tail="guard")
        inner = "x_i_i"
    if r.random() < 0.8:
        s = s.vectorize(inner)
    run(s, radius, width, native=seed % 4 == 0, mode=mode)


def test_bits_are_no_conditions():
    """A constant border decides conditions inside; `or` and `and` of integers are none."""
    X = lang.placeholder((160,), "i32", name="X")
    near = lang.boundary(X, mode="constant")
    C = lang.compute((160,), lambda x: ((near[x - 1] | 5) & 3) + (near[x + 1] & -2), name="C")
    s = Schedule(lang.program([X], [C])).vectorize("x")
    func = lower(s.func)
    assert any(not is_clamped(loops[-1]) for loops in vector_loops(func.body))
    x = np.random.default_rng(0).integers(-99, 99, 160).astype(np.int32)
    near = np.pad(x, 1)
    wanted = ((near[:-2] | 5) & 3) + (near[2:] & -2)
    np.testing.assert_array_equal(run_function(func, {"X": x})["C"], wanted)
    np.testing.assert_array_equal(Native(s.func)({"X": x})["C"], wanted)
