"""Element-wise stages whose operands lie across the result: right in tiles of all sizes."""

import pytest
from tests.unit.strategies.test_default import check, t

from tilewright import lang
from tilewright.strategies import rows


@pytest.fixture(autouse=True)
def tiles_however_small(monkeypatch):
    """Where it would not pay."""
    monkeypatch.setattr(rows, "MIN_TILED_ELEMENTS", 0)
    monkeypatch.setattr(rows, "MIN_PARALLEL_ELEMENTS", 0)


def tiled(s):
    return any("_square" in loop for name in s.blocks() for loop in s.loops(name))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(32, 64), (33, 65), (70, 131), (129, 40)])
def test_transposed(shape, threads):
    x = t(*shape, name="X")
    y = lang.compute(shape[::-1], lambda i, j: x[j, i] * 2.0, name="Y")
    assert tiled(check(lang.program([x], [y]), threads=threads))


def test_two_operands_one_of_them_across():
    a, b = t(37, 70, name="A"), t(70, 37, name="B")
    y = lang.compute((70, 37), lambda i, j: a[j, i] + b[i, j], name="Y")
    assert tiled(check(lang.program([a, b], [y])))


def test_channels_last():
    x = t(2, 40, 3, 35, name="X")
    y = lang.compute((2, 3, 35, 40), lambda n, h, w, c: x[n, c, h, w], name="Y")
    assert tiled(check(lang.program([x], [y])))


def test_short_axes_are_read_where_they_are():
    x = t(100, 7, name="X")
    y = lang.compute((7, 100), lambda i, j: x[j, i], name="Y")
    assert not tiled(check(lang.program([x], [y])))
