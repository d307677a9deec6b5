"""Sizes of a run among integers: as numbers at all values, and nothing decided by chance."""

import operator
import random

import numpy as np
import pytest

from tilewright.ir import (
    TYPICAL,
    Index,
    OpenSignError,
    OpenSizeError,
    Param,
    Size,
    as_size,
    base_symbols,
    bind_params,
    exact_quotient,
    index,
    index_of,
    least,
    most,
    most_of,
    times,
    typical,
    typical_size,
    typical_sizes,
)
from tilewright.support import digest

N, M = (Size(index(Param(name, lo, hi))) for name, lo, hi in (("n", 2, 9), ("m", 1, 6)))
VALUES = [{"n": n, "m": m} for n in range(2, 10) for m in range(1, 7)]


def at(value, sizes):
    return bind_params(value.index, sizes).as_int() if isinstance(value, Size) else value


OPERATIONS = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.floordiv,
    "mod": operator.mod, "least": least, "most": most,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_random_expressions_are_those_of_numbers(seed):
    """What arithmetic gives, or refuses, is right for every value of the symbols."""
    rng = random.Random(seed)
    known = [(N, lambda v: v["n"]), (M, lambda v: v["m"]), (rng.randint(1, 7), None)]
    known[2] = (known[2][0], lambda v, c=known[2][0]: c)
    for _ in range(12):
        (a, fa), (b, fb) = rng.choice(known), rng.choice(known)
        name = rng.choice([*OPERATIONS])
        try:
            made = OPERATIONS[name](a, b)
        except (OpenSizeError, ZeroDivisionError):
            continue

        def number(v, fa=fa, fb=fb, name=name):
            return {"least": min, "most": max}.get(name, OPERATIONS[name])(fa(v), fb(v))

        for v in VALUES:
            try:
                wanted = number(v)
            except ZeroDivisionError:
                continue
            assert at(made, v) == wanted, (name, str(a), str(b), str(made), v)
        known.append((made, number))


@pytest.mark.parametrize("seed", range(40))
def test_comparisons_hold_for_all_values_or_are_refused(seed):
    rng = random.Random(seed)
    a = rng.randint(0, 3) * N + rng.randint(-2, 2) * M + rng.randint(-9, 9)
    b = rng.randint(0, 2) * M + rng.randint(-9, 9)
    for op in (operator.lt, operator.le, operator.gt, operator.ge):
        every = {op(at(a, v), at(b, v)) for v in VALUES}
        try:
            found = op(a, b)
        except OpenSignError as error:
            assert len(every) == 2 and error.difference.terms
            continue
        assert every == {found}
    if a == b:
        assert all(at(a, v) == at(b, v) for v in VALUES)
    assert (a != b) is not (a == b)


def test_what_is_equal_at_some_values_alone_is_not_equal():
    assert N != 5 and (N == 5) is False and N != M and N == N + M - M
    assert bool(N) and bool(N - 2)
    assert hash(N * M) == hash(M * N) and N * M == M * N


@pytest.mark.parametrize(
    "ask",
    [
        lambda: range(N), lambda: [0] * N, lambda: [1, 2, 3][:N], lambda: np.zeros(N), lambda: int(N),
        lambda: float(N), lambda: N / 2, lambda: 1.0 / N, lambda: N * 1.5, lambda: (1,)[N],
    ],
)  # fmt: skip
def test_digits_are_refused(ask):
    with pytest.raises(OpenSizeError):
        ask()


def test_products_are_symbols_that_divide_again():
    product = N * M
    assert str(product) == "m_n" and product // N == M and product % M == 0 and product // (2 * 1) != N
    assert ((N + M) * M) // (N + M) == M and (N * M * 4) // (M * 2) == 2 * N
    assert exact_quotient(index_of(N), index_of(M)) is None
    assert [*base_symbols(product.index)] == ["m", "n"]
    square = ((N + 1) // 2) * M
    assert all(at(square, v) == (v["n"] + 1) // 2 * v["m"] for v in VALUES)
    with pytest.raises(OpenSizeError, match="may be negative"):
        M * least(M, N - 5)


def test_numbers_of_numpy_are_numbers():
    assert np.int64(3) * N == N * 3 and isinstance(np.int64(3) + N, Size)
    shape = np.empty(2, object)
    shape[:] = [N, 3]
    assert (shape * 2)[0] == N * 2 and shape.prod() == 3 * N
    assert digest(shape) == digest(shape.copy()) != digest(np.array([N, 4], object))


def test_extremes_stay_expressions_where_ranges_do_not_decide():
    assert least(N, 1) == 1 and most(N, 1) == N and most(N, M + 8) == M + 8
    assert isinstance(least(N, M), Size) and str(least(N, M)) == "min(m, n)"
    assert as_size(Index(3)) == 3 and times(index_of(2), index_of(N)) == index_of(2 * N)


def test_typical_sizes_are_sizes():
    assert typical_size(Param("n")) == TYPICAL
    assert typical_size(Param("n", lo=1, hi=100)) == 97
    # of sizes beyond it the geometric mean, 774
    assert typical_size(Param("n", lo=600, hi=1000)) == 773
    assert typical_size(Param("n", lo=600, hi=600)) == 600
    sizes = [typical_size(Param("n", lo=2, hi=4096), part) for part in (0.0, 0.5, 1.0, 1.5, 2.0)]
    assert sizes == [2, 31, TYPICAL, 1439, 4093]
    assert typical_size(Param("n", multiple_of=16)) == 31 * 16
    assert typical(4) == 4 and typical(N * M + 1) == typical(N) * typical(M) + 1
    (symbol,) = (atom for atom, _ in (N * M).index.terms)
    assert typical_sizes([symbol]) == {"n": 7, "m": 5, "m_n": 35}


def test_the_largest_of_a_size():
    assert (most_of(3), most_of(N * M + 1)) == (3, 55)


def test_common_factors_decide_signs():
    """n*m - n >= n, whatever n is, where m is more than 1; random sums are within their bounds."""
    two = Size(index(Param("k", 2, 6)))
    assert N * two - N > 0 and not N * two - N < 2 and (N * M - N) >= 0
    with pytest.raises(OpenSizeError):
        assert N * M - 2 * N >= 0
    rng = random.Random(4)
    for _ in range(200):
        parts = [N * M, N, M, N * N, 1]
        x = sum((rng.randint(-4, 4) * part for part in parts), 0)
        values = [at(x, v) for v in VALUES]
        try:
            assert (x >= 0) == (min(values) >= 0) == (max(values) >= 0)
        except OpenSizeError:
            continue
