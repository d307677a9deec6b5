"""Minima and maxima over one linear form: exact bounds, and forms that stay small however deep they nest."""

import random

import pytest

from tilewright.ir import Index, MinMax, imax, imin, substitute_index, var
from tilewright.ir.bounds import int_lower, int_upper

X = var("x")


def drawn(rng: random.Random, depth: int) -> Index:
    """A sum of minima and maxima of shifted multiples of x."""
    if depth == 0 or rng.random() < 0.2:
        return X * rng.choice((0, 1, 1, 8, -2)) + rng.randint(-9, 9)
    pick = rng.choice((imin, imax))
    made = pick(drawn(rng, depth - 1), drawn(rng, depth - 1) if rng.random() < 0.5 else rng.randint(-9, 30))
    return made * rng.choice((1, 1, -1)) + rng.randint(-5, 5)


@pytest.mark.parametrize("seed", range(8))
def test_bounds_hold_and_one_form_alone_is_exact(seed):
    rng = random.Random(seed)
    for _ in range(20):
        x = drawn(rng, 2) - drawn(rng, 2)
        lo, hi = sorted((rng.randint(-20, 20), rng.randint(-20, 20)))
        values = [substitute_index(x, {"x": Index(v)}).as_int() for v in range(lo, hi + 1)]
        env = {"x": (Index(lo), Index(hi))}
        assert int_upper(x, env) >= max(values), f"seed {seed}: {x} over {lo}..{hi}"
        assert int_lower(x, env) <= min(values), f"seed {seed}: {x} over {lo}..{hi}"
        if len(x.terms) == 1 and isinstance(x.terms[0][0], MinMax):
            assert int_upper(x, env) == max(values), f"seed {seed}: {x} over {lo}..{hi}"


@pytest.mark.parametrize("seed", range(8))
def test_rules_that_build_minima_keep_their_values(seed):
    rng = random.Random(100 + seed)
    for _ in range(20):
        args = [drawn(rng, 3) for _ in range(rng.randint(2, 4))]
        for made, pick in ((imin(*args), min), (imax(*args), max)):
            for value in range(-12, 13, 2):
                want = pick(substitute_index(a, {"x": Index(value)}).as_int() for a in args)
                got = substitute_index(made, {"x": Index(value)}).as_int()
                assert got == want, f"seed {seed}: {[str(a) for a in args]} at {value}"


def test_clamps_of_clamps_are_one_clamp():
    x = X
    for _ in range(10):
        x = imin(imax(x - 2, 0), 63)
    assert x == imin(imax(X - 20, 0), 45)
    for _ in range(40):
        x = imin(imax(x + 1, 0), 63)
    assert len(str(x)) < 40


def test_windows_that_borders_cut():
    y = var("y")
    env = {"y": (Index(0), Index(63))}
    extent = imin(511, imax(0, y * 8 - 2) + 13) - imax(0, y * 8 - 4) + 1
    assert int_upper(extent, env) == 16
    # beside the form: bounded apart from it
    assert int_upper(extent + var("z"), {**env, "z": (Index(0), Index(3))}) == 19
    # two forms: no corners, still a bound
    assert int_upper(imax(y, var("z")), {**env, "z": (Index(0), Index(3))}) == 63
