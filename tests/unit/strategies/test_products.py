"""Products of matrices that are both given at run time: right with copies in tiles, whatever divides."""

import pytest
from tests.unit.strategies.test_default import check, t

from tilewright import lang
from tilewright.strategies import products


@pytest.fixture(autouse=True)
def copies_however_small(monkeypatch):
    """Copy operands, and in small blocks, where it would not pay."""
    monkeypatch.setattr(products, "MIN_SHARE", 0.0)
    monkeypatch.setattr(products, "MIN_USES", 2)
    monkeypatch.setattr(products, "MIN_PANELS", 0)


def product(m, n, k, *, bias=False, batch=()):
    a, b = t(*batch, m, k, name="A"), t(k, n, name="B")
    r = lang.reduce_axis(k, "k")
    c = lang.compute((*batch, m, n), lambda *i: lang.sum(a[(*i[:-1], r)] * b[r, i[-1]], axis=r), name="C")
    if not bias:
        return lang.program([a, b], [c])
    d = t(n, name="D")
    y = lang.compute((*batch, m, n), lambda *i: lang.maximum(c[i] + d[i[-1]], 0), name="Y")
    return lang.program([a, b, d], [y])


def copied(s):
    return any(name.endswith("_rows") for name in s.blocks())


SIZES = [(14, 64, 16), (23, 96, 37), (61, 101, 40), (61, 160, 37), (23, 101, 16), (14, 160, 40), (45, 99, 41)]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_odd_sizes(m, n, k):
    assert copied(check(product(m, n, k), interpret=False))


@pytest.mark.parametrize("share", [0.0, 0.06])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_blocks_and_epilogue(threads, bias, share, monkeypatch):
    monkeypatch.setattr(products, "CACHE_SHARE", share)
    s = check(product(45, 99, 24, bias=bias), threads=threads, interpret=threads == 2)
    assert copied(s)


def test_a_leading_axis_of_one():
    assert copied(check(product(30, 70, 32, batch=(1,))))


def test_small_products_are_read_in_place(monkeypatch):
    monkeypatch.undo()
    assert not copied(check(product(45, 99, 24), interpret=False))
