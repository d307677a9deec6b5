"""partition_loops: clamps leave the inside of vector loops, and nothing else changes."""

import random

import numpy as np
import pytest

from native_kernel import Native
from tilewright import lang
from tilewright.ir import For, MinMax, run_function, stmt_children, stmt_loads, verify
from tilewright.lower import lower
from tilewright.schedule import Schedule


def vector_loops(s, around=()):
    if isinstance(s, For):
        around = (*around, s)
        if s.kind.name == "vector":
            yield around
    for child in stmt_children(s):
        yield from vector_loops(child, around)


def is_clamped(s):
    return any(
        isinstance(atom, MinMax) for ld in stmt_loads(s) for i in ld.indices[-1:] for atom, _ in i.terms
    )


def blurred(width, radius, height=3):
    """Sums of neighbours along rows, clamped at both ends."""
    X = lang.placeholder((height, width), name="X")
    near = lang.boundary(X, mode="clamp")
    window = range(-radius, radius + 1)
    C = lang.compute((height, width), lambda y, x: sum(near[y - 1, x + d] for d in window), name="C")
    return lang.program([X], [C])


def expected(x, radius):
    columns = np.arange(x.shape[1])
    rows = x[np.maximum(np.arange(x.shape[0]) - 1, 0)]
    total = np.zeros_like(x)
    for d in range(-radius, radius + 1):
        total = total + rows[:, np.clip(columns + d, 0, x.shape[1] - 1)]
    return total


def run(s, radius, width, height=3, native=False):
    func = lower(s.func)
    verify(func)
    x = np.random.default_rng(0).integers(0, 9, (height, width)).astype(np.float32)
    got = (Native(s.func) if native else lambda a: run_function(func, a))({"X": x})["C"]
    np.testing.assert_array_equal(got, expected(x, radius))
    return func


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


@pytest.mark.parametrize(("width", "radius"), [(40, 2), (64, 40)])
def test_short_loops_and_borders_that_are_most_of_a_loop_stay(width, radius):
    s = Schedule(blurred(width, radius)).vectorize("x")
    assert [is_clamped(loops[-1]) for loops in vector_loops(run(s, radius, width).body)] == [True]


@pytest.mark.parametrize("seed", range(12))
def test_random_tiles(seed):
    r = random.Random(seed)
    print("seed", seed)
    width, radius = r.choice([64, 65, 97, 130, 200, 257]), r.choice([1, 2, 7, 11, 33])
    s = Schedule(blurred(width, radius))
    inner = "x"
    if r.random() < 0.7:
        s = s.split("x", r.choice([8, 16, 31, 64, 96]), tail=r.choice(["guard", "peel"]))
        inner = "x_i"
    if r.random() < 0.4 and inner == "x_i":
        s = s.split("x_i", r.choice([4, 8]), tail="guard")
        inner = "x_i_i"
    if r.random() < 0.8:
        s = s.vectorize(inner)
    run(s, radius, width, native=seed % 4 == 0)
