"""Programs of several sizes as one: exactly what each of them is, or nothing."""

import random

import pytest

from tilewright import lang
from tilewright.ir import Param, generalise, program_at

N, M = Param("n", 1, 4096), Param("m", 1, 4096)


def blur(n, m=8):
    X = lang.placeholder((n + 2, m), name="X")
    Y = lang.compute((n, m), lambda y, x: X[y, x] + X[y + 2, m - 1 - x], name="Y")
    k = lang.reduce_axis(n, "k")
    Z = lang.compute((m,), lambda x: lang.sum(Y[k, x], axis=k), name="Z")
    return lang.program([X], [Z], name="blur")


@pytest.mark.parametrize("seed", range(4))
def test_samples_and_other_sizes_come_back(seed):
    rng = random.Random(seed)
    sizes = [{"n": n} for n in (rng.sample(range(3, 400), 3))]
    made = generalise([blur(s["n"]) for s in sizes], sizes, [N])
    assert made is not None and made.params == (N,)
    for n in (*(s["n"] for s in sizes), *rng.sample(range(3, 4000), 5)):
        assert program_at(made, {"n": n}) == blur(n)


def test_two_sizes():
    sizes = [{"n": 20, "m": 30}, {"n": 21, "m": 30}, {"n": 20, "m": 37}, {"n": 50, "m": 70}]
    made = generalise([blur(s["n"], s["m"]) for s in sizes], sizes, [N, M])
    assert made is not None
    assert program_at(made, {"n": 5, "m": 99}) == blur(5, 99)


def test_what_does_not_depend_on_the_size_has_none():
    made = generalise([blur(9)] * 3, [{"n": n} for n in (1, 2, 3)], [N])
    assert made is not None and made == blur(9) and made.params == ()


def halves(n):
    X = lang.placeholder((n,), name="X")
    return lang.program([X], [lang.compute((n // 2,), lambda i: X[2 * i], name="Y")], name="halves")


def scaled(n):
    X = lang.placeholder((n,), name="X")
    return lang.program([X], [lang.compute((n,), lambda i: X[i] * (1.0 / n), name="Y")], name="scaled")


def flat(n):
    X = lang.placeholder((4 * n,), name="X")
    return lang.program([X], [lang.compute((4, n), lambda i, j: X[n * i + j], name="Y")], name="flat")


def grown(n):
    return blur(n) if n < 30 else halves(n)


@pytest.mark.parametrize("make", [halves, scaled, flat, grown])
def test_what_is_not_affine_is_no_program(make):
    sizes = [{"n": n} for n in (20, 21, 40)]
    assert generalise([make(s["n"]) for s in sizes], sizes, [N]) is None


def test_samples_that_tell_nothing_apart():
    sizes = [{"n": 20, "m": 20}, {"n": 21, "m": 21}]
    assert generalise([blur(s["n"], s["m"]) for s in sizes], sizes, [N, M]) is None
