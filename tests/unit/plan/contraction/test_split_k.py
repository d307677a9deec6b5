"""Products with few results and a long reduction: right for all sizes, and only where that pays."""

import pytest
from tests.unit.plan.contraction.test_cache_blocking import machine
from tests.unit.plan.loops import accumulates
from tests.unit.strategies.test_default import check, t

from tilewright import lang
from tilewright.cost import Machine
from tilewright.plan import EXACT
from tilewright.plan.contraction import split_k as deep
from tilewright.strategies import default_schedule


def product(m, n, k, *, bias=False):
    a, b, r = t(m, k, name="A"), t(k, n, name="B"), lang.reduce_axis(k, "k")
    c = lang.compute((m, n), lambda i, j: lang.sum(a[i, r] * b[r, j], axis=r), name="C")
    if not bias:
        return lang.program([a, b], [c])
    d = t(n, name="D")
    y = lang.compute((m, n), lambda i, j: lang.maximum(c[i, j] + d[j], 0), name="Y")
    return lang.program([a, b, d], [y])


@pytest.mark.few(10)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 64, 1024), (23, 45, 2048), (30, 33, 3072), (9, 16, 1024)])
def test_all_sizes(m, n, k, threads, bias, monkeypatch):
    monkeypatch.setattr(deep, "MIN_DEPTH", 1)
    monkeypatch.setattr(deep, "CHUNK", 100)
    monkeypatch.setattr(deep, "whole_cache", lambda target: 0)
    assert accumulates(check(product(m, n, k, bias=bias), threads=threads, accuracy=EXACT, interpret=False))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((64, 64, 262144), True),
        ((64, 64, 262145), True),
        ((64, 64, 8192), False),  # all near in the last cache level
        ((512, 1500, 16384), False),  # many results
        ((4, 64, 1048576), False),  # few rows: a stream
    ],
)
def test_only_long_reductions_of_much_that_is_read(shape, expected):
    assert accumulates(default_schedule(product(*shape), Machine(machine(1024, 32 * 1024), 2))) == expected


def test_many_short_products_are_no_long_reduction(monkeypatch):
    """192 products of 49 x 32 over 49: what a batch sums up altogether is none of one result's steps."""
    monkeypatch.setattr(deep, "whole_cache", lambda target: 0)
    a, b, r = t(64, 3, 49, 49, name="A"), t(64, 49, 3, 32, name="B"), lang.reduce_axis(49, "k")
    c = lang.compute((64, 49, 3, 32), lambda w, i, h, j: lang.sum(a[w, h, i, r] * b[w, r, h, j], axis=r))
    program = lang.program([a, b], [c])
    s = default_schedule(program, Machine(machine(1024, 4096), 2))
    assert not accumulates(s) and not any("part" in name for name in s.blocks())


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((64, 64, 262144), True),
        ((16, 64, 1048576), False),  # few tiles for all that would be asked for
        ((64, 100, 262144), False),  # rows that are not whole lines
    ],
)
def test_many_tiles_ask_for_the_next_chunk(shape, expected):
    s = default_schedule(product(*shape), Machine(machine(1024, 32 * 1024), 2))
    assert accumulates(s) and ("prefetch=B@spread" in str(s)) == expected
